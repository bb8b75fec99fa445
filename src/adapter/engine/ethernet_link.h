// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "adapter/engine/input.h"
#include "adapter/engine/shard.h"
#include "adapter/net/packet/packet_socket.h"
#include "adapter/transport/raw.h"
#include "base/result.h"
#include "wire/ethernet/steering.h"

namespace verbena::engine {

// The counters of flows (ibv_create_counters(3)). The shard writes them, any thread reads them.
struct FlowTotals {
  std::atomic<uint64_t> packets{0};
  std::atomic<uint64_t> bytes{0};
};

// A steering rule that is in place: which QP gets its frames, and what else happens to them.
struct FlowTarget : ethernet::SteeringRule {
  transport::RawQueuePair* receiver = nullptr;  // null: the frames are dropped
  uint32_t tag = 0;
  bool sniffs = false;
  FlowTotals* totals = nullptr;  // may be null
};

// A network device as the raw packet QPs of a shard see it: their steering rules, and the packet sockets for
// their frames. As with a network adapter, a frame that one of the QPs sends is also steered to the others.
//
// All functions except acquire() and the destructor require the shard's lock.
class EthernetLink {
 public:
  // Returns the link of this device, which all QPs of the shard share; makes it if needed. Errors: EPERM
  // without CAP_NET_RAW; EOPNOTSUPP if the device is no Ethernet device.
  static Result<std::shared_ptr<EthernetLink>> acquire(Shard& shard, uint32_t interface_index);
  ~EthernetLink();
  EthernetLink(const EthernetLink&) = delete;
  EthernetLink& operator=(const EthernetLink&) = delete;

  Result<void> add(FlowTarget& target);
  void remove(FlowTarget& target);
  // Called when a receive request has been posted to a QP whose frames wait in the kernel: receiving goes on.
  void resume() { port_->pause(false); }

  // Sends the frames of one QP.
  class Sender : public transport::FrameSink {
   public:
    explicit Sender(EthernetLink& link) : link_(link) {}
    // Sets the QP that sends. Its own frames are not steered back to it.
    void set_owner(const transport::RawQueuePair* owner) { owner_ = owner; }

    bool add(const transport::OutgoingFrame& frame) override;
    Flushed flush() override;

   private:
    EthernetLink& link_;
    const transport::RawQueuePair* owner_ = nullptr;
  };

 private:
  // A packet socket of the link as an input of the shard.
  class Port : public Input, private net::FrameHandler {
   public:
    Port(EthernetLink& link, std::unique_ptr<net::PacketSocket> socket, bool sniffs)
        : link_(link), socket_(std::move(socket)), sniffs_(sniffs) {}

    net::PacketSocket& socket() { return *socket_; }
    int fd() const override { return socket_->readable_fd(); }
    bool has_set() const override { return true; }
    bool is_whole() const override { return socket_->is_whole(); }
    uint32_t receive(uint32_t budget, TimePoint now) override;
    void abandon() override { socket_->close(); }
    void pause(bool on) { socket_->pause(on); }

   private:
    void on_frame(ConstBytes frame, bool checked) override;

    EthernetLink& link_;
    const std::unique_ptr<net::PacketSocket> socket_;
    const bool sniffs_;
  };

  EthernetLink(Shard& shard, uint32_t interface_index) : shard_(shard), interface_index_(interface_index) {}

  Result<std::unique_ptr<Port>> open_port(bool sniffs);
  Result<void> add_sniffer(FlowTarget& target);
  void remove_sniffer(FlowTarget& target);
  void update_filter();
  void find_sole_receiver();
  void change_membership(const FlowTarget& target, bool join);
  void steer(ConstBytes frame, bool checked);
  void loop_back(std::span<const iovec> frame, const transport::RawQueuePair* sender);
  void deliver(const FlowTarget& target, const transport::IncomingFrame& frame);
  std::optional<ConstBytes> with_checksums(const transport::OutgoingFrame& frame);

  // Buffer for frames of one batch whose checksums we fill in.
  static constexpr size_t kStagingBytes = 256 * 1024;
  static constexpr size_t kFrameBytes = 65536 + 64;

  Shard& shard_;
  const uint32_t interface_index_;
  std::unique_ptr<Port> port_;
  std::unique_ptr<Port> sniffer_;  // while there is a rule for it
  ethernet::SteeringTable rules_;
  std::vector<FlowTarget*> sniffing_;
  // The QP that gets the frames of all rules, if there is only one; else null. While it has no receive
  // request, its frames wait in the kernel, which has room for thousands. With several QPs, frames cannot
  // wait for one of them.
  transport::RawQueuePair* sole_receiver_ = nullptr;
  size_t filter_full_at_ = SIZE_MAX;  // the number of rules at which the kernel's filter had no room
  std::unique_ptr<std::byte[]> staging_;
  size_t staged_ = 0;
  std::unique_ptr<std::byte[]> looped_;
};

}  // namespace verbena::engine
