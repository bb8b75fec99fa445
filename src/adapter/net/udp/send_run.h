// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <sys/socket.h>
#include <sys/uio.h>

#include "adapter/net/udp/control_message.h"
#include "adapter/net/udp/fragment_socket.h"
#include "adapter/net/udp/send_sockets.h"
#include "adapter/net/udp/socket_address.h"
#include "adapter/net/udp/splice_pipe.h"
#include "adapter/net/udp/udp_traits.h"
#include "adapter/transport/packet_io.h"
#include "base/bytes.h"
#include "wire/roce/icrc.h"

namespace verbena::net {

// Consecutive packets of one path and one destination slot, staged contiguously: what one UDP_SEGMENT sendmsg
// carries. All have the size of the first; a shorter one may come last. Each has the exact ICRC for the IPv4
// identification that the kernel will give it, which is its index in the run.
class SendRun {
 public:
  static constexpr uint32_t kMaxSegments = kUdpMaxSegments;
  static constexpr uint32_t kMaxBytes = kMaxSuperPacketBytes;
  // encode() may ask for room for the longest headers.
  static constexpr size_t kBlockBytes = 65536 + 64;

  // Begins a run of packets of `packet_bytes` each in that block. REQUIRES: packet_bytes <= kMaxBytes;
  // kBlockBytes there, until the run begins again
  void begin(std::byte* block, const roce::Path& path, uint32_t slot, const SendSocket& socket,
             uint16_t destination_port, uint32_t packet_bytes, uint32_t max_segments);

  bool is_for(const roce::Path& path, uint32_t slot) const { return slot_ == slot && path_ == path; }
  // `more`: others of its size are sure to follow. Then a shorter one begins a run of its own, which can take
  // those, rather than ending that of a single longer one: the First packet of an RDMA WRITE is longer than
  // the Middles.
  bool accepts(uint32_t packet_bytes, bool more) const {
    return open_ && (packet_bytes == segment_bytes_ ||
                     (packet_bytes < segment_bytes_ && !(more && segments_ == 1) && fragments_ == nullptr));
  }
  // Nothing is gained by keeping it back. (Single packets are: they wait for others, for one sendmmsg.)
  bool is_full() const { return segments_ > 1 && !open_; }

  // Copies a packet in. False: its payload faulted, and the run is as it was.
  // REQUIRES: accepts(packet_bytes); packet_bytes is the packet's whole length, ICRC included
  bool append(const transport::OutgoingPacket& packet, uint32_t packet_bytes);

  // The same with those of a train; how many were copied in: all, or those before the one that faulted.
  // REQUIRES: accepts(packet_bytes), train.count <= room(packet_bytes), packet_bytes is what each comes to
  uint32_t append(const transport::PacketTrain& train, uint32_t packet_bytes);
  // How many of this size it takes. REQUIRES: accepts(packet_bytes)
  uint32_t room(uint32_t packet_bytes) const {
    return packet_bytes == segment_bytes_ ? max_segments_ - segments_ : 1;
  }

  // A train was appended; does its sender keep the block as it is until that has arrived? What else is in the
  // run nobody keeps: it leaves together with them.
  void note_train(bool keeps_block) {
    keeps_block_ = keeps_block && (keeps_block_ || !has_train_);
    has_train_ = true;
  }
  // Whether it leaves without being copied.
  bool is_spliced() const { return keeps_block_ && bytes_ >= SplicePipe::kLeastBytes; }

  // Passes the run to the kernel: what sendmsg answers.
  ssize_t transmit(SplicePipe& pipe);
  // Fills in what sendmsg needs; valid until the run changes.
  void describe(msghdr& message);

  // The run leaves by that socket, packet by packet and in fragments. Shorter packets, which may go whole,
  // join it no more.
  void set_fragments(FragmentSocket& socket);
  FragmentSocket* fragments() const { return fragments_; }
  // The last packet is shorter than the others.
  bool has_shorter_last() const { return bytes_ < segments_ * segment_bytes_; }
  // How many of its packets have left so.
  uint32_t left() const { return left_; }
  void note_left(uint32_t packets) { left_ += packets; }
  // Makes the packet right for that identification, and describes it. Nothing: it is not known.
  void describe_fragmented(uint32_t index, std::optional<uint16_t> identification, msghdr& message,
                           iovec& data);

  // For when the run cannot leave as a super-packet: makes segment `index` right for a datagram of its own,
  // with identification 0, and describes it.
  void describe_single(uint32_t index, msghdr& message, iovec& data);

  // The kernel may refuse the path's flow label. (A path of IPv4 may have one, too, which goes nowhere.)
  bool has_flow_label() const { return !is_ipv4() && name_.ipv6.sin6_flowinfo != 0; }
  // Sends without it from now on.
  void drop_flow_label() {
    if (!is_ipv4()) name_.ipv6.sin6_flowinfo = 0;
  }

  const roce::Path& path() const { return path_; }
  int fd() const { return fragments_ != nullptr ? fragments_->socket().fd.get() : whole_fd(); }
  // The socket for packets that nobody may cut.
  int whole_fd() const { return socket_->fd.get(); }
  uint32_t bytes() const { return bytes_; }
  uint32_t segments() const { return segments_; }
  uint32_t segment_bytes() const { return segment_bytes_; }

  bool is_ipv4() const { return !flow_.ipv6; }

 private:
  void set_path(const roce::Path& path, const SendSocket& socket, uint16_t destination_port);
  uint32_t icrc_prefix(uint32_t packet_bytes) const;
  void write_controls();
  void write_source(ControlWriter& writer) const;
  ConstBytes packet_at(uint32_t index) const;
  void store_icrc(uint32_t index, const roce::IcrcFlow& flow, uint16_t identification);
  void describe_packet(uint32_t index, msghdr& message, iovec& data);

  std::byte* block_ = nullptr;
  uint32_t bytes_ = 0;
  uint32_t segments_ = 0;
  uint32_t segment_bytes_ = 0;
  uint32_t max_segments_ = 0;
  uint32_t icrc_prefix_ = 0;  // of a packet of segment_bytes_ with identification 0
  bool open_ = false;
  bool has_train_ = false;
  bool keeps_block_ = false;
  FragmentSocket* fragments_ = nullptr;
  uint32_t left_ = 0;
  uint32_t slot_ = 0;
  const SendSocket* socket_ = nullptr;
  roce::Path path_;
  roce::IcrcFlow flow_;
  SocketAddress name_{};
  iovec data_{};
  size_t control_bytes_ = 0;  // without UDP_SEGMENT, which comes last
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control_{};
};

}  // namespace verbena::net
