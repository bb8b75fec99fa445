// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "management/mad/mad.h"
#include "management/mad/subnet.h"
#include "wire/roce/path.h"

namespace verbena::mad {

inline constexpr uint16_t kPortInfoRecord = 0x0012;
inline constexpr size_t kCapabilitiesInPortInfoRecord = 24;
inline constexpr uint16_t kPathRecord = 0x0035;
inline constexpr size_t kDestinationInPathRecord = 8;

// The offset of the data in a datagram of subnet administration, in bytes: after the MAD, RMPP and class
// headers (IBTA volume 1, 15.2.1.1).
inline constexpr size_t kAdministrationDataAt = 56;
// The maximum size in bytes of an answer to GetTable, which must fit into one message to a client.
inline constexpr size_t kMaxTableBytes = 128 * 1024;

// Answers a query to subnet administration (IBTA volume 1, 15.2): one record for Get, all matching records
// for GetTable. A table can exceed one datagram; it is returned as the requester gets it after RMPP
// reassembly. Other methods, and queries that cannot be answered, get an answer with an error status.
// GetTable fails with kNoResources beyond 4,096 records or kMaxTableBytes. Returns nullopt only if `request`
// is itself an answer. Pure.
std::optional<std::vector<std::byte>> answer_administration(const Subnet& subnet, const Mad& request);

// Returns the destination GID in a query for a path record. Returns nullopt for all other requests.
std::optional<roce::Address> wanted_destination(const Mad& request);

}  // namespace verbena::mad
