// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/receiver.h"

#include <utility>

namespace verbena::net {

Receiver::Receiver(UniqueFd socket, uint16_t port, uint32_t slot, PortCounters& counters)
    : socket_(std::move(socket)), splitter_(port, slot, counters) {}

uint32_t Receiver::receive(PacketHandler& handler, uint32_t budget) {
  return receive_batches(socket_.get(), budget, ahead_, batch_, [&](uint32_t i) {
    return splitter_.split(handler, origin_of(batch_.message(i)), batch_.data(i));
  });
}

}  // namespace verbena::net
