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

// A message that lies in a socket.
struct ForeignMessage {
  size_t bytes = 0;        // 0: the other has hung up
  bool is_longer = false;  // than the buffer
  // Descriptors come with it for which there was no room; or this process may open no more of them.
  bool has_more_files = false;
  ForeignFd file;
  std::optional<ucred> sender;
};

// Our end of a Unix socket of messages (SOCK_SEQPACKET), whose other end another process has. That may send
// descriptors with each message, asked for or not, and the kernel has no way to refuse them before Linux
// 6.16. Who receives such a message without taking the descriptor closes it, and so does who closes the
// socket while it lies in there; and to close it may block (discard.h).
//
// So messages are looked at where they lie. What is looked at twice is not closed when the first look is
// over. Only a message whose descriptors are known, or that has none, is then taken out; and who finds any
// other closes the socket, which is left to discard() with all that is in it.
//
// One thread at a time. Nothing blocks.
class ForeignSocket {
 public:
  // What a message may bring.
  struct Room {
    bool sender = false;  // as the socket is set (SO_PASSCRED)
    bool file = false;    // one
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
  // False: the application has closed it, as what is not its own (base/own_fd.h).
  bool is_ours() const { return socket_.is_ours(); }

  // The next message, which stays the next. Errors: EAGAIN: there is none; the kernel's. Not EINTR.
  Result<ForeignMessage> look(Bytes buffer, Room room) const;
  // Takes out the message that was looked at last.
  // REQUIRES: it has no more files; the one that it has is closed at once, or is still held
  void drop() const;

  // Closes it. The other is told, also if a child of ours has a copy.
  void hang_up();
  // The same, but what may take long to close is for the caller to close: nothing, if nothing lies in it.
  UniqueFd part();
  // In a child after fork(): our copy goes, and the socket stays the parent's.
  void abandon() { socket_.reset(); }

 private:
  bool becomes_empty() const;

  OwnFd socket_;
};

}  // namespace verbena
