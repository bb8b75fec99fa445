// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

#include <libmnl/libmnl.h>
#include <sys/socket.h>

#include "agent/links/netlink_attributes.h"
#include "base/result.h"

namespace verbena::commands::doctor {

// A netlink socket that asks the kernel for lists of objects (NLM_F_DUMP).
class NetlinkDump {
 public:
  // `family` is NETLINK_ROUTE, ... If the socket cannot be opened, each ask() fails.
  explicit NetlinkDump(int family) : socket_(mnl_socket_open2(family, SOCK_CLOEXEC)) {
    if (socket_ && mnl_socket_bind(socket_.get(), 0, MNL_SOCKET_AUTOPID) >= 0) return;
    error_ = errno;
    socket_.reset();
  }

  // Sends a dump request of message type `type` with `header`. Calls callback(message, data) for each message
  // of the answer, as mnl_cb_run() of libmnl does. Errors: those of the socket's calls and those that the
  // kernel answers, such as EPERM.
  template <class Header>
  Result<void> ask(uint16_t type, const Header& header, mnl_cb_t callback, void* data) {
    if (!socket_) return fail(error_);
    alignas(nlmsghdr) std::array<char, 256> room{};
    nlmsghdr* request = mnl_nlmsg_put_header(room.data());
    request->nlmsg_type = type;
    request->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request->nlmsg_seq = ++sequence_;
    std::memcpy(mnl_nlmsg_put_extra_header(request, sizeof header), &header, sizeof header);
    if (mnl_socket_sendto(socket_.get(), request, request->nlmsg_len) < 0) return fail(errno);
    std::array<char, agent::kNetlinkBufferBytes> buffer;
    for (;;) {
      const ssize_t count = mnl_socket_recvfrom(socket_.get(), buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail(errno);
      const int more = mnl_cb_run(buffer.data(), static_cast<size_t>(count), sequence_,
                                  mnl_socket_get_portid(socket_.get()), callback, data);
      if (more < 0) return fail(errno);
      if (more == 0) return {};
    }
  }

 private:
  struct Closer {
    void operator()(mnl_socket* socket) const { mnl_socket_close(socket); }
  };

  std::unique_ptr<mnl_socket, Closer> socket_;
  int error_ = 0;
  unsigned sequence_ = 0;
};

}  // namespace verbena::commands::doctor
