// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/receiver.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include <netinet/in.h>
#include <netinet/udp.h>

#include "adapter/net/udp/system_calls.h"
#include "wire/roce/ip_header.h"

namespace verbena::net {

namespace {

// Converts an error of parse(): both enums have these reasons in the same order.
constexpr DropReason drop_reason(roce::ParseError error) {
  return static_cast<DropReason>(error);
}
static_assert(drop_reason(roce::ParseError::kTruncated) == DropReason::kTruncated);
static_assert(drop_reason(roce::ParseError::kUnknownOpcode) == DropReason::kUnknownOpcode);
static_assert(drop_reason(roce::ParseError::kBadVersion) == DropReason::kBadVersion);
static_assert(drop_reason(roce::ParseError::kBadPadding) == DropReason::kBadPadding);
static_assert(drop_reason(roce::ParseError::kUnexpectedPayload) == DropReason::kUnexpectedPayload);

// Whether the ICRC of a reassembled datagram is that of a packet that may be fragmented. A sender that does
// not know the identification of its datagrams computes it for one that must not be.
bool is_right_for_fragments(roce::IcrcFlow flow, ConstBytes datagram) {
  flow.may_fragment = true;
  return roce::icrc_check(flow, datagram, 0) != roce::IcrcCheck::kBad;
}

constexpr size_t kPageBytes = 4096;
constexpr size_t kPlace = kPageBytes / 2;

size_t whole_pages(size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Places buffers in the middle of a page. The kernel's packets mostly begin at or near the beginning of a
// page. Allocations of this size begin at offset 16, to which the kernel's copy is twenty times slower on
// some CPUs (base/bulk_copy.h; measured: 2 and 43 GB/s).
std::byte* place_in(std::byte* allocated) {
  const size_t at = std::bit_cast<uintptr_t>(allocated) % kPageBytes;
  return allocated + (kPageBytes + kPlace - at) % kPageBytes;
}

}  // namespace

DatagramOrigin origin_of(msghdr& message) {
  DatagramOrigin origin;
  const auto& name = *static_cast<const SocketAddress*>(message.msg_name);
  origin.path.source = address_of(name);
  origin.source_port = port_of(name);
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
    } else if (is(IPPROTO_IP, kIpReceiveFragmentSize)) {
      origin.reassembled = true;
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
  return origin;
}

uint32_t DatagramSplitter::split(PacketHandler& handler, const DatagramOrigin& origin, ConstBytes datagram) {
  roce::IcrcFlow flow = roce::icrc_flow(origin.path, origin.source_port, port_);
  if (origin.reassembled) flow.may_fragment = is_right_for_fragments(flow, datagram);
  roce::IcrcChecker icrc(flow);
  const size_t step = origin.segment_bytes != 0 ? origin.segment_bytes : datagram.size();
  uint32_t index = 0;
  do {
    const size_t length = std::min(step, datagram.size());
    take(handler, origin, icrc, datagram.first(length), index++);
    datagram = datagram.subspan(length);
  } while (!datagram.empty());
  return index;
}

// Handles one packet. `index` is its place in the merged datagram, which Verbena's senders use as its
// identification.
void DatagramSplitter::take(PacketHandler& handler, const DatagramOrigin& origin, roce::IcrcChecker& icrc,
                            ConstBytes udp_payload, uint32_t index) {
  ++counters_.received_packets;
  counters_.received_bytes += udp_payload.size();
  roce::Packet packet;
  if (const auto error = roce::parse(udp_payload, packet)) return drop(drop_reason(*error));
  if (!origin.has_destination ||
      icrc.check(udp_payload, static_cast<uint16_t>(index)) == roce::IcrcCheck::kBad) {
    return drop(DropReason::kBadIcrc);
  }
  const roce::Qpn destination = packet.headers.destination;
  if (destination.slot() != slot_ && destination != roce::kMulticastQpn)
    return drop(DropReason::kForeignSlot);
  handler.on_packet({.packet = packet,
                     .path = origin.path,
                     .udp_bytes = static_cast<uint32_t>(udp_payload.size()),
                     .source_port = origin.source_port});
}

void ReadAhead::adapt(uint32_t asked, uint32_t got, uint32_t largest) {
  if (got < asked || largest >= kLargeMessage) {
    wanted_ = 1;
    streak_ = 0;
  } else if (++streak_ >= kStreak) {
    wanted_ = DatagramBatch::kMax;
  }
}

DatagramBatch::DatagramBatch(size_t longest)
    : buffers_(std::make_unique_for_overwrite<std::byte[]>(kMax * whole_pages(longest) + kPageBytes)) {
  std::byte* const begin = place_in(buffers_.get());
  for (uint32_t i = 0; i < kMax; ++i) data_[i] = {begin + i * whole_pages(longest), longest};
}

void DatagramBatch::prepare(uint32_t message) {
  msghdr& header = messages_[message].msg_hdr;
  header = {&names_[message],
            sizeof names_[message],
            &data_[message],
            1,
            controls_[message].bytes.data(),
            kControlBytes,
            0};
}

uint32_t DatagramBatch::read(int socket, uint32_t wanted) {
  for (uint32_t i = 0; i < wanted; ++i) prepare(i);
  for (;;) {
    int got;
    if (wanted == 1) {
      const ssize_t bytes = system_calls::recvmsg(socket, &messages_[0].msg_hdr, MSG_DONTWAIT);
      messages_[0].msg_len = static_cast<uint32_t>(std::max<ssize_t>(bytes, 0));
      got = bytes < 0 ? -1 : 1;
    } else {
      got = system_calls::recvmmsg(socket, messages_.data(), wanted, MSG_DONTWAIT);
    }
    if (got >= 0) return static_cast<uint32_t>(got);
    if (errno != EINTR) return 0;
  }
}

Receiver::Receiver(UniqueFd socket, uint16_t port, uint32_t slot, PortCounters& counters)
    : socket_(std::move(socket)), splitter_(port, slot, counters) {}

uint32_t Receiver::receive(PacketHandler& handler, uint32_t budget) {
  return receive_batches(socket_.get(), budget, ahead_, batch_, [&](uint32_t i) {
    return splitter_.split(handler, origin_of(batch_.message(i)), batch_.data(i));
  });
}

}  // namespace verbena::net
