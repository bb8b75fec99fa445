// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <sys/socket.h>
#include <sys/uio.h>

#include "adapter/net/udp/send_sockets.h"
#include "adapter/net/udp/socket_address.h"
#include "adapter/net/udp/splice_pipe.h"
#include "adapter/transport/packet_io.h"
#include "adapter/transport/route.h"
#include "base/bytes.h"
#include "wire/roce/icrc.h"

namespace verbena::net {

// The kernel's UDP_MAX_SEGMENTS, and the maximum UDP payload of an IPv4 super-packet in bytes.
inline constexpr uint32_t kUdpMaxSegments = 64;
inline constexpr uint32_t kMaxSuperPacketBytes = 65535 - 20 - 8;

// The traits of RoCEv2 over UDP sockets.
inline constexpr transport::Traits kUdpTraits{
    .max_payload = 4096,
    // One UDP_SEGMENT super-packet.
    .burst_bytes = kMaxSuperPacketBytes,
    .burst_packets = kUdpMaxSegments,
    // Bytes for headers and for the kernel's bookkeeping in the receiving socket's buffer.
    .charge_per_packet = 64,
    .lossless = false,
    .progress = transport::Traits::Progress::kDescriptor,
    // For UC and UD, which get no acknowledgements. The burst is the capacity of a default socket buffer
    // (net.core.rmem_default). The rate is the 10 Gb/s that one CPU can receive.
    .blind_burst_bytes = 160 * 1024,
    .blind_bytes_per_microsecond = 1250,
};

// A super-packet being built: consecutive packets of one path and one destination slot, stored contiguously.
// One sendmsg() with UDP_SEGMENT sends the whole run. All packets have the size of the first, except that the
// last one may be shorter. Each packet has the exact ICRC for the IPv4 identification that the kernel will
// give it, which is the packet's index in the run.
class SendRun {
 public:
  static constexpr uint32_t kMaxSegments = kUdpMaxSegments;
  static constexpr uint32_t kMaxBytes = kMaxSuperPacketBytes;
  // Size of a run's memory block, in bytes. The 64 bytes beyond 65536 are needed because append() reserves
  // room for the longest headers when it encodes a packet's headers, even if these are shorter.
  static constexpr size_t kBlockBytes = 65536 + 64;

  // Begins an empty run in `block`, for at most `max_segments` packets of `packet_bytes` each. REQUIRES:
  // packet_bytes <= kMaxBytes, and `block` has kBlockBytes and lives until the next begin()
  void begin(std::byte* block, const roce::Path& path, uint32_t slot, SendSocket& socket,
             uint16_t destination_port, uint32_t packet_bytes, uint32_t max_segments);

  bool is_for(const roce::Path& path, uint32_t slot) const { return slot_ == slot && path_ == path; }
  // Returns whether the run can take a packet of this size. A packet that is shorter than the others ends the
  // run. `more` says that further packets of this size are certain to follow. In that case, a shorter packet
  // does not join a run of one packet, but begins a new run, which the following packets can join. For
  // example, the First packet of an RDMA WRITE is longer than the Middle packets.
  bool accepts(uint32_t packet_bytes, bool more) const {
    return open_ && (packet_bytes == segment_bytes_ ||
                     (packet_bytes < segment_bytes_ && !(more && segments_ == 1) && fragments_ == nullptr));
  }
  // Returns whether the run should be sent now, because it takes no more packets. A run of a single packet is
  // not sent for this reason: it waits, to be sent with other runs by one sendmmsg().
  bool is_full() const { return segments_ > 1 && !open_; }

  // Copies a packet into the run. Returns false if reading the packet's payload faulted; then the run is
  // unchanged. REQUIRES: accepts(packet_bytes), and packet_bytes is the packet's whole length, including the
  // ICRC
  bool append(const transport::OutgoingPacket& packet, uint32_t packet_bytes);

  // Copies the packets of a train into the run. Returns their number, which is less than train.count if
  // reading a payload faulted. REQUIRES: accepts(packet_bytes), train.count <= room(packet_bytes),
  // packet_bytes is the whole length of each packet
  uint32_t append(const transport::PacketTrain& train, uint32_t packet_bytes);
  // Returns how many packets of this size the run can still take. REQUIRES: accepts(packet_bytes)
  uint32_t room(uint32_t packet_bytes) const {
    return packet_bytes == segment_bytes_ ? max_segments_ - segments_ : 1;
  }

  // Notes that a train was appended. If `keeps_block`, the train's sender has promised to keep the block
  // unchanged until the train has arrived. The run may be sent without a copy if the senders of all its
  // trains have promised this. The run's other packets need no promise: they lie in the same block, and
  // arrive in the same super-packet as the trains.
  void note_train(bool keeps_block) {
    keeps_block_ = keeps_block && (keeps_block_ || !has_train_);
    has_train_ = true;
  }
  // Returns whether the run will be sent without being copied (SplicePipe).
  bool is_spliced() const { return keeps_block_ && bytes_ >= SplicePipe::kLeastBytes; }

  // Passes the run to the kernel, without a copy if is_spliced(). Returns what sendmsg() returns.
  ssize_t transmit(SplicePipe& pipe);
  // Fills in `message` for sendmsg(). The message is valid until the run changes.
  void describe(msghdr& message);

  // Makes the run leave by `socket`, packet by packet and in IP fragments. From now on the run accepts no
  // shorter packets, because these might fit the path unfragmented.
  void set_fragments(FragmentSocket& socket) { fragments_ = &socket; }
  FragmentSocket* fragments() const { return fragments_; }
  // Returns whether the last packet is shorter than the others.
  bool has_shorter_last() const { return bytes_ < segments_ * segment_bytes_; }
  // Returns how many packets of the run were sent or given up so far, if the run leaves packet by packet
  // (set_fragments()).
  uint32_t left() const { return left_; }
  void note_left(uint32_t packets) { left_ += packets; }
  // Computes the ICRC of packet `index` for this IPv4 identification, and fills in `message` and `data` for
  // sendmsg(). If the identification is nullopt, the ICRC is that of a packet that must not be fragmented.
  void describe_fragmented(uint32_t index, std::optional<uint16_t> identification, msghdr& message,
                           iovec& data);

  // Fills in `message` and `data` for sendmsg() to send packet `index` as a datagram of its own, with the
  // ICRC for identification 0. Used if the run cannot leave as a super-packet.
  void describe_single(uint32_t index, msghdr& message, iovec& data);

  // Returns whether packets carry an IPv6 flow label, which the kernel may refuse to send. IPv4 has no flow
  // label.
  bool has_flow_label() const { return !is_ipv4() && name_.ipv6.sin6_flowinfo != 0; }
  // Makes the run's packets leave without the flow label.
  void drop_flow_label() {
    if (!is_ipv4()) name_.ipv6.sin6_flowinfo = 0;
  }

  // Returns whether the socket has another source port than when the run began (SendSockets::renew()).
  bool has_old_port() const { return flow_.source_port != socket_->port; }
  // Writes the ICRCs for the socket's present source port. REQUIRES: the run is not empty
  void follow_port();

  const roce::Path& path() const { return path_; }
  uint32_t slot() const { return slot_; }
  const std::byte* block() const { return block_; }
  // Returns the socket by which the run leaves.
  SendSocket& socket() const { return fragments_ != nullptr ? fragments_->socket() : *socket_; }
  int fd() const { return socket().fd.get(); }
  // Returns the socket for packets that must not be fragmented.
  SendSocket& whole_socket() const { return *socket_; }
  uint32_t bytes() const { return bytes_; }
  uint32_t segments() const { return segments_; }
  uint32_t segment_bytes() const { return segment_bytes_; }

  bool is_ipv4() const { return !flow_.ipv6; }

 private:
  void set_path(const roce::Path& path, SendSocket& socket, uint16_t destination_port);
  uint32_t icrc_prefix(uint32_t packet_bytes) const;
  void write_controls();
  void write_source(ControlWriter& writer) const;
  ConstBytes packet_at(uint32_t index) const {
    const uint32_t begin = index * segment_bytes_;
    return {block_ + begin, std::min(segment_bytes_, bytes_ - begin)};
  }
  void store_icrc(uint32_t index, const roce::IcrcFlow& flow, uint16_t identification);
  void describe_packet(uint32_t index, msghdr& message, iovec& data);

  std::byte* block_ = nullptr;
  uint32_t bytes_ = 0;
  uint32_t segments_ = 0;
  uint32_t segment_bytes_ = 0;
  uint32_t max_segments_ = 0;
  uint32_t icrc_prefix_ = 0;  // initial ICRC state for segment_bytes_ and identification 0
  bool open_ = false;
  bool has_train_ = false;
  bool keeps_block_ = false;
  FragmentSocket* fragments_ = nullptr;
  uint32_t left_ = 0;
  uint32_t slot_ = 0;
  SendSocket* socket_ = nullptr;
  roce::Path path_;
  roce::IcrcFlow flow_;
  SocketAddress name_{};
  iovec data_{};
  size_t control_bytes_ = 0;  // without the message UDP_SEGMENT, which comes last
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control_{};
};

}  // namespace verbena::net
