// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/socket.h>

#include "base/own_fd.h"

namespace verbena::net {

// Sends a datagram, or a super-packet, whose pages the kernel's packet refers to, in place of copies: by way
// of a pipe (vmsplice(2), splice(2)). Its first bytes go by sendmsg(2) with MSG_MORE, as only that says where
// to and how; what is spliced into a socket joins what it holds back.
//
// Where that fails, as in a sandbox that forbids it or in a user's share of pipes' memory (pipe(7)), the
// datagram goes by a copy, and so do the next ones. One thread at a time.
class SplicePipe {
 public:
  // Less is not worth three system calls.
  static constexpr size_t kLeastBytes = 16384;
  // How many go by a copy after a failure.
  static constexpr uint32_t kBackOff = 10'000;

  // What sendmsg() of the message answers. The memory from `copied` bytes on has to stay as it is until the
  // receiver has taken it. REQUIRES: the message has one piece of memory, of more than `copied` bytes
  ssize_t send(int socket, msghdr& message, size_t copied);

  // False: the application has closed the pipe, and what has its numbers now is no business of ours.
  bool is_whole() const { return !in_ || (in_.is_ours() && out_.is_ours()); }

  // How many have gone without a copy.
  uint64_t spliced() const { return spliced_; }

 private:
  bool is_ready();
  bool open();
  void back_off(const char* what, int error);

  OwnFd in_;
  OwnFd out_;
  uint32_t by_copy_ = 0;
  uint64_t spliced_ = 0;
};

}  // namespace verbena::net
