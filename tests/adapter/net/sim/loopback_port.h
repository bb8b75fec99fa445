// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "adapter/net/port.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::net {

// A Port that leads back to its own shard: sent packets can be received at once, in order. No packet is lost;
// send() returns kBusy if the port is full. The port makes no system calls and shares no memory with another
// port, so benchmarks over it measure the code above the ports.
class LoopbackPort : public Port {
 public:
  explicit LoopbackPort(PortCounters& counters, uint32_t max_payload = roce::kMaxPathMtu);

  transport::SendStatus send(const transport::OutgoingPacket& packet) override;
  // Returns whether there is room for another packet.
  bool flush() override;
  uint32_t receive(PacketHandler& handler, uint32_t budget) override;
  int receive_fd() const override { return -1; }
  int send_fd() const override { return -1; }
  const transport::Traits& traits() const override { return traits_; }
  PortCounters& counters() override { return counters_; }

 private:
  // A packet that was sent and not yet received: the position of its UDP payload in room_.
  struct Sent {
    roce::Path path;
    uint32_t begins = 0;
    uint32_t bytes = 0;
  };

  const transport::Traits traits_;
  PortCounters& counters_;
  // Buffer of the UDP payloads, filled from the front. Reused from the front when all packets in it have been
  // received.
  const std::unique_ptr<std::byte[]> room_;
  std::vector<Sent> sent_;
  size_t received_ = 0;  // how many of sent_ have been received
  uint32_t used_ = 0;    // bytes of room_ that are used
};

}  // namespace verbena::net
