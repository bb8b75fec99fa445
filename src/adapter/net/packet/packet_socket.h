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

// What stands before a frame to say what the kernel left to the device (PACKET_VNET_HDR): struct
// virtio_net_hdr of <linux/virtio_net.h>, a header that is not C++.
struct OffloadHeader {
  uint8_t flags = 0;
  uint8_t segmentation = 0;  // what of a merged frame's segments, 0 if it is not one
  uint16_t header_bytes = 0;
  uint16_t segment_bytes = 0;  // of payload
  uint16_t checksum_start = 0;
  uint16_t checksum_offset = 0;
};
static_assert(sizeof(OffloadHeader) == 10);

// Takes the frames that a PacketSocket reads. Borrowed for the call.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // `checked`: the kernel has looked at its TCP or UDP checksum, or made it.
  virtual void on_frame(ConstBytes frame, bool checked) = 0;
};

// A socket for whole Ethernet frames of one device (packet(7)), which takes CAP_NET_RAW. Frames come and go
// as they are on the wire, whatever the kernel's offloads make of them: with their VLAN tag and checksums,
// cut where the kernel merged them.
//
// One thread at a time.
class PacketSocket {
 public:
  // Nothing is received before set_filter(). EPERM without the capability, ENODEV when the device is gone,
  // EOPNOTSUPP when its frames are not Ethernet's.
  static Result<std::unique_ptr<PacketSocket>> open(uint32_t interface_index);

  // Readable when receive() would find something, and it is not paused.
  int readable_fd() const { return epoll_.get(); }
  // Whether both descriptors are still ours (base/own_fd.h).
  bool is_whole() const { return socket_.is_ours() && epoll_.is_ours(); }
  // Frames wait in the kernel, and nobody is woken for them; until they do not.
  void pause(bool on);
  // Ends it for this process; nothing comes or goes any more.
  void close() {
    socket_.reset();
    epoll_.reset();
  }
  // What leaves through it comes back to it, as to everyone.
  bool is_loopback() const { return loopback_; }

  Result<void> set_filter(const FilterProgram& filter);
  // Which frames the device is to let in besides its own: of an address, all multicast, all there are
  // (PACKET_MR_UNICAST, _MULTICAST, _ALLMULTI, _PROMISC). Counted: each has its leave().
  Result<void> join(uint16_t what, std::span<const uint8_t> address = {});
  void leave(uint16_t what, std::span<const uint8_t> address = {});

  // Reads at most about `budget` frames. Never blocks.
  uint32_t receive(FrameHandler& handler, uint32_t budget);

  // Adds a frame to the batch, padded to the shortest there may be. Its memory is read until send(), and may
  // be gone by then. False: the batch is full; an empty one never is.
  bool add(std::span<const ConstBytes> pieces, uint32_t bytes);

  // Sends the batch, in order, and begins another. `error`: why the next one did not go, 0 if all did. Of a
  // device that is down or gone all frames are lost, not refused.
  struct Sent {
    uint32_t frames;
    int error;
  };
  Sent send();
  // The pieces of a frame of the batch sent last. REQUIRES: nothing was added since
  std::span<const iovec> sent_frame(uint32_t index) const;

 private:
  static constexpr uint32_t kBatch = 64;         // frames
  static constexpr uint32_t kBatchPieces = 256;  // and the pieces that they have together
  static constexpr uint32_t kReads = 16;
  // A merged frame is up to 64 KiB of IP and its Ethernet header.
  static constexpr size_t kFrameBytes = 65536 + 64;
  // In front of a frame as read, so that a VLAN tag finds room.
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
  OwnFd epoll_;  // of the socket alone
  bool paused_ = false;
  const bool loopback_;
  uint32_t wanted_ = 1;  // frames to ask for in the next read

  std::unique_ptr<std::byte[]> buffers_;
  std::unique_ptr<std::byte[]> segment_;  // one of a merged frame
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
