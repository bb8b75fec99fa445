// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>

#include <sys/types.h>

#include "agent/descriptor_limit.h"
#include "agent/event_loop.h"
#include "agent/sessions/foreign_closer.h"
#include "agent/sessions/held_files.h"
#include "base/bytes.h"
#include "base/foreign_socket.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// State that all client sockets share: the number of sent descriptors that clients have not received yet, the
// memory of sent files, and threads for slow closes. The kernel passes no descriptors for a user with more
// than RLIMIT_NOFILE of them in flight. For the agent, all descriptors that its clients leave in sockets
// count. So each user gets a share.
//
// For the agent's thread.
class ClientSockets {
 public:
  // `unread`: maximum number of descriptors that all clients together may leave in their sockets.
  //
  // REQUIRES: `loop` outlives this object, and this object outlives all sockets
  ClientSockets(EventLoop& loop, Quota::Size unread, uid_t own)
      : loop_(loop),
        files_(loop, own, HeldFiles::room_with(descriptor_limit())),
        unread_(unread, own),
        replies_(room_for_replies(unread), own) {}
  ~ClientSockets();
  ClientSockets(const ClientSockets&) = delete;
  ClientSockets& operator=(const ClientSockets&) = delete;

  ForeignCloser& closer() { return closer_; }
  // The memory of files that were sent to clients.
  HeldFiles& files() { return files_; }
  // Returns the maximum of unread descriptors for an agent with this RLIMIT_NOFILE. The takeover state uses
  // the rest.
  static Quota::Size room_with(size_t descriptors);
  // Returns the part of that maximum for replies to hello and other requests. It is below 2,024
  // (UNIX_INFLIGHT_SANE_USER in net/unix/garbage.c). With more, the kernel makes each sender of a socket wait
  // for a search through all sockets in flight, and each hello reply sends one.
  static Quota::Size room_for_replies(Quota::Size room);
  // Descriptors that were sent to clients and not received yet.
  const Quota& unread() const { return unread_; }
  // A client has one socket for replies, and one for events that it did not request.
  enum class For : uint8_t { kReplies, kEvents };
  bool allows(uid_t user, size_t files, For what) const {
    return unread_.allows(user, files) && (what == For::kEvents || replies_.allows(user, files));
  }
  void sent(uid_t user, size_t files, For what);
  // Records that the descriptors were received. Wakes one waiting socket of each user.
  void taken(uid_t user, size_t files, For what);
  // Registers the socket to be read again once there may be room. Returns a ticket for cancel_wait(), never
  // 0.
  uint64_t await_room(uid_t user, int socket);
  void cancel_wait(uid_t user, uint64_t ticket);
  // Closes a socket. Its sent descriptors count until the client has received them or is gone.
  void close(uid_t user, ForeignSocket socket, size_t unread, For what);

 private:
  struct Left {
    uid_t user;
    ForeignSocket socket;
    size_t unread;
    For what;
  };
  void look_later();
  void look();

  EventLoop& loop_;
  ForeignCloser closer_;
  HeldFiles files_;
  Quota unread_;
  Quota replies_;  // the part of unread_ in replies
  std::list<Left> left_;
  uint64_t last_ticket_ = 0;
  std::map<uid_t, std::map<uint64_t, int>> waiting_;  // no empty maps
  std::optional<EventLoop::TimerId> next_look_;
};

// The agent's end of a socket to a client. A client may send descriptors with each message: the agent
// receives them only where it expects one (base/foreign_socket.h). A client that receives nothing costs a
// limited number of descriptors.
//
// For the agent's thread. Never blocks.
class ClientSocket {
 public:
  // Maximum number of descriptors that a client may leave unread, beside those that are always sent.
  static constexpr size_t kMaxUnread = 256;

  // REQUIRES: no other process has a copy of `socket`
  ClientSocket(ClientSockets& all, uid_t user, UniqueFd socket,
               ClientSockets::For what = ClientSockets::For::kEvents)
      : all_(all), user_(user), what_(what), socket_(std::move(socket)) {}
  ~ClientSocket();
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  int get() const { return socket_.get(); }

  // A message that was looked at and stays in the socket.
  struct Message {
    size_t bytes = 0;        // 0: the client has closed its end
    bool is_longer = false;  // the message is longer than the buffer
    bool has_files = false;  // descriptors beside `file`
    ClientFile file;
  };
  // Returns the next message. `with_file`: also receives its first descriptor. EAGAIN: there is no message;
  // other errors: the kernel's.
  Result<Message> look(Bytes buffer, bool with_file = false) const;
  // Removes the message that was looked at last. REQUIRES: it has no descriptors beside the received one
  void drop() const { socket_.drop(); }

  // Whether the client may be sent `files` descriptors now, given what it and its user have not received.
  bool may_send(size_t files);
  // Whether the client has received all descriptors that it was sent.
  bool is_read() { return unread() == 0; }
  // Whether the client seems to receive no descriptors: it has kMaxUnread in its socket.
  bool is_clogged() { return unread() >= kMaxUnread; }
  // Sends one message without waiting. EAGAIN: it does not fit. ETOOMANYREFS: the kernel accepts no more
  // descriptors.
  Result<void> send(ConstBytes message, std::span<const int> fds = {});

 private:
  size_t unread();

  ClientSockets& all_;
  const uid_t user_;
  const ClientSockets::For what_;
  ForeignSocket socket_;
  size_t unread_ = 0;  // descriptors sent since all were last received
};

}  // namespace verbena::agent
