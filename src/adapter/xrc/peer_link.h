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

// This process's end of a socket to another process. Messages leave in order, and wait here while the socket
// is full or not there yet. Never blocks, and allocates only for waiting messages. For the holder of the
// shard's lock.
class PeerLink {
 public:
  // Maximum size of the waiting messages, together.
  static constexpr size_t kMaxWaiting = 512 << 10;

  int fd() const { return socket_.get(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  // Whether the other end is gone or broke the protocol: nothing is sent any more.
  bool is_lost() const { return lost_; }
  // Whether the other end is gone, though messages of it may still be unread.
  bool has_hung_up() const;
  void lose() { lost_ = true; }
  bool has_waiting() const { return !waiting_.empty(); }

  // Sets the socket and sends the waiting messages by it.
  void open(ForeignSocket socket);
  // In a child after fork(): leaves the link to the parent.
  void abandon() { socket_.abandon(); }

  // Sends one message that consists of these pieces, or keeps it waiting. False: there is no room, or the
  // link is lost.
  bool send(std::span<const iovec> pieces);
  // Sends waiting messages as far as there is room.
  void flush();

  // Returns the next message. Empty: there is none, or the link is lost.
  ConstBytes receive(Bytes buffer);

 private:
  bool keep(std::span<const iovec> pieces);

  ForeignSocket socket_;
  bool lost_ = false;
  std::deque<std::vector<std::byte>> waiting_;
  size_t waiting_bytes_ = 0;
};

}  // namespace verbena::engine
