// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/socket.h>

#include "base/own_fd.h"

namespace verbena::net {

// Sends a datagram or super-packet without copying it: the kernel's packet refers to the pages of the
// sender's memory. The pages go through a pipe to the socket (vmsplice(2), splice(2)). The first bytes are
// copied by sendmsg(2) with MSG_MORE, since only sendmsg() can name the destination and the control messages.
// The socket appends the spliced bytes to the copied ones.
//
// If splicing fails, this datagram and the next kBackOff are sent by copy. Reasons are a sandbox that forbids
// the calls, or a user's limit for pipe memory (pipe(7)). One thread at a time.
class SplicePipe {
 public:
  // Minimum size in bytes for sending without a copy: for less, a copy is cheaper than two system calls.
  static constexpr size_t kLeastBytes = 16384;
  // After a splice failure, this many datagrams are sent by copy before splicing is tried again.
  static constexpr uint32_t kBackOff = 10'000;

  // Sends the message, of which the first `copied` bytes are copied, and returns what sendmsg() would return.
  // The bytes behind them must stay unchanged until the receiver has taken the datagram. REQUIRES: the
  // message has one piece of memory, of more than `copied` bytes
  ssize_t send(int socket, msghdr& message, size_t copied);

  // Returns false if the application has closed the pipe, whose descriptor numbers may now be other files'.
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
