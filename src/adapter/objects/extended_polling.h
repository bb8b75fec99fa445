// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

namespace verbena::adapter {

// The fields of a completion that ibv_create_cq_ex() can make readable (enum ibv_create_cq_wc_flags).
inline constexpr uint64_t kReadableFields = IBV_CREATE_CQ_SUP_WC_FLAGS;

// Fills in the functions behind ibv_start_poll(), ibv_next_poll() and ibv_end_poll(), and the ibv_wc_read_*()
// functions for the fields in the bit mask `fields`. REQUIRES: `cq` is the C struct of a Cq
void fill_extended_polling(ibv_cq_ex& cq, uint64_t fields);

}  // namespace verbena::adapter
