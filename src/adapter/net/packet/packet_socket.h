// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include <sys/socket.h>
#include <sys/uio.h>

#include "adapter/net/packet/flow_filter.h"
#include "base/bytes.h"
#include "base/own_fd.h"
#include "base/result.h"

namespace verbena::net {

// The header in front of each frame of a socket with PACKET_VNET_HDR. The header describes the checksum and
// segmentation work that the kernel left to the device. It has the layout of struct virtio_net_hdr in
// <linux/virtio_net.h>, which does not compile as C++.
struct OffloadHeader {
  uint8_t flags = 0;
  uint8_t segmentation = 0;  // type of a merged frame's segments; 0 if not merged
  uint16_t header_bytes = 0;
  uint16_t segment_bytes = 0;  // payload of each segment
  uint16_t checksum_start = 0;
  uint16_t checksum_offset = 0;
};
static_assert(sizeof(OffloadHeader) == 10);

// Takes the frames that a PacketSocket reads. A frame is valid during the call only.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // Handles one frame. `checked` is true if the kernel has verified the TCP or UDP checksum, or this host has
  // computed it.
  virtual void on_frame(ConstBytes frame, bool checked) = 0;
};

// A socket for whole Ethernet frames of one network device (packet(7)); needs CAP_NET_RAW. Frames are sent
// and received as they are on the wire, whatever the kernel's offloads do to them. So received frames have
// their VLAN tag and checksums, and frames that the kernel merged are split.
//
// One thread at a time.
class PacketSocket {
 public:
  // Opens a socket that receives nothing before set_filter(). Returns EPERM without CAP_NET_RAW, ENODEV if
  // there is no such network device, and EOPNOTSUPP if it is neither an Ethernet device nor loopback.
  static Result<std::unique_ptr<PacketSocket>> open(uint32_t interface_index);

  // Returns a descriptor that is readable when receive() would find a frame, unless the socket is paused.
  int readable_fd() const { return epoll_.get(); }
  // Returns false if the application has closed one of the descriptors or reused its number (base/own_fd.h).
  bool is_whole() const { return socket_.is_ours() && epoll_.is_ours(); }
  // Pauses or resumes reception. While paused, frames wait in the kernel and readable_fd() does not become
  // readable.
  void pause(bool on);
  // Closes the socket in this process, which then sends and receives nothing more.
  void close() {
    socket_.reset();
    epoll_.reset();
  }
  // Returns whether the device is the loopback device. There, each sent frame comes back to all packet
  // sockets of the device, including the one that sent it.
  bool is_loopback() const { return loopback_; }

  // Replaces the program that decides which frames the socket receives.
  Result<void> set_filter(const FilterProgram& filter);
  // join() makes the device accept more frames than those to its own address; leave() ends this. `what` is
  // PACKET_MR_UNICAST or PACKET_MR_MULTICAST (frames to `address`), PACKET_MR_ALLMULTI (all multicast) or
  // PACKET_MR_PROMISC (all frames). Each join() is undone by one leave().
  Result<void> join(uint16_t what, std::span<const uint8_t> address = {});
  void leave(uint16_t what, std::span<const uint8_t> address = {});

  // Reads at most `budget` frames from the kernel, passes them to the handler, and returns their number. A
  // merged frame counts once. Never blocks.
  uint32_t receive(FrameHandler& handler, uint32_t budget);

  // Adds a frame of `bytes` in total to the batch, padded to Ethernet's minimum length. The pieces are not
  // copied: send() reads them, and tolerates that they are unmapped by then. Returns false if the batch is
  // full; an empty batch is never full.
  bool add(std::span<const ConstBytes> pieces, uint32_t bytes);

  // The result of send(), which sends the batch in order and begins another. `frames` is the number of frames
  // sent. `error` is the errno value for the first frame that was not sent, or 0 if all were sent. If the
  // device is down or deleted, all frames count as sent and are lost.
  struct Sent {
    uint32_t frames;
    int error;
  };
  Sent send();
  // Returns the pieces of a frame of the batch that the latest send() sent, including the frame's padding.
  // REQUIRES: no frame was added since
  std::span<const iovec> sent_frame(uint32_t index) const;

 private:
  static constexpr uint32_t kBatch = 64;         // maximum number of frames
  static constexpr uint32_t kBatchPieces = 256;  // pieces of all these frames together
  static constexpr uint32_t kReads = 16;
  // Buffer size for one frame: a merged frame has up to 64 KiB of IP, and an Ethernet header.
  static constexpr size_t kFrameBytes = 65536 + 64;
  // Space in front of each frame that is read, so that the frame's VLAN tag can be put back.
  static constexpr size_t kFrontBytes = 16;
  struct alignas(cmsghdr) Control {
    std::array<std::byte, 64> bytes;
  };

  PacketSocket(OwnFd socket, OwnFd epoll, bool loopback);
  int fd() const { return socket_.get(); }
  Result<void> change_membership(int option, uint16_t what, std::span<const uint8_t> address);
  int read(uint32_t most);
  void take(FrameHandler& handler, uint32_t message);
  void cut(FrameHandler& handler, ConstBytes frame, uint32_t payload_bytes);

  OwnFd socket_;
  OwnFd epoll_;  // contains only the socket
  bool paused_ = false;
  const bool loopback_;
  uint32_t wanted_ = 1;  // frames to ask for in the next read

  std::unique_ptr<std::byte[]> buffers_;
  std::unique_ptr<std::byte[]> segment_;  // one segment of a merged frame that is being split
  std::array<mmsghdr, kReads> reads_{};
  std::array<std::array<iovec, 2>, kReads> read_pieces_{};
  std::array<OffloadHeader, kReads> read_headers_{};
  std::array<Control, kReads> controls_{};

  std::array<mmsghdr, kBatch> writes_{};
  std::array<iovec, kBatchPieces> write_pieces_{};
  uint32_t batch_ = 0;
  uint32_t batch_pieces_ = 0;
  OffloadHeader write_header_{};  // the header of every sent frame: no offload
};

}  // namespace verbena::net
