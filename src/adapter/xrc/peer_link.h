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

// This process's end of a socket to another process. Messages are sent in order, and wait in the PeerLink
// while the socket is full or not open yet. Never blocks, and allocates memory only for waiting messages.
// Call only with the shard's lock held.
class PeerLink {
 public:
  // Maximum size of all waiting messages together, in bytes.
  static constexpr size_t kMaxWaiting = 512 << 10;

  int fd() const { return socket_.get(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  // Whether the other end is closed, has broken the protocol, or lose() was called. Nothing is sent or
  // received any more.
  bool is_lost() const { return lost_; }
  // Whether the other end is closed. Messages that it sent before may still be unread.
  bool has_hung_up() const;
  void lose() { lost_ = true; }
  bool has_waiting() const { return !waiting_.empty(); }

  // Sets the socket and sends the waiting messages.
  void open(ForeignSocket socket);
  // Leaves the link to the parent. Called in a child after fork().
  void abandon() { socket_.abandon(); }

  // Sends one message that consists of these pieces, or adds it to the waiting messages. Returns false if the
  // waiting messages would exceed kMaxWaiting, or the link is lost.
  bool send(std::span<const iovec> pieces);
  // Sends waiting messages until the socket is full.
  void flush();

  // Reads the next message into `buffer` and returns it. Returns an empty span if there is none or the link
  // is lost. A message longer than `buffer` makes the link lost.
  ConstBytes receive(Bytes buffer);

 private:
  bool keep(std::span<const iovec> pieces);

  ForeignSocket socket_;
  bool lost_ = false;
  std::deque<std::vector<std::byte>> waiting_;
  size_t waiting_bytes_ = 0;
};

}  // namespace verbena::engine
