// SPDX-License-Identifier: Apache-2.0
#include "net/udp/udp_port.h"

#include <cerrno>
#include <new>

#include "memory/guarded.h"
#include "net/udp/receive_options.h"
#include "net/udp/receiver.h"
#include "net/udp/sender.h"
#include "net/udp/socket_address.h"
#include "net/udp/udp_traits.h"

namespace verbena::net {
namespace {

class SocketPort final : public UdpPort {
 public:
  SocketPort(UniqueFd receive_socket, uint16_t local_port, const UdpPortOptions& options)
      : counters_(options.counters != nullptr ? *options.counters : own_counters_),
        sender_(options, counters_),
        receiver_(std::move(receive_socket), local_port, options.slot, counters_) {}

  transport::SendStatus send(const transport::OutgoingPacket& packet) override {
    return sender_.send(packet);
  }
  bool flush() override { return sender_.flush(); }
  uint32_t receive(PacketHandler& handler, uint32_t budget) override {
    return receiver_.receive(handler, budget);
  }
  void want_ip_details(bool wanted) override { set_ip_details(receiver_.fd(), wanted); }
  int receive_fd() const override { return receiver_.fd(); }
  int send_fd() const override { return sender_.blocked_fd(); }
  const transport::Traits& traits() const override { return kUdpTraits; }
  PortCounters& counters() override { return counters_; }

 private:
  PortCounters own_counters_;
  PortCounters& counters_;
  Sender sender_;
  Receiver receiver_;
};

}  // namespace

Result<std::unique_ptr<UdpPort>> UdpPort::create(UniqueFd receive_socket, const UdpPortOptions& options) {
  const int fd = receive_socket.get();
  if (options.slot >= roce::Qpn::kSlots) return fail(EINVAL);
  if (const Result<void> set = set_receive_options(fd); !set) return tl::unexpected(set.error());
  SocketAddress local{};
  socklen_t length = sizeof local;
  if (getsockname(fd, &local.generic, &length) != 0) return fail(errno);
  set_ip_details(fd, true);
  const int bytes = static_cast<int>(options.receive_buffer_bytes);
  // Past net.core.rmem_max, if we are privileged.
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0) {
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
  memory::install_fault_guard();  // send() reads the application's memory
  try {
    return std::make_unique<SocketPort>(std::move(receive_socket), port_of(local), options);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

}  // namespace verbena::net
