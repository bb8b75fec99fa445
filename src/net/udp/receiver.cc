// SPDX-License-Identifier: Apache-2.0
#include "net/udp/receiver.h"

#include <algorithm>
#include <cerrno>

#include <netinet/udp.h>

#include "net/udp/system_calls.h"
#include "roce/ip_header.h"

namespace verbena::net {
namespace {

// The reasons of parse() and those of the port have one order.
constexpr DropReason drop_reason(roce::ParseError error) {
  return static_cast<DropReason>(error);
}
static_assert(drop_reason(roce::ParseError::kTruncated) == DropReason::kTruncated);
static_assert(drop_reason(roce::ParseError::kUnknownOpcode) == DropReason::kUnknownOpcode);
static_assert(drop_reason(roce::ParseError::kBadVersion) == DropReason::kBadVersion);
static_assert(drop_reason(roce::ParseError::kBadPadding) == DropReason::kBadPadding);
static_assert(drop_reason(roce::ParseError::kUnexpectedPayload) == DropReason::kUnexpectedPayload);

}  // namespace

Receiver::Receiver(UniqueFd socket, uint16_t port, uint32_t slot, PortCounters& counters)
    : socket_(std::move(socket)),
      port_(port),
      slot_(slot),
      counters_(counters),
      buffers_(std::make_unique_for_overwrite<std::byte[]>(kMessages * kBufferBytes)) {
  for (uint32_t i = 0; i < kMessages; ++i) data_[i] = {buffers_.get() + i * kBufferBytes, kBufferBytes};
}

uint32_t Receiver::receive(PacketHandler& handler, uint32_t budget) {
  uint32_t packets = 0;
  while (packets < budget) {
    const uint32_t asked = std::min(wanted_, budget - packets);
    const uint32_t got = read(asked);
    uint32_t largest = 0;
    for (uint32_t i = 0; i < got; ++i) {
      const Origin origin = origin_of(messages_[i].msg_hdr);
      packets += split(handler, origin, {static_cast<std::byte*>(data_[i].iov_base), messages_[i].msg_len});
      largest = std::max(largest, messages_[i].msg_len);
    }
    adapt(asked, got, largest);
    if (got < asked || asked == 1) break;
  }
  return packets;
}

// How many datagrams to ask for next time. An idle socket is asked for one, so that finding nothing costs one
// failed call, and finding something costs none. While small ones keep coming, several are read at a time.
void Receiver::adapt(uint32_t asked, uint32_t got, uint32_t largest) {
  if (got < asked || largest >= kLargeMessage) {
    wanted_ = 1;
    streak_ = 0;
  } else if (++streak_ >= kStreak) {
    wanted_ = kMessages;
  }
}

void Receiver::prepare(uint32_t message) {
  msghdr& header = messages_[message].msg_hdr;
  header = {&names_[message],
            sizeof names_[message],
            &data_[message],
            1,
            controls_[message].bytes.data(),
            kControlBytes,
            0};
}

// Reads up to `wanted` datagrams; answers how many.
uint32_t Receiver::read(uint32_t wanted) {
  for (uint32_t i = 0; i < wanted; ++i) prepare(i);
  for (;;) {
    int got;
    if (wanted == 1) {
      const ssize_t bytes = system_calls::recvmsg(socket_.get(), &messages_[0].msg_hdr, MSG_DONTWAIT);
      messages_[0].msg_len = static_cast<uint32_t>(std::max<ssize_t>(bytes, 0));
      got = bytes < 0 ? -1 : 1;
    } else {
      got = system_calls::recvmmsg(socket_.get(), messages_.data(), wanted, MSG_DONTWAIT);
    }
    if (got >= 0) return static_cast<uint32_t>(got);
    if (errno != EINTR) return 0;
  }
}

Receiver::Origin Receiver::origin_of(msghdr& message) const {
  Origin origin;
  origin.path.source = address_of(*static_cast<const SocketAddress*>(message.msg_name));
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(&message, control)) {
    const auto is = [control](int level, int type) {
      return control->cmsg_level == level && control->cmsg_type == type;
    };
    if (is(IPPROTO_UDP, UDP_GRO)) {
      origin.segment_bytes = static_cast<uint32_t>(control_value<int>(control));
    } else if (is(IPPROTO_IPV6, IPV6_PKTINFO)) {
      const auto info = control_value<in6_pktinfo>(control);
      std::memcpy(origin.path.destination.bytes.data(), &info.ipi6_addr, 16);
      origin.path.interface_index = info.ipi6_ifindex;
      origin.has_destination = true;
    } else if (is(IPPROTO_IP, IP_PKTINFO)) {
      const auto info = control_value<in_pktinfo>(control);
      origin.path.destination = roce::Address::from_ipv4(reinterpret_cast<const uint8_t*>(&info.ipi_addr));
      origin.path.interface_index = static_cast<uint32_t>(info.ipi_ifindex);
      origin.has_destination = true;
    } else if (is(IPPROTO_IP, IP_TOS)) {
      origin.path.traffic_class = control_value<uint8_t>(control);
    } else if (is(IPPROTO_IPV6, IPV6_TCLASS)) {
      origin.path.traffic_class = static_cast<uint8_t>(control_value<int>(control));
    } else if (is(IPPROTO_IP, IP_TTL) || is(IPPROTO_IPV6, IPV6_HOPLIMIT)) {
      origin.path.hop_limit = static_cast<uint8_t>(control_value<int>(control));
    } else if (is(IPPROTO_IPV6, kIpv6Flowinfo)) {
      origin.path.flow_label = ntohl(control_value<uint32_t>(control)) & 0xfffff;
    }
  }
  const uint16_t source_port = port_of(*static_cast<const SocketAddress*>(message.msg_name));
  origin.flow = roce::icrc_flow(origin.path, source_port, port_);
  return origin;
}

// Takes a datagram apart into the packets that GRO has merged; answers how many they were.
uint32_t Receiver::split(PacketHandler& handler, const Origin& origin, ConstBytes datagram) {
  const size_t step = origin.segment_bytes != 0 ? origin.segment_bytes : datagram.size();
  uint32_t index = 0;
  do {
    const size_t length = std::min(step, datagram.size());
    take(handler, origin, datagram.first(length), index++);
    datagram = datagram.subspan(length);
  } while (!datagram.empty());
  return index;
}

// One packet. `index` is its place in the merged datagram, which a sender like us has given it as
// identification.
void Receiver::take(PacketHandler& handler, const Origin& origin, ConstBytes udp_payload, uint32_t index) {
  ++counters_.received_packets;
  counters_.received_bytes += udp_payload.size();
  const auto packet = roce::parse(udp_payload);
  if (!packet) return drop(drop_reason(packet.error()));
  if (!origin.has_destination ||
      roce::icrc_check(origin.flow, udp_payload, static_cast<uint16_t>(index)) == roce::IcrcCheck::kBad) {
    return drop(DropReason::kBadIcrc);
  }
  const roce::Qpn destination = packet->headers.destination;
  if (destination.slot() != slot_ && destination != roce::kMulticastQpn)
    return drop(DropReason::kForeignSlot);
  handler.on_packet({*packet, origin.path, static_cast<uint32_t>(udp_payload.size())});
}

}  // namespace verbena::net
