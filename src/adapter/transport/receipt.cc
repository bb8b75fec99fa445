// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/receipt.h"

#include "adapter/transport/incast_bits.h"

namespace verbena::transport {

std::optional<Receipt> Receipt::read(ConstBytes payload) {
  if (payload.size() < kBytes) return std::nullopt;
  const auto word = load_be<uint32_t>(payload.data());
  Receipt receipt;
  receipt.expected = roce::Psn(word);
  receipt.incast = incast_of_bits(word);
  receipt.missing = load_be<uint32_t>(&payload[4]);
  return receipt;
}

void Receipt::write(std::array<std::byte, kBytes>& payload) const {
  store_be<uint32_t>(payload.data(), expected.value() | incast_bits(incast));
  store_be(&payload[4], missing);
}

}  // namespace verbena::transport
