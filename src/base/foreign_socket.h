// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <sys/socket.h>
#include <sys/types.h>

#include "base/bytes.h"
#include "base/own_fd.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena {

// The user of the process that a descriptor came from, if that is not known.
inline constexpr uid_t kUnknownUser = static_cast<uid_t>(-1);

// Closes a descriptor that came from another process, on a background thread. close() of an unknown file may
// block as long as the other process wishes: a TCP socket with SO_LINGER, or a file whose server does not
// answer. The thread is started on demand and ends when nothing is left to close. Neither the caller nor the
// exit of the process waits for the thread. A child after fork() starts its own thread.
//
// If a close takes much processor time, other descriptors of `user` wait for ten times as long (UserPauses).
// At most kMaxDiscarded wait: beyond that, logs a warning and leaves the descriptor open for good.
//
// Thread-safe. Never blocks; no cancellation point.
void discard(UniqueFd fd, uid_t user = kUnknownUser);

// Shuts a socket down on a background thread and closes it, or passes it to discard() if its close() may
// block. shutdown(2) and the removal of messages wake all epoll(7) watches of the peer's end, so these calls
// take as long as the peer likes. The thread therefore removes few messages at a time, with pauses as for
// discard(). Thread-safe.
void discard_socket(UniqueFd socket, uid_t user = kUnknownUser);

// Return the number of descriptors that wait to be closed, for all users or for one. Descriptors that are
// being closed do not count. Waiting descriptors still count against RLIMIT_NOFILE. Thread-safe.
size_t discarding();
size_t discarding(uid_t user);

// Owns a descriptor that came from another process and may refer to any kind of file. Closing it may block,
// so the destructor passes it to discard(), for the user it came from. Only use calls that block for no kind
// of file: fcntl(F_GET_SEALS) before fstat(2), which may ask a file server; getsockopt(SO_DOMAIN) before any
// other socket call.
class ForeignFd {
 public:
  ForeignFd() = default;
  explicit ForeignFd(UniqueFd fd, uid_t user = kUnknownUser) : fd_(std::move(fd)), user_(user) {}
  ForeignFd(ForeignFd&&) = default;
  ForeignFd& operator=(ForeignFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(user_, other.user_);
    return *this;
  }
  ~ForeignFd() { discard(std::move(fd_), user_); }

  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }

  // Releases the descriptor to the caller. REQUIRES: the caller knows that close() of this file does not
  // block. Closing a memfd can wait, too, if a process of another user has locked it (fcntl(2), F_SETLK)
  UniqueFd take_known() { return std::move(fd_); }

 private:
  UniqueFd fd_;
  uid_t user_ = kUnknownUser;
};

// A message in a socket's receive queue, as ForeignSocket::look() sees it.
struct ForeignMessage {
  size_t bytes = 0;        // 0 if the peer has closed its end, and for an empty message
  bool is_longer = false;  // the message exceeds the buffer
  // More descriptors come with the message than Room allowed, or than this process may open.
  bool has_more_files = false;
  ForeignFd file;
  std::optional<ucred> sender;
};

// Our end of a Unix socket with message boundaries (SOCK_SEQPACKET) whose other end another process has. The
// peer may attach descriptors to any message, and before Linux 6.16 the kernel cannot refuse them. Receiving
// such a message without taking its descriptors closes them, and so does closing the socket. That close may
// block (ForeignFd).
//
// So this class peeks at messages (MSG_PEEK): their descriptors remain open in the queue. The caller removes
// a message only if it has no descriptors or holds copies of all of them. On any other message the caller
// closes the socket, which goes to discard() with all queued messages.
//
// One thread at a time. Never blocks.
class ForeignSocket {
 public:
  // The ancillary data that the caller accepts with a message.
  struct Room {
    bool sender = false;        // credentials; needs SO_PASSCRED on the socket
    bool file = false;          // one descriptor
    uid_t user = kUnknownUser;  // the peer's: for discard() of descriptors that the peer sends
  };

  ForeignSocket() = default;
  ForeignSocket(UniqueFd socket) : socket_(std::move(socket)) {}  // NOLINT(google-explicit-constructor)
  ForeignSocket(ForeignSocket&&) = default;
  ForeignSocket& operator=(ForeignSocket&& other) noexcept {
    std::swap(socket_, other.socket_);
    return *this;
  }
  // Like hang_up_later(), because the caller may hold locks.
  ~ForeignSocket() { hang_up_later(); }

  int get() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  // Returns false if the application has closed the descriptor by its number (base/own_fd.h).
  bool is_ours() const { return socket_.is_ours(); }

  // Peeks at the next message, which stays in the queue: copies the data to `buffer`, and takes the ancillary
  // data that `room` allows. Errors: EAGAIN if there is none; others of recvmsg(2), except EINTR.
  Result<ForeignMessage> look(Bytes buffer, Room room) const;
  // Removes the message that look() returned last. REQUIRES: has_more_files was false. REQUIRES: the caller
  // still has the message's descriptor, if there is one, or knows that its close() does not block
  void drop() const;

  // Shuts the connection down and closes the socket without blocking. The peer sees the end even if a child
  // process has a copy of the descriptor.
  void hang_up();
  // Like hang_up(), but on another thread, because the calls may take long (discard_socket()). `user`: the
  // user of the other end.
  void hang_up_later(uid_t user = kUnknownUser);
  // Returns the socket as it is, for the caller to shut down and close on a thread that may wait.
  UniqueFd take() { return socket_.settle() ? socket_.take() : UniqueFd(); }
  // Shuts the connection down and removes up to `most` messages, until one with descriptors is the next.
  // Returns false if more messages without descriptors may be left: then call this function again before
  // part(), which removes at most 1024. A peer's buffer holds thousands where net.core.wmem_max is large.
  bool clear_some(size_t most);
  // Like hang_up(), but returns the socket for the caller to close if its close() may block. This is so if
  // messages with descriptors, or more than 1024 messages, are queued. Otherwise closes the socket and
  // returns an empty UniqueFd.
  UniqueFd part();
  // For a child after fork(): closes the child's copy only; the parent's connection stays open.
  void abandon() { socket_.reset(); }

 private:
  enum class Left : uint8_t { kNothing, kMessages, kDescriptors };
  Left remove_some(size_t most) const;

  OwnFd socket_;
};

}  // namespace verbena
