// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include <sys/uio.h>

#include "base/bytes.h"
#include "base/foreign_socket.h"

namespace verbena::engine {

// Our end of a socket to another process: messages go out in order, and wait here while the socket is full or
// not there yet. Never blocks, and allocates only for what has to wait. For the shard's lock holder.
class PeerLink {
 public:
  // So much may wait.
  static constexpr size_t kMaxWaiting = 512 << 10;

  int fd() const { return socket_.get(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  // The other end is gone, or does not understand us: nothing goes out any more.
  bool is_lost() const { return lost_; }
  // The other end is gone, though we may not have read to the end what it has said.
  bool has_hung_up() const;
  void lose() { lost_ = true; }
  bool has_waiting() const { return !waiting_.empty(); }

  // What waits goes out by it.
  void open(ForeignSocket socket);
  // In a child after fork(): the link is the parent's.
  void abandon() { socket_.abandon(); }

  // One message, of these pieces. False: there is no room, or the link is lost.
  bool send(std::span<const iovec> pieces);
  // Sends what waits, as far as there is room.
  void flush();

  // The next message; nothing: there is none (or the link is lost).
  ConstBytes receive(Bytes buffer);

 private:
  bool keep(std::span<const iovec> pieces);

  ForeignSocket socket_;
  bool lost_ = false;
  std::deque<std::vector<std::byte>> waiting_;
  size_t waiting_bytes_ = 0;
};

}  // namespace verbena::engine
