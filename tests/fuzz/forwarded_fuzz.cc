// SPDX-License-Identifier: Apache-2.0
// A host that sends arbitrary datagrams, merged or not, to a process whose packets the agent forwards. The
// agent's head of a datagram is from the kernel; its bytes are the sender's. Promises: processing ends, and
// each piece becomes a packet or a counted drop. Every packet is for our slot and has a correct ICRC.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include <sys/socket.h>

#include "adapter/net/udp/receiver.h"
#include "adapter/net/udp/udp_port.h"
#include "control/protocol/messages.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"
#include "wire/roce/icrc.h"
#include "wire/roce/packet.h"

namespace verbena::net {
namespace {

using fuzz::Choices;

constexpr uint32_t kSlot = 3;
constexpr uint16_t kPort = roce::kUdpPort;

class Sorter final : public PacketHandler {
 public:
  void on_packet(const transport::IncomingPacket& incoming) override {
    ++packets;
    const roce::Qpn destination = incoming.packet.headers.destination;
    VERBENA_REQUIRE(destination.slot() == kSlot || destination == roce::kMulticastQpn);
    VERBENA_REQUIRE(incoming.packet.headers.info().exists());
    VERBENA_REQUIRE(incoming.packet.payload.size() <= protocol::kMaxForwardedBytes);
  }
  uint32_t packets = 0;
};

protocol::ForwardedDatagram head_from(Choices& choices) {
  protocol::ForwardedDatagram head{};
  head.magic = protocol::ForwardedDatagram::kMagic;
  const bool is_ipv4 = choices.yes();
  for (uint8_t* const address : {head.source, head.destination}) {
    if (is_ipv4) address[10] = address[11] = 0xff;
    address[0] = is_ipv4 ? 0 : 0xfd;
    address[15] = choices.byte();
  }
  head.source_port = 0xc123;
  head.segment_bytes = choices.yes() ? 0 : choices.number<uint16_t>() % 512;
  head.traffic_class = choices.byte();
  head.hop_limit = choices.byte();
  head.flow_label = choices.number<uint32_t>();
  if (choices.below(16) == 0) choices.fill(head);
  return head;
}

roce::IcrcFlow flow_of(const protocol::ForwardedDatagram& head) {
  roce::IcrcFlow flow;
  roce::Address source;
  std::ranges::copy(head.source, source.bytes.begin());
  flow.ipv6 = !source.is_ipv4();
  const size_t skipped = flow.ipv6 ? 0 : 12;
  std::copy(head.source + skipped, std::end(head.source), flow.source.begin());
  std::copy(head.destination + skipped, std::end(head.destination), flow.destination.begin());
  flow.source_port = head.source_port;
  flow.destination_port = kPort;
  return flow;
}

// One after the other, each with an ICRC that is right, mostly.
std::vector<std::byte> packets_from(Choices& choices, protocol::ForwardedDatagram& head) {
  std::vector<std::byte> all;
  do {
    roce::Headers headers;
    headers.opcode = choices.below(4) == 0
                         ? choices.byte()
                         : roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);
    headers.destination = choices.below(8) == 0 ? roce::Qpn(choices.number<uint32_t>())
                                                : roce::Qpn::in_slot(kSlot, choices.byte());
    headers.psn = roce::Psn(choices.byte());
    if (!headers.info().exists()) return all;
    std::vector<std::byte> packet(roce::kMaxHeaderBytes);
    packet.resize(roce::encode(headers, packet));
    packet.resize(packet.size() + choices.byte() / 4u * 4u);
    const ConstBytes covered = packet;
    roce::IcrcFlow flow = flow_of(head);
    const uint32_t right = roce::icrc_of(flow, 0, covered);
    packet.resize(packet.size() + roce::kIcrcBytes);
    roce::icrc_store(~right, packet.data() + covered.size());
    if (choices.below(8) == 0) packet[choices.number<uint16_t>() % packet.size()] ^= std::byte{1};
    if (head.segment_bytes != 0 && all.empty() && choices.yes())
      head.segment_bytes = static_cast<uint32_t>(packet.size());
    all.insert(all.end(), packet.begin(), packet.end());
  } while (head.segment_bytes != 0 && !choices.empty() && choices.below(4) != 0);
  if (choices.below(8) == 0) all.resize(choices.number<uint16_t>() % (all.size() + 1));
  return all;
}

uint64_t dropped(const PortCounters& counters) {
  uint64_t all = 0;
  for (const auto& count : counters.dropped) all += count;
  return all;
}

void check_splitter(Choices& choices) {
  PortCounters counters;
  DatagramSplitter splitter(kPort, kSlot, counters);
  Sorter sorter;
  while (!choices.empty()) {
    protocol::ForwardedDatagram head = head_from(choices);
    const std::vector<std::byte> bytes = packets_from(choices, head);
    DatagramOrigin origin;
    std::ranges::copy(head.source, origin.path.source.bytes.begin());
    std::ranges::copy(head.destination, origin.path.destination.bytes.begin());
    origin.source_port = head.source_port;
    origin.segment_bytes = head.segment_bytes;
    origin.has_destination = choices.below(16) != 0;
    const uint64_t before = sorter.packets + dropped(counters);
    const uint32_t pieces = splitter.split(sorter, origin, bytes);
    VERBENA_REQUIRE(pieces <= bytes.size() + 1);
    VERBENA_REQUIRE(sorter.packets + dropped(counters) - before <= pieces + 1u);
  }
}

// Sends datagrams through the socket. A message cut to less than a head ends the receiver's input.
void check_receiver(Choices& choices) {
  int ends[2];
  VERBENA_REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const UniqueFd agent(ends[0]);
  PortCounters counters;
  ForwardedReceiver receiver(UniqueFd(ends[1]), kPort, kSlot, counters);
  Sorter sorter;
  while (!choices.empty()) {
    protocol::ForwardedDatagram head = head_from(choices);
    std::vector<std::byte> message(sizeof head);
    const std::vector<std::byte> bytes = packets_from(choices, head);
    std::memcpy(message.data(), &head, sizeof head);
    message.insert(message.end(), bytes.begin(), bytes.end());
    if (choices.below(32) == 0) message.resize(choices.byte() % message.size());
    [[maybe_unused]] const ssize_t sent = ::send(agent.get(), message.data(), message.size(), MSG_NOSIGNAL);
    if (choices.below(4) == 0) receiver.receive(sorter, 16);
  }
  for (int rounds = 0; receiver.receive(sorter, 16) > 0; ++rounds) VERBENA_REQUIRE(rounds < 10'000);
}

}  // namespace
}  // namespace verbena::net

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace verbena::net;
  Choices choices(data, size);
  // Sockets are slow, so only some inputs use them, in a way that the fuzzer cannot choose.
  if (std::accumulate(data, data + size, 0u) % 32 == 0) {
    check_receiver(choices);
  } else {
    check_splitter(choices);
  }
  return 0;
}
