// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "adapter/net/port.h"
#include "adapter/net/udp/route_check.h"
#include "adapter/net/udp/send_run.h"
#include "adapter/net/udp/send_sockets.h"
#include "adapter/net/udp/splice_pipe.h"
#include "adapter/net/udp/udp_port.h"
#include "base/time.h"

namespace verbena::net {

// The sending half of a UdpPort: collects packets into super-packets (class SendRun) and passes these runs to
// the kernel.
//
// There are 16 runs, and each has a block of memory of its own. The run that was released last is reused
// first, so that few blocks occupy the CPU cache. Runs of long messages use blocks of a pool instead, if one
// is free. A run in a pool's block is sent without a copy (SplicePipe) if the QPs that sent its packets keep
// the block unchanged. A pool is replaced after some seconds, because a block that was spliced for one
// receiver cannot be used for another (BlockPool). The blocks of the new pool can be used for any receiver,
// also for a process that has got the slot of an ended process. Several runs can be open, one per path and
// slot. A full run is sent at once, so that the receiver processes it while the next run is filled. One
// thread at a time.
//
// Packets to a neighbour that answers no ARP wait in the kernel for seconds and fill the buffer of their
// socket, which packets to other destinations need. The Sender replaces this socket by a new one, so that
// nobody waits for a host that does not answer. The kernel limits what it keeps: the bytes for each
// neighbour, and the number of neighbours.
class Sender {
 public:
  // The socket `management` sends packets to slot 0 and to multicast groups
  // (UdpPortOptions::sends_from_port). If `management` is null, the Sender opens sockets for these packets as
  // for others.
  Sender(const UdpPortOptions& options, PortCounters& counters,
         std::unique_ptr<SendSocket> management = nullptr);

  transport::SendStatus send(const transport::OutgoingPacket& packet);
  transport::TrainSent send_train(const transport::PacketTrain& train);
  // Passes all staged runs to the kernel. Returns false if a socket is full and some runs still wait.
  bool flush();
  // Returns false if the application has closed the sender's pipe (SplicePipe). Does not check the sockets.
  bool is_whole() const { return pipe_.is_whole(); }
  // Returns a socket that was full at the last flush(), or -1 if the last flush() returned true.
  int blocked_fd() const { return blocked_fd_; }

 private:
  static constexpr uint32_t kRuns = 16;
  static constexpr uint32_t kRemembered = 8;

  // The run that a packet joins. If `run` is null, the packet is lost (kSent) or has to wait (kBusy).
  struct Place {
    SendRun* run;
    transport::SendStatus status;
  };
  Place place_for(const roce::Path& path, uint32_t slot, uint32_t packet_bytes, bool more);
  SendRun* run_for(const roce::Path& path, uint32_t slot, uint32_t packet_bytes, bool more);
  SendSocket* socket_for(const roce::Path& path, uint32_t slot);
  SendRun* begin_run(const roce::Path& path, uint32_t slot, SendSocket& socket, uint32_t packet_bytes,
                     bool more);
  std::byte* block_for(uint8_t run, const BlockPool::Receiver& receiver, bool more);
  BlockPool::Block take_block(const BlockPool::Receiver& receiver);
  bool renew_pool(TimePoint now);
  bool pin_block(const SendRun& run, const transport::PacketTrain& train);
  void release(uint32_t run) {
    pins_[run] = {};
    free_[free_count_++] = static_cast<uint8_t>(run);
  }
  // Drops the newest run, whose first packet could not be read.
  void drop_newest() { release(staged_[--staged_count_]); }

  bool send_staged();
  bool is_blocked(int fd, uint32_t kept) const;
  bool replace_sockets();
  bool replace_socket(SendRun& run, TimePoint now);
  uint32_t transmit(uint32_t first, uint32_t end);
  int submit(uint32_t first, uint32_t end);
  bool recover(SendRun& run, int error);
  bool send_singly(SendRun& run);
  int submit_singly(SendRun& run, uint32_t first);

  bool is_too_long(const roce::Path& path, uint32_t packet_bytes) const;
  void remember_too_long(const roce::Path& path, uint32_t packet_bytes);
  bool send_shorter_last(SendRun& run);
  FragmentSocket* fragment_socket(const roce::Path& path);
  bool fragment(SendRun& run);
  bool send_fragmented(SendRun& run);

  uint32_t max_segments(const roce::Path& path) const;

  UdpPortOptions options_;
  PortCounters& counters_;
  SendSockets sockets_;
  const std::unique_ptr<SendSocket> management_;
  std::unique_ptr<std::byte[]> arena_;
  std::shared_ptr<BlockPool> pool_;       // made for the first long message
  std::weak_ptr<BlockPool> former_pool_;  // until its last block is unpinned
  TimePoint pool_begun_{};
  SplicePipe pipe_;
  std::array<SendRun, kRuns> runs_;
  std::array<transport::BlockPin, kRuns> pins_;  // keep the pool's blocks that runs use in use
  std::array<uint8_t, kRuns> free_{};            // indexes of free runs, a stack
  uint32_t free_count_ = 0;
  std::array<uint8_t, kRuns> staged_{};  // indexes of runs with packets, oldest first
  uint32_t staged_count_ = 0;
  int blocked_fd_ = -1;
  TimePoint next_look_{};  // when replace_sockets() may ask the kernel again
  std::array<mmsghdr, kRuns> messages_{};

  // Destinations to which the kernel refused super-packets but not single packets.
  std::array<roce::Address, kRemembered> without_segmentation_{};
  uint32_t without_segmentation_count_ = 0;

  // Destinations for which the kernel refused a packet as too long for the path MTU.
  struct TooLong {
    roce::Address destination;
    PathMtu mtu;
  };
  std::vector<TooLong> too_long_;
  std::vector<std::unique_ptr<FragmentSocket>> fragment_sockets_;  // one per source and device
  bool flow_labels_ = true;
};

// A port made of two halves: a Sender for UDP, and a receiver of type ReceivingHalf (Receiver or
// ForwardedReceiver). `Base` is Port or a class derived from Port.
template <class Base, class ReceivingHalf>
class SplitPort : public Base {
 public:
  SplitPort(UniqueFd socket, uint16_t port, const UdpPortOptions& options,
            std::unique_ptr<SendSocket> management = nullptr)
      : counters_(options.counters != nullptr ? *options.counters : own_counters_),
        sender_(options, counters_, std::move(management)),
        receiver_(std::move(socket), port, options.slot, counters_) {}

  transport::SendStatus send(const transport::OutgoingPacket& packet) final { return sender_.send(packet); }
  transport::TrainSent send_train(const transport::PacketTrain& train) final {
    return sender_.send_train(train);
  }
  Result<void> check(const roce::Path& path, Duration patience) const final {
    return check_route(path, patience);
  }
  bool flush() final { return sender_.flush(); }
  uint32_t receive(PacketHandler& handler, uint32_t budget) final {
    return receiver_.receive(handler, budget);
  }
  int receive_fd() const final { return receiver_.fd(); }
  bool is_whole() const final { return receiver_.is_whole() && sender_.is_whole(); }
  int send_fd() const final { return sender_.blocked_fd(); }
  const transport::Traits& traits() const final { return kUdpTraits; }
  PortCounters& counters() final { return counters_; }

 private:
  PortCounters own_counters_;
  PortCounters& counters_;
  Sender sender_;
  ReceivingHalf receiver_;
};

}  // namespace verbena::net
