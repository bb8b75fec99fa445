// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/splice_pipe.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>

#include "adapter/net/udp/system_calls.h"
#include "base/log.h"
#include "base/socket_option.h"

namespace verbena::net {
namespace {

constexpr int kPipeBytes = 65536;  // sixteen pages: the maximum of one call

// Sends the partial datagram that the socket holds back. It is of no use to any receiver.
void let_go(int socket) {
  set_option(socket, IPPROTO_UDP, UDP_CORK, 0);
}

}  // namespace

ssize_t SplicePipe::send(int socket, msghdr& message, size_t copied) {
  if (!is_ready()) return system_calls::sendmsg(socket, &message, MSG_DONTWAIT);
  iovec& data = *message.msg_iov;
  const iovec whole = data;
  data.iov_len = copied;
  const ssize_t begun = system_calls::sendmsg(socket, &message, MSG_MORE | MSG_DONTWAIT);
  data = whole;
  if (begun < 0) return begun;

  const iovec rest = {static_cast<std::byte*>(whole.iov_base) + copied, whole.iov_len - copied};
  const auto wanted = static_cast<ssize_t>(rest.iov_len);
  ssize_t got = system_calls::vmsplice(in_.get(), &rest, 1, SPLICE_F_NONBLOCK);
  if (got == wanted) {
    got = system_calls::splice(out_.get(), socket, rest.iov_len, SPLICE_F_NONBLOCK);
    if (got == wanted) {
      ++spliced_;
      return begun + got;
    }
  }
  back_off("splice", got < 0 ? errno : 0);
  let_go(socket);
  return system_calls::sendmsg(socket, &message, MSG_DONTWAIT);
}

bool SplicePipe::is_ready() {
  if (by_copy_ > 0) {
    --by_copy_;
    return false;
  }
  return in_ || open();
}

bool SplicePipe::open() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    back_off("pipe", errno);
    return false;
  }
  out_ = UniqueFd(ends[0]);
  in_ = UniqueFd(ends[1]);
  if (fcntl(in_.get(), F_GETPIPE_SZ) >= kPipeBytes) return true;
  back_off("pipe size", 0);
  return false;
}

void SplicePipe::back_off(const char* what, int error) {
  log_debug("super-packets go by a copy: {} failed with errno {}", what, error);
  in_.reset();  // with whatever is left in it
  out_.reset();
  by_copy_ = kBackOff;
}

}  // namespace verbena::net
