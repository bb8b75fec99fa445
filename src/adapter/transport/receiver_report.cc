// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/receiver_report.h"

#include "adapter/transport/incast_bits.h"

namespace verbena::transport {

std::optional<ReceiverReport> ReceiverReport::read(ConstBytes payload) {
  if (payload.size() < kBytes) return std::nullopt;
  const auto word = load_be<uint32_t>(payload.data());
  ReceiverReport report;
  report.expected = roce::Psn(word);
  report.incast = incast_of_bits(word);
  report.missing = load_be<uint32_t>(&payload[4]);
  return report;
}

void ReceiverReport::write(std::array<std::byte, kBytes>& payload) const {
  store_be<uint32_t>(payload.data(), expected.value() | incast_bits(incast));
  store_be(&payload[4], missing);
}

}  // namespace verbena::transport
