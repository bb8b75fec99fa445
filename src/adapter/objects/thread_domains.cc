// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/thread_domains.h"

#include "base/failed_call.h"

namespace verbena::adapter {

Result<ibv_td*> ThreadDomains::alloc(const ibv_td_init_attr& attr) {
  if (attr.comp_mask != 0) return fail(because(EINVAL, "comp_mask {:#x} is not 0", attr.comp_mask));
  auto td = std::make_unique<Td>();
  td->context = device_.context();
  return table_.add(std::move(td));
}

int ThreadDomains::dealloc(ibv_td* td) {
  if (Td::of(td).users.load() != 0)
    return because(EBUSY, "{} parent domains use it", uint32_t{Td::of(td).users.load()});
  table_.destroy(Td::of(td));
  return 0;
}

}  // namespace verbena::adapter
