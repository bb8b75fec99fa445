// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "adapter/net/udp/route_check.h"
#include "adapter/net/udp/sender.h"
#include "adapter/net/udp/udp_port.h"
#include "adapter/net/udp/udp_traits.h"

namespace verbena::net {

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
