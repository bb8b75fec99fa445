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

// What flows count (ibv_create_counters(3)): read by anyone, written by the shard.
struct FlowTotals {
  std::atomic<uint64_t> packets{0};
  std::atomic<uint64_t> bytes{0};
};

// A rule that is in place: where its frames go and what else is done with them.
struct FlowTarget : ethernet::SteeringRule {
  transport::RawQueuePair* receiver = nullptr;  // null: the frames are dropped
  uint32_t tag = 0;
  bool sniffs = false;
  FlowTotals* totals = nullptr;  // may be null
};

// A netdev as the raw QPs of this process see it: their rules, and the sockets by which frames come and go.
// As with a network adapter, a frame that one of the QPs sends is also steered to the others.
//
// Everything is for the shard's lock holder, but acquire() and the destructor.
class EthernetLink {
 public:
  // The one that all QPs of a shard share. EPERM without CAP_NET_RAW, EOPNOTSUPP when the netdev is none of
  // Ethernet.
  static Result<std::shared_ptr<EthernetLink>> acquire(Shard& shard, uint32_t interface_index);
  ~EthernetLink();
  EthernetLink(const EthernetLink&) = delete;
  EthernetLink& operator=(const EthernetLink&) = delete;

  Result<void> add(FlowTarget& target);
  void remove(FlowTarget& target);
  // The QP for which frames wait got requests to receive with.
  void resume() { port_->pause(false); }

  // The way out for the frames of one QP.
  class Sender : public transport::FrameSink {
   public:
    explicit Sender(EthernetLink& link) : link_(link) {}
    // The QP, to which its own frames do not come back.
    void set_owner(const transport::RawQueuePair* owner) { owner_ = owner; }

    bool add(const transport::OutgoingFrame& frame) override;
    Flushed flush() override;

   private:
    EthernetLink& link_;
    const transport::RawQueuePair* owner_ = nullptr;
  };

 private:
  // A packet socket as an input of the shard.
  class Port : public Input, private net::FrameHandler {
   public:
    Port(EthernetLink& link, std::unique_ptr<net::PacketSocket> socket, bool sniffs)
        : link_(link), socket_(std::move(socket)), sniffs_(sniffs) {}

    net::PacketSocket& socket() { return *socket_; }
    int fd() const override { return socket_->readable_fd(); }
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

  // Frames of one batch whose checksums we fill in lie here.
  static constexpr size_t kStagingBytes = 256 * 1024;
  static constexpr size_t kFrameBytes = 65536 + 64;

  Shard& shard_;
  const uint32_t interface_index_;
  std::unique_ptr<Port> port_;
  std::unique_ptr<Port> sniffer_;  // while there is a rule for it
  ethernet::SteeringTable rules_;
  std::vector<FlowTarget*> sniffing_;
  // The QP to which all rules lead, if there is just one: while it has no request its frames wait in the
  // kernel, where there is room for thousands. Those of several QPs cannot wait for one of them.
  transport::RawQueuePair* sole_receiver_ = nullptr;
  size_t filter_full_at_ = SIZE_MAX;  // with so many rules the filter had no room
  std::unique_ptr<std::byte[]> staging_;
  size_t staged_ = 0;
  std::unique_ptr<std::byte[]> looped_;
};

}  // namespace verbena::engine
