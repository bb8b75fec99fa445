// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "adapter/net/port.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::net {

// A Port that leads back to its own shard: what is sent is there to be received at once, in order. Nothing is
// lost, a port without room says so; no system call is made, and no memory is shared with another port. So
// what is measured over it is the work above ports.
class LoopbackPort : public Port {
 public:
  explicit LoopbackPort(PortCounters& counters, uint32_t max_payload = roce::kMaxPathMtu);

  transport::SendStatus send(const transport::OutgoingPacket& packet) override;
  // Whether there is room for another packet.
  bool flush() override;
  uint32_t receive(PacketHandler& handler, uint32_t budget) override;
  int receive_fd() const override { return -1; }
  int send_fd() const override { return -1; }
  const transport::Traits& traits() const override { return traits_; }
  PortCounters& counters() override { return counters_; }

 private:
  // A packet on its way: where its bytes, those of a datagram, lie in the room.
  struct Sent {
    roce::Path path;
    uint32_t begins = 0;
    uint32_t bytes = 0;
  };

  const transport::Traits traits_;
  PortCounters& counters_;
  // Filled from the front until all that is there has been received.
  const std::unique_ptr<std::byte[]> room_;
  std::vector<Sent> sent_;
  size_t received_ = 0;  // of them
  uint32_t used_ = 0;    // bytes of the room
};

}  // namespace verbena::net
