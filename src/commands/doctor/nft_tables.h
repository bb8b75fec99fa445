// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/result.h"

namespace verbena::commands::doctor {

// How many tables nftables has in this network namespace, asked of the kernel. EPERM: only root may; other
// errors: the kernel has no nftables.
Result<size_t> count_nft_tables();

// Whether there are tables of the older kind of iptables.
bool has_legacy_tables();

}  // namespace verbena::commands::doctor
