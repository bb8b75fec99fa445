// SPDX-License-Identifier: Apache-2.0
#include "net/udp/route_check.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/failed_call.h"
#include "base/plain_socket.h"
#include "base/unique_fd.h"
#include "roce/prefix.h"

namespace verbena::net {
namespace {

// Answers of rtnetlink to one question at a time.
class RouteSocket {
 public:
  RouteSocket() : fd_(plain_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {}
  explicit operator bool() const { return static_cast<bool>(fd_); }

  // Whether the tables have a route for packets of the path; an errno value: there is none, or, EAGAIN, the
  // kernel cannot be asked.
  Result<void> ask(const roce::Path& path) {
    struct {
      nlmsghdr header;
      rtmsg route;
      alignas(4) std::byte attributes[64];
    } question{};
    const bool ipv4 = path.destination.is_ipv4();
    question.route.rtm_family = ipv4 ? AF_INET : AF_INET6;
    question.route.rtm_dst_len = question.route.rtm_src_len = ipv4 ? 32 : 128;
    question.route.rtm_flags = RTM_F_FIB_MATCH;
    size_t used = 0;
    const auto put = [&](uint16_t type, const void* data, size_t bytes) {
      const rtattr attribute{static_cast<uint16_t>(RTA_LENGTH(bytes)), type};
      std::memcpy(question.attributes + used, &attribute, sizeof attribute);
      std::memcpy(question.attributes + used + RTA_LENGTH(0), data, bytes);
      used += RTA_SPACE(bytes);
    };
    const size_t bytes = ipv4 ? 4 : 16;
    put(RTA_DST, path.destination.bytes.data() + (16 - bytes), bytes);
    put(RTA_SRC, path.source.bytes.data() + (16 - bytes), bytes);
    if (path.interface_index != 0) put(RTA_OIF, &path.interface_index, sizeof path.interface_index);
    question.header.nlmsg_len = static_cast<uint32_t>(NLMSG_LENGTH(sizeof(rtmsg)) + used);
    question.header.nlmsg_type = RTM_GETROUTE;
    question.header.nlmsg_flags = NLM_F_REQUEST;
    if (::send(fd_.get(), &question, question.header.nlmsg_len, 0) < 0) return fail(EAGAIN);
    return answer();
  }

 private:
  // The kernel answers before send(2) returns.
  Result<void> answer() const {
    alignas(nlmsghdr) std::byte buffer[4096];
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(rtmsg)))) return fail(EAGAIN);
    nlmsghdr header;
    std::memcpy(&header, buffer, sizeof header);
    if (header.nlmsg_type == NLMSG_ERROR) {
      nlmsgerr error;
      std::memcpy(&error.error, buffer + NLMSG_LENGTH(0), sizeof error.error);
      return fail(error.error != 0 ? -error.error : EAGAIN);
    }
    return {};
  }

  UniqueFd fd_;
};

// Errors by which the kernel says that there is no route. Others say that it cannot be asked.
bool says_no_route(int error) {
  static constexpr int kErrors[] = {ENETUNREACH, EHOSTUNREACH, EACCES};
  return std::ranges::find(kErrors, error) != std::end(kErrors);
}

}  // namespace

Result<void> check_route(const roce::Path& path) {
  if (path.destination.is_multicast() || path.destination.is_link_local()) return {};
  if (path.source.is_ipv4() != path.destination.is_ipv4()) return {};  // sending fails, for another reason
  RouteSocket routes;
  if (!routes) return {};
  const auto route = routes.ask(path);
  if (route || !says_no_route(route.error().code)) return {};
  return fail(because(route.error().code, "no route to {} from {}", roce::text_of(path.destination),
                      roce::text_of(path.source)));
}

}  // namespace verbena::net
