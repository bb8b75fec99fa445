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

// A super-packet being built: consecutive packets of one path and one destination slot, stored contiguously,
// which one sendmsg() with UDP_SEGMENT sends. All have the size of the first; a shorter one may come last.
// Each has the exact ICRC for the IPv4 identification that the kernel will give it: its index in the run.
class SendRun {
 public:
  static constexpr uint32_t kMaxSegments = kUdpMaxSegments;
  static constexpr uint32_t kMaxBytes = kMaxSuperPacketBytes;
  // Size of a run's block; encode() may ask for room for the longest headers.
  static constexpr size_t kBlockBytes = 65536 + 64;

  // Begins a run of packets of `packet_bytes` each in that block. REQUIRES: packet_bytes <= kMaxBytes;
  // `block` has kBlockBytes and lives until the run begins again
  void begin(std::byte* block, const roce::Path& path, uint32_t slot, const SendSocket& socket,
             uint16_t destination_port, uint32_t packet_bytes, uint32_t max_segments);

  bool is_for(const roce::Path& path, uint32_t slot) const { return slot_ == slot && path_ == path; }
  // Whether the run can take a packet of this size. A shorter packet ends the run that it joins. `more`:
  // others of its size are certain to follow. Then a shorter packet does not join a run of one packet, but
  // begins a run that takes the others, too. For example, the First packet of an RDMA WRITE is longer than
  // the Middles.
  bool accepts(uint32_t packet_bytes, bool more) const {
    return open_ && (packet_bytes == segment_bytes_ ||
                     (packet_bytes < segment_bytes_ && !(more && segments_ == 1) && fragments_ == nullptr));
  }
  // Whether the run should leave now, as it takes no more packets. A single packet waits for others, to leave
  // with them in one sendmmsg().
  bool is_full() const { return segments_ > 1 && !open_; }

  // Copies a packet in. False: its payload faulted, and the run is unchanged. REQUIRES:
  // accepts(packet_bytes); packet_bytes is the packet's whole length, ICRC included
  bool append(const transport::OutgoingPacket& packet, uint32_t packet_bytes);

  // Copies the packets of a train in. Returns how many: all, or those before the one that faulted. REQUIRES:
  // accepts(packet_bytes), train.count <= room(packet_bytes), packet_bytes is the whole length of each
  uint32_t append(const transport::PacketTrain& train, uint32_t packet_bytes);
  // How many packets of this size the run can take. REQUIRES: accepts(packet_bytes)
  uint32_t room(uint32_t packet_bytes) const {
    return packet_bytes == segment_bytes_ ? max_segments_ - segments_ : 1;
  }

  // Notes that a train was appended. `keeps_block`: its sender keeps the block unchanged until the train has
  // arrived. Other packets of the run need no such promise: they leave together with the train.
  void note_train(bool keeps_block) {
    keeps_block_ = keeps_block && (keeps_block_ || !has_train_);
    has_train_ = true;
  }
  // Whether the run leaves without being copied.
  bool is_spliced() const { return keeps_block_ && bytes_ >= SplicePipe::kLeastBytes; }

  // Passes the run to the kernel. Returns what sendmsg() returns.
  ssize_t transmit(SplicePipe& pipe);
  // Fills in the arguments of sendmsg(); valid until the run changes.
  void describe(msghdr& message);

  // Makes the run leave by that socket, packet by packet and in IP fragments. From now on it accepts no
  // shorter packets, which might fit the path unfragmented.
  void set_fragments(FragmentSocket& socket);
  FragmentSocket* fragments() const { return fragments_; }
  // Whether the last packet is shorter than the others.
  bool has_shorter_last() const { return bytes_ < segments_ * segment_bytes_; }
  // How many of its packets have left in this way.
  uint32_t left() const { return left_; }
  void note_left(uint32_t packets) { left_ += packets; }
  // Computes the packet's ICRC for that identification and describes the packet. Nothing: the identification
  // is unknown.
  void describe_fragmented(uint32_t index, std::optional<uint16_t> identification, msghdr& message,
                           iovec& data);

  // Describes segment `index` as a datagram of its own, with the ICRC for identification 0. Used if the run
  // cannot leave as a super-packet.
  void describe_single(uint32_t index, msghdr& message, iovec& data);

  // Whether packets carry a flow label, which the kernel may refuse. IPv4 has no field for the label of a
  // path.
  bool has_flow_label() const { return !is_ipv4() && name_.ipv6.sin6_flowinfo != 0; }
  // Sends without the flow label from now on.
  void drop_flow_label() {
    if (!is_ipv4()) name_.ipv6.sin6_flowinfo = 0;
  }

  const roce::Path& path() const { return path_; }
  int fd() const { return fragments_ != nullptr ? fragments_->socket().fd.get() : whole_fd(); }
  // The socket for packets that must not be fragmented.
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
  uint32_t icrc_prefix_ = 0;  // for a packet of segment_bytes_ with identification 0
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
