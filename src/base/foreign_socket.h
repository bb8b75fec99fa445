// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include <sys/socket.h>

#include "base/bytes.h"
#include "base/foreign_fd.h"
#include "base/own_fd.h"
#include "base/result.h"

namespace verbena {

// A message in a socket's receive queue, as ForeignSocket::look() sees it.
struct ForeignMessage {
  size_t bytes = 0;        // 0 if the peer has closed its end
  bool is_longer = false;  // the message exceeds the buffer
  // More descriptors come with the message than there was room for, or than this process may open.
  bool has_more_files = false;
  ForeignFd file;
  std::optional<ucred> sender;
};

// Our end of a Unix socket with message boundaries (SOCK_SEQPACKET) whose other end another process has. The
// peer may attach descriptors to any message, and before Linux 6.16 the kernel cannot refuse them. Receiving
// such a message without taking its descriptors closes them, and so does closing the socket. That close may
// block (foreign_fd.h).
//
// So this class peeks at messages (MSG_PEEK): their descriptors remain open in the queue. The caller removes
// a message only if it has no descriptors or holds copies of all of them. On any other message it closes the
// socket, which goes to discard() with its contents.
//
// One thread at a time. Never blocks.
class ForeignSocket {
 public:
  // The ancillary data that the caller accepts with a message.
  struct Room {
    bool sender = false;  // credentials; needs SO_PASSCRED on the socket
    bool file = false;    // one descriptor
  };

  ForeignSocket() = default;
  ForeignSocket(UniqueFd socket) : socket_(std::move(socket)) {}  // NOLINT(google-explicit-constructor)
  ForeignSocket(ForeignSocket&&) = default;
  ForeignSocket& operator=(ForeignSocket&& other) noexcept {
    std::swap(socket_, other.socket_);
    return *this;
  }
  ~ForeignSocket() { hang_up(); }

  int get() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  // Returns false if the application has closed the descriptor by its number (base/own_fd.h).
  bool is_ours() const { return socket_.is_ours(); }

  // Peeks at the next message, which stays in the queue: copies the data to `buffer`, and takes the ancillary
  // data that `room` allows. Errors: EAGAIN if there is none; others of recvmsg(2), except EINTR.
  Result<ForeignMessage> look(Bytes buffer, Room room) const;
  // Removes the message that look() returned last. REQUIRES: has_more_files was false. REQUIRES: the
  // message's descriptor, if any, is still held, or its close() is known not to block
  void drop() const;

  // Shuts the connection down and closes the socket without blocking. The peer sees the end even if a child
  // process has a copy of the descriptor.
  void hang_up();
  // Like hang_up(), but returns the socket for the caller to close if its close() may block, because messages
  // with descriptors are queued. Otherwise closes the socket and returns an empty descriptor.
  UniqueFd part();
  // For a child after fork(): closes the child's copy only; the parent's connection stays open.
  void abandon() { socket_.reset(); }

 private:
  bool becomes_empty() const;

  OwnFd socket_;
};

}  // namespace verbena
