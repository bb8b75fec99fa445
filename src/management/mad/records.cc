// SPDX-License-Identifier: Apache-2.0
#include "management/mad/records.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "management/mad/attributes.h"
#include "wire/roce/packet.h"

namespace verbena::mad {
namespace {

using Emit = std::function<bool(ConstBytes record)>;

class Record {
 public:
  explicit Record(size_t size) : size_(size) {}

  void u8(size_t at, unsigned value) { bytes_[at] = static_cast<std::byte>(value); }
  void u16(size_t at, unsigned value) { store_be(&bytes_[at], static_cast<uint16_t>(value)); }
  void put(size_t at, ConstBytes data) { std::memcpy(&bytes_[at], data.data(), data.size()); }
  ConstBytes whole() const { return ConstBytes(bytes_).first(size_); }

 private:
  std::array<std::byte, kMaxRecordBytes> bytes_{};
  const size_t size_;
};

struct NodeAt {
  Node node;
  uint16_t lid;
};

std::vector<NodeAt> nodes_of(const Subnet& subnet) {
  std::vector<NodeAt> nodes{{{nullptr, 0}, Subnet::kSwitchLid}};
  for (const auto& [port, member] : subnet.members()) {
    if (member.shown) nodes.push_back({{&member, 1}, member.lid});
  }
  return nodes;
}

// Builds a record from an attribute of subnet management, with its node's LID in front.
Record record_of(size_t size, const NodeAt& at, const Attribute& attribute, size_t data_at,
                 size_t data_bytes) {
  Record record(size);
  record.u16(0, at.lid);
  record.put(data_at, ConstBytes(attribute.data).first(data_bytes));
  return record;
}

void make_node_records(const Subnet& subnet, const Emit& emit) {
  for (const NodeAt& at : nodes_of(subnet)) {
    auto record = record_of(108, at, attribute_of(subnet, at.node, kNodeInfo, 0), 4, kNodeInfoBytes);
    record.put(44, attribute_of(subnet, at.node, kNodeDescription, 0).data);
    if (!emit(record.whole())) return;
  }
}

void make_port_info_records(const Subnet& subnet, const Emit& emit) {
  for (const NodeAt& at : nodes_of(subnet)) {
    const uint8_t first = at.node.is_switch() ? 0 : 1;
    const uint8_t last = at.node.is_switch() ? subnet.switch_ports() : 1;
    for (unsigned port = first; port <= last; ++port) {
      auto record = record_of(68, at, attribute_of(subnet, at.node, kPortInfo, port), 4, kAttributeBytes);
      record.u8(2, port);
      if (!emit(record.whole())) return;
    }
  }
}

void make_switch_info_records(const Subnet& subnet, const Emit& emit) {
  const NodeAt at{{nullptr, 0}, Subnet::kSwitchLid};
  emit(record_of(24, at, attribute_of(subnet, at.node, kSwitchInfo, 0), 4, kSwitchInfoBytes).whole());
}

void make_sm_info_records(const Subnet& subnet, const Emit& emit) {
  const NodeAt at{{nullptr, 0}, Subnet::kSwitchLid};
  emit(record_of(28, at, attribute_of(subnet, at.node, kSmInfo, 0), 4, kSmInfoBytes).whole());
}

void make_forwarding_records(const Subnet& subnet, const Emit& emit) {
  const NodeAt at{{nullptr, 0}, Subnet::kSwitchLid};
  for (unsigned block = 0; block <= Subnet::kLastLid / kAttributeBytes; ++block) {
    auto record =
        record_of(72, at, attribute_of(subnet, at.node, kLinearForwarding, block), 8, kAttributeBytes);
    record.u16(2, block);
    if (!emit(record.whole())) return;
  }
}

void make_guid_info_records(const Subnet& subnet, const Emit& emit) {
  for (const NodeAt& at : nodes_of(subnet)) {
    const auto record = record_of(72, at, attribute_of(subnet, at.node, kGuidInfo, 0), 8, kAttributeBytes);
    if (!emit(record.whole())) return;
  }
}

void make_pkey_records(const Subnet& subnet, const Emit& emit) {
  for (const NodeAt& at : nodes_of(subnet)) {
    auto record = record_of(72, at, attribute_of(subnet, at.node, kPkeyTable, 0), 8, kAttributeBytes);
    record.u8(4, at.node.is_switch() ? 0 : 1);
    if (!emit(record.whole())) return;
  }
}

void make_link_records(const Subnet& subnet, const Emit& emit) {
  const auto make = [&](uint16_t from, uint8_t from_port, uint16_t to, uint8_t to_port) {
    Record record(8);
    record.u16(0, from);
    record.u8(2, from_port);
    record.u8(3, to_port);
    record.u16(4, to);
    return emit(record.whole());
  };
  for (const auto& [port, member] : subnet.members()) {
    if (!member.shown || !member.adapter.up) continue;
    if (!make(Subnet::kSwitchLid, port, member.lid, 1)) return;
    if (!make(member.lid, 1, Subnet::kSwitchLid, port)) return;
  }
}

// ---- paths

struct PathEnd {
  uint64_t guid;
  uint16_t lid;
  uint8_t path_mtu;
  uint32_t megabits;
};

std::vector<PathEnd> path_ends(const Subnet& subnet) {
  constexpr uint8_t kFullMtu = 5;
  std::vector<PathEnd> ends{{subnet.switch_guid(), Subnet::kSwitchLid, kFullMtu, 0}};
  for (const auto& [port, member] : subnet.members()) {
    ends.push_back({member.adapter.guid, member.lid, member.adapter.path_mtu, member.adapter.megabits});
  }
  return ends;
}

ConstBytes gid_bytes(const roce::Address& gid) {
  return std::as_bytes(std::span(gid.bytes));
}

Record path_record(const PathEnd& from, const PathEnd& to) {
  constexpr unsigned kExactly = 2u << 6;
  constexpr unsigned kLifeTime = 18;
  constexpr unsigned kReversibleAndOne = 0x81;
  const roce::Address source = default_gid(from.guid), destination = default_gid(to.guid);
  Record record(64);
  record.put(kDestinationInPathRecord, gid_bytes(destination));
  record.put(24, gid_bytes(source));
  record.u16(40, to.lid);
  record.u16(42, from.lid);
  record.u8(49, kReversibleAndOne);
  record.u16(50, roce::kDefaultPkey);
  const LinkSpeed& there = link_speed_of(to.megabits);
  const LinkSpeed& here = link_speed_of(from.megabits);
  record.u8(54, kExactly | std::min(from.path_mtu, to.path_mtu));
  record.u8(55, kExactly | (here.megabits < there.megabits ? here.rate : there.rate));
  record.u8(56, kExactly | kLifeTime);
  return record;
}

void make_path_records(const Subnet& subnet, const Emit& emit) {
  const auto ends = path_ends(subnet);
  for (const PathEnd& from : ends) {
    for (const PathEnd& to : ends) {
      if (!emit(path_record(from, to).whole())) return;
    }
  }
}

// ---- components that queries may match

constexpr Component kNodeComponents[] = {
    {0, 0, 16},   {2, 32, 8},   {3, 40, 8},    {4, 48, 8},    {5, 56, 8},   {6, 64, 64},   {7, 128, 64},
    {8, 192, 64}, {9, 256, 16}, {10, 272, 16}, {11, 288, 32}, {12, 320, 8}, {13, 328, 24}, {14, 352, 512},
};
constexpr Component kPortInfoComponents[] = {
    {0, 0, 16}, {1, 16, 8}, {4, 96, 64}, {5, 160, 16}, {6, 176, 16},
};
constexpr Component kLidComponents[] = {{0, 0, 16}};
constexpr Component kBlockComponents[] = {{0, 0, 16}, {1, 16, 16}};
constexpr Component kGuidInfoComponents[] = {{0, 0, 16}, {1, 16, 8}};
constexpr Component kPkeyComponents[] = {{0, 0, 16}, {1, 16, 16}, {2, 32, 8}};
constexpr Component kSmInfoComponents[] = {{0, 0, 16}, {2, 32, 64}, {5, 192, 4}, {6, 196, 4}};
constexpr Component kLinkComponents[] = {{0, 0, 16}, {1, 16, 8}, {2, 24, 8}, {3, 32, 16}};
// P_Keys are compared without their membership bit.
constexpr Component kPathComponents[] = {
    {2, 64, 128}, {3, 192, 128}, {4, 320, 16}, {5, 336, 16},  {6, 352, 1},
    {8, 364, 20}, {9, 376, 8},   {10, 384, 8}, {13, 401, 15}, {15, 428, 4},
};

constexpr RecordKind kKinds[] = {
    {0x0011, 108, kNodeComponents, make_node_records},
    {kPortInfoRecord, 68, kPortInfoComponents, make_port_info_records},
    {0x0014, 24, kLidComponents, make_switch_info_records},
    {0x0015, 72, kBlockComponents, make_forwarding_records},
    {0x0018, 28, kSmInfoComponents, make_sm_info_records},
    {0x0020, 8, kLinkComponents, make_link_records},
    {0x0030, 72, kGuidInfoComponents, make_guid_info_records},
    {0x0033, 72, kPkeyComponents, make_pkey_records},
    {kPathRecord, 64, kPathComponents, make_path_records},
};

}  // namespace

const RecordKind* record_kind(uint16_t attribute) {
  const auto* found = std::ranges::find(kKinds, attribute, &RecordKind::attribute);
  return found != std::end(kKinds) ? found : nullptr;
}

}  // namespace verbena::mad
