// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as a UDP payload: parsed or refused, and a parsed packet encodes to the same bytes.
#include <algorithm>
#include <vector>

#include "fuzz/require.h"
#include "wire/roce/icrc.h"
#include "wire/roce/packet.h"

namespace verbena::roce {
namespace {

std::vector<std::byte> encoded(const Packet& packet) {
  std::vector<std::byte> bytes(kMaxHeaderBytes);
  bytes.resize(encode(packet.headers, bytes));
  bytes.insert(bytes.end(), packet.payload.begin(), packet.payload.end());
  bytes.resize(bytes.size() + packet.headers.pad + kIcrcBytes);
  return bytes;
}

void check_packet(ConstBytes input) {
  const auto packet = parse(input);
  if (!packet) return;
  VERBENA_REQUIRE(packet->headers.info().exists());
  const auto bytes = encoded(*packet);
  VERBENA_REQUIRE(bytes.size() == input.size());
  const size_t headers = header_bytes(packet->headers.opcode);
  VERBENA_REQUIRE(packet->payload.data() == input.data() + headers);
  const auto again = parse(bytes);
  VERBENA_REQUIRE(again.has_value());
  VERBENA_REQUIRE(encoded(*again) == bytes);
}

void check_icrc(ConstBytes input, bool ipv6) {
  IcrcFlow flow;
  flow.ipv6 = ipv6;
  flow.source_port = 0xc123;
  flow.destination_port = kUdpPort;
  icrc_check(flow, input, 0);
  if (input.size() < kBthBytes + kIcrcBytes) return;
  std::vector<std::byte> bytes(input.begin(), input.end());
  const ConstBytes covered(bytes.data(), bytes.size() - kIcrcBytes);
  const auto identification = static_cast<uint16_t>(input.size() * 40503);
  icrc_store(~icrc_of(flow, identification, covered), bytes.data() + covered.size());
  VERBENA_REQUIRE(icrc_check(flow, bytes, identification) == IcrcCheck::kExact);
  const auto hidden = static_cast<uint16_t>(identification ^ 0x5a5a);
  const IcrcCheck without = icrc_check(flow, bytes, hidden);
  VERBENA_REQUIRE(without == (ipv6 ? IcrcCheck::kExact : IcrcCheck::kAcceptedForSomeIdentification));
  bytes[bytes.size() / 2] ^= std::byte{1};
  if (bytes.size() / 2 != 4) VERBENA_REQUIRE(icrc_check(flow, bytes, hidden) == IcrcCheck::kBad);
}

}  // namespace
}  // namespace verbena::roce

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const verbena::ConstBytes input(reinterpret_cast<const std::byte*>(data), size);
  verbena::roce::check_packet(input);
  for (const bool ipv6 : {false, true}) verbena::roce::check_icrc(input, ipv6);
  return 0;
}
