// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "management/mad/subnet.h"

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

// A node of the fabric, and the port by which somebody looks at it.
struct Node {
  const Member* member = nullptr;  // nullptr: the switch
  uint8_t entry_port = 0;

  bool is_switch() const { return member == nullptr; }
};

inline constexpr size_t kAttributeBytes = 64;
using AttributeData = std::array<std::byte, kAttributeBytes>;

// How many bytes of it say something.
inline constexpr size_t kNodeInfoBytes = 40;
inline constexpr size_t kSwitchInfoBytes = 20;
inline constexpr size_t kSmInfoBytes = 24;

// An attribute of a node as it stands in a datagram. `modifier` says which port or block of a table. Without
// a value: the node has no such attribute, or (`kInvalid`) not this part of it.
enum class AttributeFault : uint8_t { kUnknown, kInvalid };
struct Attribute {
  AttributeData data{};
  std::optional<AttributeFault> fault;
};
Attribute attribute_of(const Subnet& subnet, const Node& node, uint16_t attribute, uint32_t modifier);

// How fast a link is, as PortInfo has it: LinkWidthActive, LinkSpeedActive, LinkSpeedExtActive; and as a path
// record has it (table 203).
struct LinkSpeed {
  uint8_t width;
  uint8_t speed;
  uint8_t extended;
  uint8_t rate;
  uint32_t megabits;  // of an Ethernet link: up to so many
};
const LinkSpeed& link_speed_of(uint32_t megabits);

}  // namespace verbena::mad
