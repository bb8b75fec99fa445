// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/packet/packet_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <sys/epoll.h>

#include "adapter/net/udp/socket_address.h"
#include "adapter/net/udp/system_calls.h"
#include "base/log.h"
#include "base/plain_calls.h"
#include "base/socket_option.h"
#include "wire/ethernet/offloads.h"
#include "wire/ethernet/steering.h"

namespace verbena::net {
namespace {

// Room for a burst while nobody reads, and for a few batches being sent.
constexpr int kReceiveBytes = 8 << 20;
constexpr int kSendBytes = 1 << 20;
// A failed read has consumed a frame or an error of the device, so it is repeated, this many times.
constexpr int kMaxFailedReads = 16;

// OffloadHeader::flags
constexpr uint8_t kChecksumLeft = 1;     // VIRTIO_NET_HDR_F_NEEDS_CSUM
constexpr uint8_t kChecksumChecked = 2;  // VIRTIO_NET_HDR_F_DATA_VALID

constexpr std::array<std::byte, ethernet::kLeastFrameBytes> kPadding{};

sock_fprog as_program(const FilterProgram& filter) {
  return {static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
}

bool is_lost(int error) {
  return error == ENETDOWN || error == ENXIO || error == ENODEV || error == ENETUNREACH;
}

// The kernel's information about a received frame besides its data.
struct Auxiliary {
  bool tagged = false;
  uint16_t tag = 0;
  uint16_t tag_type = ethernet::kTypeVlan;
};
Auxiliary auxiliary_of(msghdr& message) {
  Auxiliary found;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA) continue;
    const auto data = control_value<tpacket_auxdata>(c);
    found.tagged = (data.tp_status & TP_STATUS_VLAN_VALID) != 0;
    found.tag = data.tp_vlan_tci;
    if ((data.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0) found.tag_type = data.tp_vlan_tpid;
  }
  return found;
}

}  // namespace

Result<std::unique_ptr<PacketSocket>> PacketSocket::open(uint32_t interface_index) {
  // With protocol 0 nothing arrives before bind(), when the filter is in place.
  OwnFd socket(UniqueFd(plain_socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!socket) return fail(errno);
  const int fd = socket.get();
  const FilterProgram closed = make_closed_filter();
  const sock_fprog program = as_program(closed);
  const int on = 1;
  if (!set_option(fd, SOL_SOCKET, SO_ATTACH_FILTER, program) ||
      !set_option(fd, SOL_PACKET, PACKET_AUXDATA, on) || !set_option(fd, SOL_PACKET, PACKET_VNET_HDR, on)) {
    return fail(errno);
  }
  set_receive_buffer(fd, kReceiveBytes);
  set_send_buffer(fd, kSendBytes);
  if (!set_option(fd, SOL_SOCKET, SO_MARK, kRawFrameMark)) {
    log_warning("raw packets of this process do not reach raw QPs of others on this host: SO_MARK, error {}",
                errno);
  }

  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(interface_index);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return fail(errno);
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return fail(errno);
  const bool loopback = address.sll_hatype == ARPHRD_LOOPBACK;
  if (!loopback && address.sll_hatype != ARPHRD_ETHER) return fail(EOPNOTSUPP);
  if (loopback && !set_option(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, on)) return fail(errno);
  OwnFd epoll(UniqueFd{plain_epoll_create()});
  epoll_event readable{.events = EPOLLIN, .data = {}};
  if (!epoll || plain_epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &readable) != 0) return fail(errno);
  return std::unique_ptr<PacketSocket>(new PacketSocket(std::move(socket), std::move(epoll), loopback));
}

PacketSocket::PacketSocket(OwnFd socket, OwnFd epoll, bool loopback)
    : socket_(std::move(socket)),
      epoll_(std::move(epoll)),
      loopback_(loopback),
      buffers_(new std::byte[kReads * (kFrontBytes + kFrameBytes)]),
      segment_(new std::byte[kFrontBytes + kFrameBytes]) {
  for (uint32_t i = 0; i < kReads; ++i) {
    read_pieces_[i] = {iovec{&read_headers_[i], sizeof read_headers_[i]},
                       iovec{buffers_.get() + i * (kFrontBytes + kFrameBytes) + kFrontBytes, kFrameBytes}};
  }
}

void PacketSocket::pause(bool on) {
  if (paused_ == on) return;
  paused_ = on;
  // Removes the socket from the set: its errors would be reported even if no event is requested.
  epoll_event readable{.events = EPOLLIN, .data = {}};
  plain_epoll_ctl(epoll_.get(), on ? EPOLL_CTL_DEL : EPOLL_CTL_ADD, socket_.get(), &readable);
}

Result<void> PacketSocket::set_filter(const FilterProgram& filter) {
  return set_option(fd(), SOL_SOCKET, SO_ATTACH_FILTER, as_program(filter)) ? Result<void>() : fail(errno);
}

Result<void> PacketSocket::change_membership(int option, uint16_t what, std::span<const uint8_t> address) {
  sockaddr_ll self{};
  socklen_t length = sizeof self;
  if (::getsockname(fd(), reinterpret_cast<sockaddr*>(&self), &length) != 0) return fail(errno);
  packet_mreq request{};
  request.mr_ifindex = self.sll_ifindex;
  request.mr_type = what;
  request.mr_alen = static_cast<uint16_t>(std::min(address.size(), sizeof request.mr_address));
  std::copy_n(address.data(), request.mr_alen, request.mr_address);
  if (!set_option(fd(), SOL_PACKET, option, request)) return fail(errno);
  return {};
}

Result<void> PacketSocket::join(uint16_t what, std::span<const uint8_t> address) {
  return change_membership(PACKET_ADD_MEMBERSHIP, what, address);
}

void PacketSocket::leave(uint16_t what, std::span<const uint8_t> address) {
  // It fails when the device is gone, and the membership with it.
  (void)change_membership(PACKET_DROP_MEMBERSHIP, what, address);
}

// ---- receiving

int PacketSocket::read(uint32_t most) {
  for (uint32_t i = 0; i < most; ++i) {
    msghdr& message = reads_[i].msg_hdr;
    message = {};
    message.msg_iov = read_pieces_[i].data();
    message.msg_iovlen = read_pieces_[i].size();
    message.msg_control = controls_[i].bytes.data();
    message.msg_controllen = sizeof controls_[i].bytes;
  }
  return system_calls::recvmmsg(fd(), reads_.data(), most, MSG_DONTWAIT);
}

// Asks for one frame at a time until there are more: preparing many messages costs more than an empty read.
uint32_t PacketSocket::receive(FrameHandler& handler, uint32_t budget) {
  uint32_t taken = 0;
  int failed = 0;
  while (taken < budget) {
    const uint32_t asked = std::min(wanted_, budget - taken);
    const int got = read(asked);
    if (got < 0) {
      wanted_ = 1;
      if (errno == EAGAIN || ++failed == kMaxFailedReads) break;
      continue;
    }
    for (uint32_t i = 0; i < static_cast<uint32_t>(got); ++i) take(handler, i);
    taken += static_cast<uint32_t>(got);
    if (static_cast<uint32_t>(got) < asked) {
      wanted_ = std::max(static_cast<uint32_t>(got), 1u);
      break;
    }
    wanted_ = std::min(wanted_ * 2, kReads);
  }
  return taken;
}

// Restores a frame as it was on the wire: the kernel removes the outermost VLAN tag, leaves checksums to the
// device, and merges segments.
void PacketSocket::take(FrameHandler& handler, uint32_t index) {
  mmsghdr& message = reads_[index];
  const OffloadHeader& offload = read_headers_[index];
  if ((message.msg_hdr.msg_flags & MSG_TRUNC) != 0 || message.msg_len < sizeof offload) return;
  auto* data = static_cast<std::byte*>(read_pieces_[index][1].iov_base);
  size_t bytes = message.msg_len - sizeof offload;
  if (bytes < ethernet::kHeaderBytes) return;
  uint32_t shift = 0;
  if (const Auxiliary auxiliary = auxiliary_of(message.msg_hdr); auxiliary.tagged) {
    constexpr size_t kAddresses = 12;
    shift = ethernet::kVlanTagBytes;
    std::memmove(data - shift, data, kAddresses);
    data -= shift;
    bytes += shift;
    store_be<uint16_t>(data + kAddresses, auxiliary.tag_type);
    store_be<uint16_t>(data + kAddresses + 2, auxiliary.tag);
  }
  const Bytes frame(data, bytes);
  if (offload.segmentation != 0) {
    cut(handler, frame, offload.segment_bytes);
    return;
  }
  const bool partial = (offload.flags & kChecksumLeft) != 0;
  if (partial) ethernet::complete_checksum(frame, offload.checksum_start + shift, offload.checksum_offset);
  handler.on_frame(frame, partial || (offload.flags & kChecksumChecked) != 0);
}

void PacketSocket::cut(FrameHandler& handler, ConstBytes frame, uint32_t payload_bytes) {
  const ethernet::Segmentation segments(frame, payload_bytes);
  if (segments.count() == 1) {
    handler.on_frame(frame, false);
    return;
  }
  for (uint32_t k = 0; k < segments.count(); ++k) {
    const uint32_t bytes = segments.segment(k, segment_.get());
    handler.on_frame({segment_.get(), bytes}, true);
  }
}

// ---- sending

bool PacketSocket::add(std::span<const ConstBytes> pieces, uint32_t bytes) {
  if (batch_ == kBatch || batch_pieces_ + pieces.size() + 2 > kBatchPieces) return false;
  iovec* const begin = &write_pieces_[batch_pieces_];
  iovec* to = begin;
  *to++ = {&write_header_, sizeof write_header_};
  for (const ConstBytes piece : pieces) *to++ = {const_cast<std::byte*>(piece.data()), piece.size()};
  // A frame without a whole header is left to the kernel to refuse.
  if (bytes < ethernet::kLeastFrameBytes && bytes >= ethernet::kHeaderBytes) {
    *to++ = {const_cast<std::byte*>(kPadding.data()), ethernet::kLeastFrameBytes - bytes};
  }
  msghdr& message = writes_[batch_++].msg_hdr;
  message = {};
  message.msg_iov = begin;
  message.msg_iovlen = static_cast<size_t>(to - begin);
  batch_pieces_ += static_cast<uint32_t>(to - begin);
  return true;
}

PacketSocket::Sent PacketSocket::send() {
  uint32_t sent = 0;
  int error = 0;
  while (sent < batch_ && error == 0) {
    const int went = system_calls::sendmmsg(fd(), &writes_[sent], batch_ - sent, MSG_DONTWAIT);
    if (went > 0) {
      sent += static_cast<uint32_t>(went);
    } else if (is_lost(errno)) {
      sent = batch_;
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  batch_ = batch_pieces_ = 0;
  return {sent, error};
}

std::span<const iovec> PacketSocket::sent_frame(uint32_t index) const {
  const msghdr& message = writes_[index].msg_hdr;
  return {message.msg_iov + 1, message.msg_iovlen - 1};
}

}  // namespace verbena::net
