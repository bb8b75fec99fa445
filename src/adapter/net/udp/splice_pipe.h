// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/socket.h>

#include "base/own_fd.h"

namespace verbena::net {

// Sends a datagram or super-packet without copying it: the kernel's packet refers to the memory's pages. The
// pages go through a pipe (vmsplice(2), splice(2)). The first bytes go by sendmsg(2) with MSG_MORE, since
// only sendmsg() can name the destination and the control messages; the socket appends the spliced bytes to
// them.
//
// If that fails, as in a sandbox that forbids it or beyond a user's share of pipe memory (pipe(7)), this
// datagram and the next ones are sent by copy. One thread at a time.
class SplicePipe {
 public:
  // A shorter datagram is not worth three system calls.
  static constexpr size_t kLeastBytes = 16384;
  // After a splice failure, this many datagrams are sent by copy before splicing is tried again.
  static constexpr uint32_t kBackOff = 10'000;

  // Sends the message and returns what sendmsg() would return. The memory from `copied` bytes on must stay
  // unchanged until the receiver has taken it. REQUIRES: the message has one piece of memory, of more than
  // `copied` bytes
  ssize_t send(int socket, msghdr& message, size_t copied);

  // False: the application has closed the pipe, and its descriptor numbers may be other files'.
  bool is_whole() const { return !in_ || (in_.is_ours() && out_.is_ours()); }

  // How many datagrams were sent without a copy.
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
