// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <sys/socket.h>
#include <sys/uio.h>

#include "base/unique_fd.h"
#include "net/port.h"
#include "net/udp/control_message.h"
#include "net/udp/socket_address.h"
#include "roce/icrc.h"

namespace verbena::net {

// The receiving half of a UdpPort, and a multicast group's: reads datagrams, splits what GRO has merged, and
// hands on what is a whole RoCEv2 packet for our slot, or for the multicast QPN. One thread at a time.
class Receiver {
 public:
  // `port` is the socket's own, which the ICRC covers.
  Receiver(UniqueFd socket, uint16_t port, uint32_t slot, PortCounters& counters);

  uint32_t receive(PacketHandler& handler, uint32_t budget);
  int fd() const { return socket_.get(); }
  void close() { socket_.reset(); }

 private:
  static constexpr uint32_t kMessages = 8;
  static constexpr size_t kBufferBytes = 65536;
  // A read of at least this is worth a system call of its own, and is in the cache when it is worked on.
  static constexpr uint32_t kLargeMessage = 8192;
  // So many datagrams one by one, none of them awaited, before several are asked for at once.
  static constexpr uint32_t kStreak = 4;

  // What the kernel says about a datagram beside its data.
  struct Origin {
    roce::Path path;
    roce::IcrcFlow flow;
    uint32_t segment_bytes = 0;  // 0: not merged
    bool has_destination = false;
  };

  void adapt(uint32_t asked, uint32_t got, uint32_t largest);
  uint32_t read(uint32_t wanted);
  void prepare(uint32_t message);
  Origin origin_of(msghdr& message) const;
  uint32_t split(PacketHandler& handler, const Origin& origin, ConstBytes datagram);
  void take(PacketHandler& handler, const Origin& origin, ConstBytes udp_payload, uint32_t index);
  void drop(DropReason reason) { ++counters_.dropped[static_cast<size_t>(reason)]; }

  UniqueFd socket_;
  uint16_t port_;
  uint32_t slot_;
  PortCounters& counters_;
  uint32_t wanted_ = 1;  // datagrams to ask for in the next read
  uint32_t streak_ = 0;  // reads of small datagrams in a row that found as many as they asked for
  std::unique_ptr<std::byte[]> buffers_;
  std::array<mmsghdr, kMessages> messages_{};
  std::array<iovec, kMessages> data_{};
  std::array<SocketAddress, kMessages> names_{};
  struct alignas(cmsghdr) Control {
    std::array<std::byte, kControlBytes> bytes;
  };
  std::array<Control, kMessages> controls_{};
};

}  // namespace verbena::net
