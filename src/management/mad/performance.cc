// SPDX-License-Identifier: Apache-2.0
#include "management/mad/performance.h"

#include <algorithm>
#include <limits>

namespace verbena::mad {
namespace {

constexpr uint16_t kPortCounters = 0x0012;
constexpr uint16_t kPortCountersExtended = 0x001d;

constexpr size_t kDataAt = 64;
constexpr size_t kDataBytes = kMadBytes - kDataAt;
constexpr size_t kPortSelectAt = kDataAt + 1;
constexpr size_t kCounterSelectAt = kDataAt + 2;
constexpr uint8_t kAllPorts = 0xff;

// ClassPortInfo's CapabilityMask for this class (16.1.3.1).
constexpr uint16_t kSelectsAllPorts = 1u << 8;
constexpr uint16_t kHasExtendedCounters = 1u << 9;

// A field of an attribute: offset, length, and its bit in CounterSelect.
struct Field {
  uint8_t at;
  uint8_t bytes;
  uint8_t bit;
  uint64_t PortCounters::*counter;
};
// The counters of PortCounters saturate.
constexpr Field kFields[] = {
    {6, 1, 2, &PortCounters::link_downed},        {8, 2, 3, &PortCounters::receive_errors},
    {14, 2, 6, &PortCounters::send_discards},     {24, 4, 12, &PortCounters::sent_words},
    {28, 4, 13, &PortCounters::received_words},   {32, 4, 14, &PortCounters::sent_packets},
    {36, 4, 15, &PortCounters::received_packets},
};
constexpr Field kExtendedFields[] = {
    {8, 8, 0, &PortCounters::sent_words},      {16, 8, 1, &PortCounters::received_words},
    {24, 8, 2, &PortCounters::sent_packets},   {32, 8, 3, &PortCounters::received_packets},
    {40, 8, 4, &PortCounters::unicast_sent},   {48, 8, 5, &PortCounters::unicast_received},
    {56, 8, 6, &PortCounters::multicast_sent}, {64, 8, 7, &PortCounters::multicast_received},
};

void put(Mad& mad, const Field& field, uint64_t value) {
  const unsigned bits = field.bytes * 8u;
  const uint64_t most = bits == 64 ? std::numeric_limits<uint64_t>::max() : (uint64_t{1} << bits) - 1;
  value = byteswap(std::min(value, most)) >> (64 - bits);
  std::memcpy(mad.at(kDataAt + field.at), &value, field.bytes);
}

void put_class_port_info(Mad& answer) {
  answer.set_u8(kDataAt, 1);      // BaseVersion
  answer.set_u8(kDataAt + 1, 1);  // ClassVersion
  answer.set(kDataAt + 2, static_cast<uint16_t>(kSelectsAllPorts | kHasExtendedCounters));
  answer.set_u8(kDataAt + 7, kResponseTime);
}

void clear_data(Mad& answer) {
  std::ranges::fill(std::span(answer.bytes).subspan(kDataAt, kDataBytes), std::byte{});
}

}  // namespace

PortCounters PortCounters::seen_from_peer() const {
  PortCounters other;
  other.sent_words = received_words;
  other.received_words = sent_words;
  other.sent_packets = received_packets;
  other.received_packets = sent_packets;
  other.unicast_sent = unicast_received;
  other.unicast_received = unicast_sent;
  other.multicast_sent = multicast_received;
  other.multicast_received = multicast_sent;
  other.link_downed = link_downed;
  return other;
}

Mad Performance::answer(const Mad& request, uint8_t port, const PortCounters& now, bool may_set) {
  const MadHeader header = header_of(request);
  const uint8_t asked_port = request.u8(kPortSelectAt);
  const auto selected = request.get<uint16_t>(kCounterSelectAt);
  const bool is_set = header.method == kMethodSet;
  Mad answer = begin_answer(request);
  const auto refuse = [&](MadStatus status) {
    set_status(answer, status);
    return answer;
  };
  if (header.class_version != 1) return refuse(MadStatus::kBadVersion);
  if (header.method != kMethodGet && !is_set) return refuse(MadStatus::kUnsupportedMethod);
  if (header.attribute == kAttributeClassPortInfo && !is_set) {
    clear_data(answer);
    put_class_port_info(answer);
    return answer;
  }
  const bool is_extended = header.attribute == kPortCountersExtended;
  if (!is_extended && header.attribute != kPortCounters) return refuse(MadStatus::kUnsupportedAttribute);
  if (is_set && !may_set) return refuse(MadStatus::kUnsupportedAttribute);
  if (asked_port != port && asked_port != kAllPorts) return refuse(MadStatus::kInvalidValue);
  clear_data(answer);
  answer.set_u8(kPortSelectAt, asked_port);
  if (is_set) answer.set(kCounterSelectAt, selected);
  PortCounters& base = is_extended ? extended_base_ : base_;
  const std::span<const Field> fields = is_extended ? std::span<const Field>(kExtendedFields) : kFields;
  for (const Field& field : fields) {
    const uint64_t value = now.*field.counter;
    uint64_t& from = base.*field.counter;
    if (is_set && (selected >> field.bit & 1) != 0) from = value;
    put(answer, field, value >= from ? value - from : value);  // lower: of a new device of the same name
  }
  return answer;
}

}  // namespace verbena::mad
