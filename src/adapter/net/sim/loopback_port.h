// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "adapter/net/port.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::net {

// A Port that leads back to its own shard: sent packets can be received at once, in order. Nothing is lost; a
// full port returns kBusy. It makes no system call and shares no memory with another port, so benchmarks over
// it measure the work above ports.
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
  // A packet on its way: the position of its UDP payload in room_.
  struct Sent {
    roce::Path path;
    uint32_t begins = 0;
    uint32_t bytes = 0;
  };

  const transport::Traits traits_;
  PortCounters& counters_;
  // Filled from the front until everything in it has been received.
  const std::unique_ptr<std::byte[]> room_;
  std::vector<Sent> sent_;
  size_t received_ = 0;  // how many of sent_
  uint32_t used_ = 0;    // bytes of room_
};

}  // namespace verbena::net
