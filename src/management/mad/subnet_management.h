// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "management/mad/mad.h"
#include "management/mad/subnet.h"
#include "wire/roce/path.h"

namespace verbena::mad {

// The attributes of subnet management (IBTA volume 1, table 123).
inline constexpr uint16_t kNodeDescription = 0x0010;
inline constexpr uint16_t kNodeInfo = 0x0011;
inline constexpr uint16_t kSwitchInfo = 0x0012;
inline constexpr uint16_t kGuidInfo = 0x0014;
inline constexpr uint16_t kPortInfo = 0x0015;
inline constexpr uint16_t kPkeyTable = 0x0016;
inline constexpr uint16_t kSlToVl = 0x0017;
inline constexpr uint16_t kLinearForwarding = 0x0019;
inline constexpr uint16_t kSmInfo = 0x0020;

// A node of the simulated subnet, and the port through which the query entered it (LocalPortNum in NodeInfo).
struct Node {
  const Member* member = nullptr;  // nullptr for the virtual switch
  uint8_t entry_port = 0;

  bool is_switch() const { return member == nullptr; }
};

inline constexpr size_t kAttributeBytes = 64;
using AttributeData = std::array<std::byte, kAttributeBytes>;

// The number of bytes in use, of an attribute's kAttributeBytes.
inline constexpr size_t kNodeInfoBytes = 40;
inline constexpr size_t kSwitchInfoBytes = 20;
inline constexpr size_t kSmInfoBytes = 24;

// An attribute encoded by attribute_of(), or the status of the failure. `modifier` (attribute modifier)
// selects a port of `node` or a block of a table. attribute_of() fails with kUnsupportedAttribute if the node
// has no such attribute, and with kInvalidValue if the node lacks the part that the modifier selects.
using Attribute = tl::expected<AttributeData, MadStatus>;
Attribute attribute_of(const Subnet& subnet, const Node& node, uint16_t attribute, uint32_t modifier);

// A link speed, as encoded in PortInfo (LinkWidthActive, LinkSpeedActive, LinkSpeedExtActive) and in a path
// record (`rate`, table 203).
struct LinkSpeed {
  uint8_t width;
  uint8_t speed;
  uint8_t extended;
  uint8_t rate;
  uint32_t megabits;  // the encoding stands for Ethernet links up to this speed
};
// Returns the encoding for an Ethernet link of this speed. 0 (unknown) counts as 10,000 Mbit/s.
const LinkSpeed& link_speed_of(uint32_t megabits);

// Answers a Get or Set of subnet management (IBTA volume 1, 14.2) that our own adapter sent. The request
// reaches its node by a directed route, by the destination `lid`, or by LID first and a directed route from
// there. A Set gets the status for an unsupported attribute. Returns nullopt for other methods, and if no
// node is at the end of the route: a real fabric would not answer, either. Pure: no clock, no system calls.
std::optional<Mad> answer_subnet_management(Subnet& subnet, const Mad& request, uint16_t lid);

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
// for GetTable. A table can exceed one datagram: the result is the message that the requester gets after RMPP
// reassembly. Other methods, and queries that cannot be answered, get an answer with an error status.
// GetTable fails with kNoResources beyond 4,096 records or kMaxTableBytes. Returns nullopt only if `request`
// is itself an answer. Pure: no clock, no system calls.
std::optional<std::vector<std::byte>> answer_administration(const Subnet& subnet, const Mad& request);

// Returns the destination GID in a query for a path record. Returns nullopt for all other requests.
std::optional<roce::Address> wanted_destination(const Mad& request);

}  // namespace verbena::mad
