// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <sys/socket.h>
#include <sys/uio.h>

#include "adapter/net/packet/flow_filter.h"
#include "base/bytes.h"
#include "base/own_fd.h"
#include "base/result.h"

namespace verbena::net {

// The header in front of a frame of a socket with PACKET_VNET_HDR: the offloads that the kernel left to the
// device. It has the layout of struct virtio_net_hdr of <linux/virtio_net.h>, a header that is not C++.
struct OffloadHeader {
  uint8_t flags = 0;
  uint8_t segmentation = 0;  // type of the segments of a merged frame; 0: not merged
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
  // `checked`: the TCP or UDP checksum was verified by the kernel or computed on this host.
  virtual void on_frame(ConstBytes frame, bool checked) = 0;
};

// A socket for whole Ethernet frames of one device (packet(7)); needs CAP_NET_RAW. Frames are sent and
// received as they are on the wire, whatever the kernel's offloads do to them: with their VLAN tag and
// checksums, and split where the kernel merged them.
//
// One thread at a time.
class PacketSocket {
 public:
  // Opens a socket that receives nothing before set_filter(). EPERM without the capability, ENODEV when the
  // device is gone, EOPNOTSUPP when it is not an Ethernet device.
  static Result<std::unique_ptr<PacketSocket>> open(uint32_t interface_index);

  // Readable when receive() would find a frame, unless the socket is paused.
  int readable_fd() const { return epoll_.get(); }
  // Whether both descriptors are still its own (base/own_fd.h).
  bool is_whole() const { return socket_.is_ours() && epoll_.is_ours(); }
  // While paused, frames wait in the kernel and readable_fd() does not become readable.
  void pause(bool on);
  // Closes the socket in this process; nothing is sent or received any more.
  void close() {
    socket_.reset();
    epoll_.reset();
  }
  // Whether the device is the loopback device: each sent frame comes back to all its sockets, this one
  // included.
  bool is_loopback() const { return loopback_; }

  Result<void> set_filter(const FilterProgram& filter);
  // Makes the device accept frames besides its own: those to an address, all multicast, or all
  // (PACKET_MR_UNICAST, _MULTICAST, _ALLMULTI, _PROMISC). Each join() is undone by one leave().
  Result<void> join(uint16_t what, std::span<const uint8_t> address = {});
  void leave(uint16_t what, std::span<const uint8_t> address = {});

  // Reads at most about `budget` frames and returns how many. Never blocks.
  uint32_t receive(FrameHandler& handler, uint32_t budget);

  // Adds a frame to the batch, padded to the minimum length. send() reads the pieces, and tolerates that they
  // are unmapped by then. False: the batch is full; an empty batch is never full.
  bool add(std::span<const ConstBytes> pieces, uint32_t bytes);

  // Sends the batch in order and begins another. `error`: the errno value for the first frame that was not
  // sent; 0: all were. If the device is down or gone, all frames count as sent and are lost.
  struct Sent {
    uint32_t frames;
    int error;
  };
  Sent send();
  // The pieces of a frame of the batch sent last. REQUIRES: nothing was added since
  std::span<const iovec> sent_frame(uint32_t index) const;

 private:
  static constexpr uint32_t kBatch = 64;         // frames
  static constexpr uint32_t kBatchPieces = 256;  // pieces of these frames together
  static constexpr uint32_t kReads = 16;
  // A merged frame has up to 64 KiB of IP and its Ethernet header.
  static constexpr size_t kFrameBytes = 65536 + 64;
  // Space in front of a frame as read, into which its VLAN tag is put back.
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
  OwnFd epoll_;  // contains the socket only
  bool paused_ = false;
  const bool loopback_;
  uint32_t wanted_ = 1;  // frames to ask for in the next read

  std::unique_ptr<std::byte[]> buffers_;
  std::unique_ptr<std::byte[]> segment_;  // of a merged frame, when it is split
  std::array<mmsghdr, kReads> reads_{};
  std::array<std::array<iovec, 2>, kReads> read_pieces_{};
  std::array<OffloadHeader, kReads> read_headers_{};
  std::array<Control, kReads> controls_{};

  std::array<mmsghdr, kBatch> writes_{};
  std::array<iovec, kBatchPieces> write_pieces_{};
  uint32_t batch_ = 0;
  uint32_t batch_pieces_ = 0;
  OffloadHeader write_header_{};  // of every frame: no offload
};

}  // namespace verbena::net
