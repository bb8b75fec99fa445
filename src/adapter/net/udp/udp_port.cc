// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/udp_port.h"

#include <cerrno>
#include <new>

#include "adapter/memory/guarded.h"
#include "adapter/net/udp/receive_options.h"
#include "adapter/net/udp/receiver.h"
#include "adapter/net/udp/socket_address.h"
#include "adapter/net/udp/split_port.h"
#include "base/socket_option.h"

namespace verbena::net {
namespace {

class SocketPort final : public SplitPort<UdpPort, Receiver> {
 public:
  using SplitPort::SplitPort;
  void want_ip_details(bool wanted) override { set_ip_details(receive_fd(), wanted); }
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
  set_receive_buffer(fd, static_cast<int>(options.receive_buffer_bytes));
  memory::install_fault_guard();  // send() reads the application's memory
  try {
    std::unique_ptr<SendSocket> management;
    if (options.sends_from_port) {
      auto shared = share_receive_socket(fd, port_of(local), options.send_buffer_bytes);
      if (!shared) return tl::unexpected(shared.error());
      management = std::move(*shared);
    }
    return std::make_unique<SocketPort>(std::move(receive_socket), port_of(local), options,
                                        std::move(management));
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

}  // namespace verbena::net
