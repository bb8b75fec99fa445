// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

namespace verbena::adapter {

// What ibv_create_cq_ex() may be asked to show of a completion: enum ibv_create_cq_wc_flags.
inline constexpr uint64_t kReadableFields = IBV_CREATE_CQ_SUP_WC_FLAGS;

// The functions behind ibv_start_poll(), ibv_next_poll(), ibv_end_poll() and ibv_wc_read_*(): those that
// `fields` asks for. REQUIRES: `cq` is the C struct of a Cq
void fill_extended_polling(ibv_cq_ex& cq, uint64_t fields);

}  // namespace verbena::adapter
