// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "management/mad/mad.h"
#include "management/mad/subnet.h"
#include "wire/roce/path.h"

namespace verbena::mad {

// Where the data of a datagram of this class begin: behind the header, that of RMPP and its own (IBTA
// volume 1, 15.2.1.1).
inline constexpr size_t kAdministrationDataAt = 56;
// A table has no more bytes: one message to a client holds it.
inline constexpr size_t kMaxTableBytes = 128 * 1024;

// What subnet administration answers to a query (IBTA volume 1, 15.2): one record by Get, all that match by
// GetTable. A table is longer than a datagram; it comes whole, as who asks gets it when RMPP has put it
// together. Nothing can be changed. Nothing: this is no query. Pure.
std::optional<std::vector<std::byte>> answer_administration(const Subnet& subnet, const Mad& request);

// The GID of whom a query for a path looks.
std::optional<roce::Address> wanted_destination(const Mad& request);

}  // namespace verbena::mad
