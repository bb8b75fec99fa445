// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/forwarded_port.h"

#include <cerrno>
#include <new>
#include <utility>

#include <sys/socket.h>

#include "adapter/memory/guarded.h"
#include "adapter/net/udp/forwarded_receiver.h"
#include "adapter/net/udp/split_port.h"

namespace verbena::net {
namespace {

using ForwardedPort = SplitPort<Port, ForwardedReceiver>;

bool keeps_messages_apart(int socket) {
  int domain = 0;
  int type = 0;
  socklen_t length = sizeof domain;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX) return false;
  length = sizeof type;
  return ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

}  // namespace

Result<std::unique_ptr<Port>> make_forwarded_port(UniqueFd socket, const UdpPortOptions& options) {
  if (options.slot >= roce::Qpn::kSlots || !keeps_messages_apart(socket.get())) return fail(EINVAL);
  memory::install_fault_guard();  // send() reads the application's memory
  try {
    return std::make_unique<ForwardedPort>(std::move(socket), options.port, options);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

}  // namespace verbena::net
