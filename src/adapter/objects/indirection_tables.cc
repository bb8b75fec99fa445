// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/indirection_tables.h"

#include "base/failed_call.h"

namespace verbena::adapter {

Result<ibv_rwq_ind_table*> IndirectionTables::create(const ibv_rwq_ind_table_init_attr& attr) {
  if (device_.is_gone()) return fail(EIO);
  if (attr.comp_mask != 0) return fail(EOPNOTSUPP);
  if (attr.log_ind_tbl_size > kMaxLogRwqTable)
    return fail(because(EINVAL, "log_ind_tbl_size {} exceeds {}", attr.log_ind_tbl_size, kMaxLogRwqTable));
  if (attr.ind_tbl == nullptr) return fail(because(EINVAL, "ind_tbl is null"));
  auto made = table_.make();
  if (!made) return tl::unexpected(made.error());
  std::unique_ptr<RwqIndTable> table = std::move(*made);
  for (uint32_t i = 0; i < 1u << attr.log_ind_tbl_size; ++i) {
    ibv_wq* wq = attr.ind_tbl[i];
    if (!device_.made(wq)) return fail(because(EINVAL, "ind_tbl[{}] is no ibv_wq of this ibv_context", i));
    table->queues.push_back(&Wq::of(wq));
  }
  for (Wq* wq : table->queues) ++wq->users;
  table->context = device_.context();
  table->ind_tbl_handle = static_cast<int>(device_.next_handle());
  table->ind_tbl_num = table->ind_tbl_handle;
  return table_.add(std::move(table));
}

int IndirectionTables::destroy(ibv_rwq_ind_table* abi_table) {
  RwqIndTable& table = RwqIndTable::of(abi_table);
  if (table.users.load() != 0) return because(EBUSY, "{} queue pairs use it", uint32_t{table.users.load()});
  for (Wq* wq : table.queues) --wq->users;
  table_.destroy(table);
  return 0;
}

}  // namespace verbena::adapter
