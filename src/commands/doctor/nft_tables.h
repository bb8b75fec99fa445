// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace verbena::commands::doctor {

// Asks the kernel for the number of nftables tables in this network namespace. Fails with EPERM for users
// other than root, and with other errors if the kernel has no nftables.
Result<size_t> count_nft_tables();

// Whether this network namespace has tables of legacy iptables (family "ip") or ip6tables ("ip6"), which
// nftables does not list. Returns false also if the tables' names cannot be read.
bool has_legacy_tables(const std::string& family);

}  // namespace verbena::commands::doctor
