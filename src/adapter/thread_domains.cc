// SPDX-License-Identifier: Apache-2.0
#include "adapter/thread_domains.h"

namespace verbena::adapter {

Result<ibv_td*> ThreadDomains::alloc(const ibv_td_init_attr& attr) {
  if (attr.comp_mask != 0) return fail(EINVAL);
  auto td = std::make_unique<Td>();
  td->context = device_.context();
  return table_.add(std::move(td));
}

int ThreadDomains::dealloc(ibv_td* td) {
  if (Td::of(td).users.load() != 0) return EBUSY;
  table_.destroy(Td::of(td));
  return 0;
}

}  // namespace verbena::adapter
