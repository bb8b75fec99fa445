// SPDX-License-Identifier: Apache-2.0
#include "management/mad/subnet_management.h"

#include <algorithm>

#include "wire/roce/packet.h"

namespace verbena::mad {

namespace {

// Ethernet speeds as the next InfiniBand rate at or above.
constexpr LinkSpeed kLinkSpeeds[] = {
    {1, 1, 0, 2, 1'000},     // 1X at 2.5 Gb/s
    {1, 4, 0, 3, 10'000},    // 1X at 10
    {2, 2, 0, 6, 20'000},    // 4X at 5
    {1, 4, 2, 15, 25'000},   // 1X EDR
    {2, 4, 0, 7, 40'000},    // 4X at 10
    {16, 4, 2, 20, 50'000},  // 2X EDR
    {2, 4, 2, 16, 100'000},  // 4X EDR
    {2, 4, 4, 22, 200'000},  // 4X HDR
    {2, 4, 8, 25, 400'000},  // 4X NDR
};
constexpr uint32_t kAssumedMegabits = 10'000;  // for a netdev of unknown speed

enum PortState : uint8_t { kDown = 1, kActive = 4 };
enum PhysicalState : uint8_t { kPolling = 2, kDisabled = 3, kLinkUp = 5 };
constexpr uint8_t kMasterManager = 3;

// CapabilityMask (14.2.5.6).
constexpr uint32_t kIsSubnetManager = 1u << 1;
constexpr uint32_t kHasExtendedSpeeds = 1u << 14;
constexpr uint32_t kManagesConnections = 1u << 16;

constexpr uint32_t kForwardingEntriesPerBlock = 64;
constexpr uint32_t kPkeysPerBlock = 32;
constexpr uint8_t kNoPort = 0xff;  // in a forwarding table
constexpr uint8_t kSubnetTimeout = 18;

// Writes an attribute's fields by offset.
class Fields {
 public:
  void u8(size_t at, unsigned value) { data_[at] = static_cast<std::byte>(value); }
  void nibbles(size_t at, unsigned high, unsigned low) { u8(at, high << 4 | low); }
  void u16(size_t at, unsigned value) { store_be(&data_[at], static_cast<uint16_t>(value)); }
  void u32(size_t at, uint32_t value) { store_be(&data_[at], value); }
  void u64(size_t at, uint64_t value) { store_be(&data_[at], value); }
  AttributeData& data() { return data_; }

 private:
  AttributeData data_{};
};

constexpr tl::unexpected kUnknown(MadStatus::kUnsupportedAttribute);
constexpr tl::unexpected kInvalid(MadStatus::kInvalidValue);

Attribute node_description(const Subnet&, const Node& node, uint32_t) {
  Fields fields;
  const std::string_view text =
      node.is_switch() ? std::string_view("Verbena virtual switch") : node.member->adapter.description;
  std::memcpy(fields.data().data(), text.data(), std::min(text.size(), kMaxDescriptionBytes));
  return fields.data();
}

Attribute node_info(const Subnet& subnet, const Node& node, uint32_t) {
  constexpr unsigned kAdapterType = 1, kSwitchType = 2;
  const uint64_t guid = node.is_switch() ? subnet.switch_guid() : node.member->adapter.guid;
  Fields fields;
  fields.u8(0, 1);  // BaseVersion
  fields.u8(1, 1);  // ClassVersion
  fields.u8(2, node.is_switch() ? kSwitchType : kAdapterType);
  fields.u8(3, node.is_switch() ? subnet.switch_ports() : 1);
  for (const size_t at : {4, 12, 20}) fields.u64(at, guid);  // system, node and port
  fields.u16(28, 1);                                         // PartitionCap
  fields.u8(36, node.entry_port);
  return fields.data();
}

Attribute switch_info(const Subnet&, const Node& node, uint32_t) {
  if (!node.is_switch()) return kUnknown;
  Fields fields;
  fields.u16(0, Subnet::kLastLid);  // LinearFDBCap
  fields.u16(6, Subnet::kLastLid);  // LinearFDBTop
  fields.u8(11, 18u << 3);          // LifeTimeValue
  fields.u16(14, 1);                // PartitionEnforcementCap
  fields.u8(16, 1u << 3);           // EnhancedPort0, of the subnet manager
  return fields.data();
}

struct PortStates {
  PortState logical;
  PhysicalState physical;
};

// The fields of PortInfo that every port has.
Fields port_fields(const Node& node, const LinkSpeed& speed, unsigned path_mtu, PortStates states) {
  Fields fields;
  fields.u8(28, node.entry_port);
  for (const size_t at : {29, 30, 31}) fields.u8(at, speed.width);
  fields.nibbles(32, speed.speed, states.logical);
  fields.nibbles(33, states.physical, kPolling);
  fields.nibbles(35, speed.speed, speed.speed);
  fields.nibbles(36, path_mtu, 0);  // NeighborMTU
  fields.nibbles(37, 1, 0);         // VLCap: VL0
  fields.nibbles(41, 0, path_mtu);  // MTUCap
  fields.nibbles(43, 1, 0);         // OperationalVLs
  fields.nibbles(62, speed.extended, speed.extended);
  fields.u8(63, speed.extended);
  return fields;
}

// The fields of a port with a LID: an adapter's, or the subnet manager's.
void put_end(Fields& fields, uint16_t lid, uint32_t capabilities) {
  fields.u64(8, kDefaultPrefix);
  fields.u16(16, lid);
  fields.u16(18, Subnet::kSwitchLid);
  fields.u32(20, capabilities);
  fields.u8(50, 1);  // GUIDCap
  fields.u8(51, kSubnetTimeout);
}

// PortInfo of an adapter's port or of the switch port that it is connected to: both have the same link.
Attribute link_port(const Node& node, const Member& member) {
  const Adapter& adapter = member.adapter;
  const LinkSpeed& speed = link_speed_of(adapter.megabits);
  const PortStates states = adapter.up ? PortStates{kActive, kLinkUp} : PortStates{kDown, kDisabled};
  Fields fields = port_fields(node, speed, adapter.path_mtu, states);
  const uint32_t capabilities = speed.extended != 0 ? kHasExtendedSpeeds : 0;
  if (node.is_switch()) {
    fields.u32(20, capabilities);
  } else {
    put_end(fields, member.lid, capabilities | kManagesConnections);
  }
  fields.u8(52, kResponseTime);
  return fields.data();
}

Attribute manager_port(const Node& node) {
  constexpr unsigned kFullMtu = 5;
  Fields fields = port_fields(node, link_speed_of(kAssumedMegabits), kFullMtu, {kActive, kLinkUp});
  put_end(fields, Subnet::kSwitchLid, kIsSubnetManager);
  fields.u8(52, kResponseTime);
  return fields.data();
}

// PortInfo of an unused switch port.
Attribute empty_port(const Node& node) {
  return port_fields(node, link_speed_of(kAssumedMegabits), 1, {kDown, kPolling}).data();
}

Attribute port_info(const Subnet& subnet, const Node& node, uint32_t port) {
  if (!node.is_switch()) {
    if (port > 1) return kInvalid;
    return link_port(node, *node.member);
  }
  if (port == 0) return manager_port(node);
  if (port > subnet.switch_ports()) return kInvalid;
  const Member* member = subnet.at_port(static_cast<uint8_t>(port));
  return member != nullptr ? link_port(node, *member) : empty_port(node);
}

Attribute guid_info(const Subnet& subnet, const Node& node, uint32_t block) {
  if (block != 0) return kInvalid;
  Fields fields;
  fields.u64(0, node.is_switch() ? subnet.switch_guid() : node.member->adapter.guid);
  return fields.data();
}

// The modifier's upper half is a switch's port, the lower half the block.
Attribute pkey_table(const Subnet& subnet, const Node& node, uint32_t modifier) {
  const uint32_t port = modifier >> 16;
  const uint32_t most = node.is_switch() ? subnet.switch_ports() : 1;
  if ((modifier & 0xffff) != 0 || port > most) return kInvalid;
  static_assert(kPkeysPerBlock * sizeof(uint16_t) == kAttributeBytes);
  Fields fields;
  fields.u16(0, roce::kDefaultPkey);
  return fields.data();
}

// All service levels use VL0, the only one.
Attribute sl_to_vl(const Subnet&, const Node&, uint32_t) {
  return Fields().data();
}

Attribute linear_forwarding(const Subnet& subnet, const Node& node, uint32_t block) {
  if (!node.is_switch()) return kUnknown;
  if (block > Subnet::kLastLid / kForwardingEntriesPerBlock) return kInvalid;
  Fields fields;
  fields.data().fill(std::byte{kNoPort});
  const auto put = [&](uint16_t lid, uint8_t port) {
    if (lid / kForwardingEntriesPerBlock == block) fields.u8(lid % kForwardingEntriesPerBlock, port);
  };
  put(Subnet::kSwitchLid, 0);
  for (const auto& [port, member] : subnet.members()) {
    if (member.shown) put(member.lid, port);
  }
  return fields.data();
}

Attribute sm_info(const Subnet& subnet, const Node& node, uint32_t) {
  if (!node.is_switch()) return kUnknown;
  Fields fields;
  fields.u64(0, subnet.switch_guid());
  fields.u32(16, subnet.activity());
  fields.nibbles(20, 0, kMasterManager);
  return fields.data();
}

struct Maker {
  uint16_t attribute;
  Attribute (*make)(const Subnet& subnet, const Node& node, uint32_t modifier);
};
constexpr Maker kMakers[] = {
    {kNodeDescription, node_description},
    {kNodeInfo, node_info},
    {kSwitchInfo, switch_info},
    {kGuidInfo, guid_info},
    {kPortInfo, port_info},
    {kPkeyTable, pkey_table},
    {kSlToVl, sl_to_vl},
    {kLinearForwarding, linear_forwarding},
    {kSmInfo, sm_info},
};

// Offsets in a packet with a directed route (14.2.1.2).
constexpr size_t kHopPointerAt = 6;
constexpr size_t kHopCountAt = 7;
constexpr size_t kSourceLidAt = 32;
constexpr size_t kSubnetDataAt = 64;
constexpr size_t kInitialPathAt = 128;
constexpr size_t kReturnPathAt = 192;
constexpr uint8_t kMaxHops = 63;

std::optional<Node> node_with(const Subnet& subnet, uint16_t lid) {
  if (lid == Subnet::kSwitchLid) return Node{nullptr, Subnet::kOwnPort};
  const Member* member = subnet.by_lid(lid);
  if (member == nullptr || !member->shown) return std::nullopt;
  return Node{member, 1};
}

// The node that a packet reaches by leaving `from` through this port.
std::optional<Node> next(const Subnet& subnet, const Node& from, uint8_t port) {
  const Member* member = from.is_switch() ? subnet.at_port(port) : from.member;
  if (member == nullptr || !member->adapter.up) return std::nullopt;
  if (from.is_switch()) return Node{member, 1};
  if (port != 1) return std::nullopt;
  return Node{nullptr, member->switch_port};
}

// Follows the initial path and writes the return path. Only a switch forwards; an adapter can only send, as
// the first hop.
std::optional<Node> follow(const Subnet& subnet, Node node, const Mad& request, Mad& answer) {
  const uint8_t hops = request.u8(kHopCountAt);
  if (hops > kMaxHops) return std::nullopt;
  for (uint8_t hop = 1; hop <= hops; ++hop) {
    if (hop > 1 && !node.is_switch()) return std::nullopt;
    const auto there = next(subnet, node, request.u8(kInitialPathAt + hop));
    if (!there) return std::nullopt;
    node = *there;
    answer.set_u8(kReturnPathAt + hop, node.entry_port);
  }
  answer.set_u8(kHopPointerAt, 0);
  return node;
}

std::optional<Node> destination_of(const Subnet& subnet, const Mad& request, uint16_t lid, Mad& answer) {
  if (request.u8(kClassAt) != kClassSubnDirected) {
    // The permissive LID means the sending port.
    return lid == Subnet::kPermissiveLid || lid == 0 ? Node{&subnet.own(), 1} : node_with(subnet, lid);
  }
  const bool begins_by_lid = request.get<uint16_t>(kSourceLidAt) != Subnet::kPermissiveLid;
  const auto start = begins_by_lid && lid != Subnet::kPermissiveLid && lid != 0 ? node_with(subnet, lid)
                                                                                : Node{&subnet.own(), 1};
  return start ? follow(subnet, *start, request, answer) : std::nullopt;
}

}  // namespace

const LinkSpeed& link_speed_of(uint32_t megabits) {
  if (megabits == 0) megabits = kAssumedMegabits;
  for (const LinkSpeed& each : kLinkSpeeds) {
    if (megabits <= each.megabits) return each;
  }
  return *std::rbegin(kLinkSpeeds);
}

Attribute attribute_of(const Subnet& subnet, const Node& node, uint16_t attribute, uint32_t modifier) {
  for (const Maker& each : kMakers) {
    if (each.attribute == attribute) return each.make(subnet, node, modifier);
  }
  return kUnknown;
}

std::optional<Mad> answer_subnet_management(Subnet& subnet, const Mad& request, uint16_t lid) {
  const MadHeader header = header_of(request);
  if (header.is_response() || (header.method != kMethodGet && header.method != kMethodSet)) {
    return std::nullopt;
  }
  subnet.count_activity();
  Mad answer = begin_answer(request);
  const auto node = destination_of(subnet, request, lid, answer);
  if (!node) return std::nullopt;
  if (header.class_version != 1) {
    set_status(answer, MadStatus::kBadVersion);
  } else if (header.method == kMethodSet) {
    set_status(answer, MadStatus::kUnsupportedAttribute);
  } else {
    const Attribute found = attribute_of(subnet, *node, header.attribute, header.modifier);
    if (found) {
      std::ranges::copy(*found, answer.at(kSubnetDataAt));
    } else {
      set_status(answer, found.error());
    }
  }
  return answer;
}

}  // namespace verbena::mad
