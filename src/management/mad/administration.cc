// SPDX-License-Identifier: Apache-2.0
#include "management/mad/administration.h"

#include <algorithm>
#include <cstring>

#include "management/mad/records.h"
#include "management/mad/rmpp.h"

namespace verbena::mad {
namespace {

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
