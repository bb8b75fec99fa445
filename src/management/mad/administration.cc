// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "management/mad/rmpp.h"
#include "management/mad/subnet_management.h"
#include "wire/roce/packet.h"

namespace verbena::mad {

namespace {

constexpr size_t kMaxRecordBytes = 112;

// A field of a record that a query may select by: its bit in the query's component mask, and its position in
// the record (IBTA volume 1, 15.2.5).
struct Component {
  uint8_t mask_bit;
  uint16_t at;    // in bits, from the most significant bit of the first byte
  uint16_t bits;  // length
};

// A type of record that subnet administration returns.
struct RecordKind {
  uint16_t attribute;
  uint16_t bytes;  // length of a record; in a table each record begins at a multiple of eight bytes
  std::span<const Component> components;
  // Builds each record of this type and passes it to `emit`, until `emit` returns false.
  void (*make)(const Subnet& subnet, const std::function<bool(ConstBytes record)>& emit);

  size_t stride() const { return (bytes + size_t{7}) / 8 * 8; }
};

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

constexpr NodeAt kSwitch{{nullptr, 0}, Subnet::kSwitchLid};

std::vector<NodeAt> nodes_of(const Subnet& subnet) {
  std::vector<NodeAt> nodes{kSwitch};
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
  record.put(data_at, ConstBytes(attribute.value()).first(data_bytes));
  return record;
}

void make_node_records(const Subnet& subnet, const Emit& emit) {
  for (const NodeAt& at : nodes_of(subnet)) {
    auto record = record_of(108, at, attribute_of(subnet, at.node, kNodeInfo, 0), 4, kNodeInfoBytes);
    record.put(44, attribute_of(subnet, at.node, kNodeDescription, 0).value());
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
  emit(record_of(24, kSwitch, attribute_of(subnet, kSwitch.node, kSwitchInfo, 0), 4, kSwitchInfoBytes)
           .whole());
}

void make_sm_info_records(const Subnet& subnet, const Emit& emit) {
  emit(record_of(28, kSwitch, attribute_of(subnet, kSwitch.node, kSmInfo, 0), 4, kSmInfoBytes).whole());
}

void make_forwarding_records(const Subnet& subnet, const Emit& emit) {
  for (unsigned block = 0; block <= Subnet::kLastLid / kAttributeBytes; ++block) {
    auto record = record_of(72, kSwitch, attribute_of(subnet, kSwitch.node, kLinearForwarding, block), 8,
                            kAttributeBytes);
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

// The record type with this attribute ID; nullptr if there is none.
const RecordKind* record_kind(uint16_t attribute) {
  const auto* found = std::ranges::find(kKinds, attribute, &RecordKind::attribute);
  return found != std::end(kKinds) ? found : nullptr;
}

constexpr size_t kAttributeOffsetAt = 44;
constexpr size_t kComponentMaskAt = 48;
constexpr size_t kOwnHeaderBytes = 20;  // counted in RMPP's length
constexpr uint8_t kClassVersion = 2;

constexpr size_t kMaxRecords = 4096;

// Pairs of components in path records that compare: "greater than", "less than", "exactly", "largest
// available" (table 203).
struct Selection {
  uint8_t selector_bit, value_bit;
  uint8_t at;
};
constexpr Selection kPathSelections[] = {{16, 17, 54}, {18, 19, 55}, {20, 21, 56}};

// "At least these capabilities" (15.2.5.3).
constexpr uint8_t kCapabilityBit = 7;
constexpr uint32_t kMatchCapabilities = 1u << 31;

bool bit_at(ConstBytes bytes, size_t at) {
  return (static_cast<unsigned>(bytes[at / 8]) >> (7 - at % 8) & 1) != 0;
}

bool has_same(const Component& component, ConstBytes one, ConstBytes other) {
  if (component.at % 8 == 0 && component.bits % 8 == 0) {
    return std::memcmp(&one[component.at / 8], &other[component.at / 8], component.bits / 8) == 0;
  }
  for (size_t i = component.at; i < size_t{component.at} + component.bits; ++i) {
    if (bit_at(one, i) != bit_at(other, i)) return false;
  }
  return true;
}

bool satisfies(const Selection& selection, ConstBytes wanted, ConstBytes record) {
  const auto value = [&](ConstBytes from) { return static_cast<unsigned>(from[selection.at]) & 0x3f; };
  switch (static_cast<unsigned>(wanted[selection.at]) >> 6) {
    case 0:
      return value(record) > value(wanted);
    case 1:
      return value(record) < value(wanted);
    case 2:
      return value(record) == value(wanted);
    default:
      return true;
  }
}

class Query {
 public:
  Query(const RecordKind& kind, const Mad& request)
      : kind_(kind),
        mask_(request.get<uint64_t>(kComponentMaskAt)),
        modifier_(request.get<uint32_t>(kModifierAt)),
        wanted_(ConstBytes(request.bytes).subspan(kAdministrationDataAt)) {}

  bool matches(ConstBytes record) const {
    for (const Component& component : kind_.components) {
      if (names(component.mask_bit) && !has_same(component, wanted_, record)) return false;
    }
    return matches_path(record) && matches_capabilities(record);
  }

 private:
  bool names(uint8_t bit) const { return (mask_ >> bit & 1) != 0; }

  bool matches_path(ConstBytes record) const {
    if (kind_.attribute != kPathRecord) return true;
    return std::ranges::all_of(kPathSelections, [&](const Selection& each) {
      return !names(each.selector_bit) || !names(each.value_bit) || satisfies(each, wanted_, record);
    });
  }

  bool matches_capabilities(ConstBytes record) const {
    if (kind_.attribute != kPortInfoRecord || !names(kCapabilityBit)) return true;
    const auto of = [](ConstBytes from) { return load_be<uint32_t>(&from[kCapabilitiesInPortInfoRecord]); };
    const bool at_least = (modifier_ & kMatchCapabilities) != 0;
    return at_least ? (of(record) & of(wanted_)) == of(wanted_) : of(record) == of(wanted_);
  }

  const RecordKind& kind_;
  const uint64_t mask_;
  const uint32_t modifier_;
  const ConstBytes wanted_;
};

std::vector<std::byte> whole(const Mad& mad) {
  return {mad.bytes.begin(), mad.bytes.end()};
}

std::vector<std::byte> refusal(const Mad& request, MadStatus status) {
  Mad answer = begin_answer(request, status);
  answer.set(kAttributeOffsetAt, uint16_t{0});
  std::fill(answer.bytes.begin() + kAdministrationDataAt, answer.bytes.end(), std::byte{});
  return whole(answer);
}

std::vector<std::byte> class_port_info(const Mad& request) {
  std::vector<std::byte> answer = refusal(request, MadStatus::kSuccess);
  answer[kAdministrationDataAt] = std::byte{1};
  answer[kAdministrationDataAt + 1] = std::byte{kClassVersion};
  answer[kAdministrationDataAt + 7] = std::byte{kResponseTime};
  return answer;
}

// The matching records in table form. `overflows`: a limit was exceeded.
struct Found {
  std::vector<std::byte> table;
  size_t count = 0;
  bool overflows = false;
};

Found find(const Subnet& subnet, const RecordKind& kind, const Mad& request) {
  const Query query(kind, request);
  Found found;
  kind.make(subnet, [&](ConstBytes record) {
    if (!query.matches(record)) return true;
    found.overflows = found.count == kMaxRecords || found.table.size() + kind.stride() > kMaxTableBytes;
    if (found.overflows) return false;
    const size_t at = found.table.size();
    found.table.resize(at + kind.stride());
    std::ranges::copy(record, found.table.begin() + static_cast<ptrdiff_t>(at));
    ++found.count;
    return true;
  });
  return found;
}

std::vector<std::byte> one_record(const Mad& request, const RecordKind& kind, const Found& found) {
  std::vector<std::byte> answer = refusal(request, MadStatus::kSuccess);
  store_be(&answer[kAttributeOffsetAt], static_cast<uint16_t>(kind.stride() / 8));
  std::ranges::copy(found.table, answer.begin() + kAdministrationDataAt);
  return answer;
}

std::vector<std::byte> table(const Mad& request, const RecordKind& kind, const Found& found) {
  std::vector<std::byte> answer = refusal(request, MadStatus::kSuccess);
  answer[kRmppVersionAt] = std::byte{kRmppVersion};
  answer[kRmppTypeAt] = static_cast<std::byte>(RmppType::kData);
  answer[kRmppFlagsAt] = std::byte{kRmppActive | kRmppFirst | kRmppLast};
  answer[kRmppStatusAt] = std::byte{};
  store_be(&answer[kRmppSegmentAt], uint32_t{1});
  store_be(&answer[kRmppLengthAt], static_cast<uint32_t>(kOwnHeaderBytes + found.table.size()));
  store_be(&answer[kAttributeOffsetAt], static_cast<uint16_t>(kind.stride() / 8));
  answer.resize(kAdministrationDataAt);
  answer.insert(answer.end(), found.table.begin(), found.table.end());
  return answer;
}

}  // namespace

std::optional<std::vector<std::byte>> answer_administration(const Subnet& subnet, const Mad& request) {
  const MadHeader header = header_of(request);
  if (header.is_response()) return std::nullopt;
  if (header.class_version != kClassVersion) return refusal(request, MadStatus::kBadVersion);
  const bool is_table = header.method == kMethodGetTable;
  if (header.method != kMethodGet && !is_table) return refusal(request, MadStatus::kUnsupportedMethod);
  if (header.attribute == kAttributeClassPortInfo && !is_table) return class_port_info(request);
  const RecordKind* kind = record_kind(header.attribute);
  if (kind == nullptr) return refusal(request, MadStatus::kUnsupportedAttribute);
  const Found found = find(subnet, *kind, request);
  if (found.overflows) return refusal(request, MadStatus::kNoResources);
  if (is_table) return table(request, *kind, found);
  if (found.count == 0) return refusal(request, MadStatus::kNoRecords);
  if (found.count > 1) return refusal(request, MadStatus::kTooManyRecords);
  return one_record(request, *kind, found);
}

std::optional<roce::Address> wanted_destination(const Mad& request) {
  constexpr uint8_t kDestinationBit = 2;
  const MadHeader header = header_of(request);
  const bool asks = header.management_class == kClassSubnAdministration && header.attribute == kPathRecord &&
                    (request.get<uint64_t>(kComponentMaskAt) >> kDestinationBit & 1) != 0;
  if (!asks || header.is_response()) return std::nullopt;
  roce::Address gid;
  std::memcpy(gid.bytes.data(), request.at(kAdministrationDataAt + kDestinationInPathRecord),
              gid.bytes.size());
  return gid;
}

}  // namespace verbena::mad
