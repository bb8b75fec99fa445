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

// What the sockets of all clients have in common: how many descriptors lie in them, sent by us and not taken
// yet, what memory is in files that were sent, and who closes what may take long. The kernel passes no
// descriptor for a user who has more than RLIMIT_NOFILE of them under way, and for us that is all that our
// clients let lie: so each user gets a share.
//
// Of the agent's thread.
class ClientSockets {
 public:
  // `unread`: how many descriptors clients may leave in the sockets, all together.
  //
  // REQUIRES: the loop outlives this, and this all sockets
  ClientSockets(EventLoop& loop, Quota::Size unread, uid_t own)
      : loop_(loop),
        files_(loop, own, HeldFiles::room_with(descriptor_limit())),
        unread_(unread, own),
        replies_(room_for_replies(unread), own) {}
  ~ClientSockets();
  ClientSockets(const ClientSockets&) = delete;
  ClientSockets& operator=(const ClientSockets&) = delete;

  ForeignCloser& closer() { return closer_; }
  // The memory in files that clients were sent.
  HeldFiles& files() { return files_; }
  // The room for unread descriptors of an agent with this RLIMIT_NOFILE; the vault uses the rest.
  static Quota::Size room_with(size_t descriptors);
  // The part of it for replies, to hello and other requests. It is less than 2,024 (UNIX_INFLIGHT_SANE_USER
  // in net/unix/garbage.c). Beyond that number the kernel lets each sender of a socket wait for a search
  // through all sockets on their way, and each greeting sends one.
  static Quota::Size room_for_replies(Quota::Size room);
  // Descriptors that clients have been sent and have not taken.
  const Quota& unread() const { return unread_; }
  // Replies to a client's requests and events that it did not ask for go by sockets of their own.
  enum class For : uint8_t { kReplies, kEvents };
  bool allows(uid_t user, size_t files, For what) const {
    return unread_.allows(user, files) && (what == For::kEvents || replies_.allows(user, files));
  }
  void sent(uid_t user, size_t files, For what);
  // Notes that they were taken. Wakes one waiting socket of each user.
  void taken(uid_t user, size_t files, For what);
  // Has the loop look at the socket again for messages once there may be room. 0 is no ticket.
  uint64_t await_room(uid_t user, int socket);
  void cancel_wait(uid_t user, uint64_t ticket);
  // Closes a socket. What was sent by it is counted until the client has taken it, or is gone.
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
  Quota replies_;  // those of unread_ that were asked for
  std::list<Left> left_;
  uint64_t last_ticket_ = 0;
  std::map<uid_t, std::map<uint64_t, int>> waiting_;  // none empty
  std::optional<EventLoop::TimerId> next_look_;
};

// Our end of a socket whose other end a client has. A client may send descriptors with each message: they are
// taken only where one is asked for (base/foreign_socket.h). One that takes none of what it is sent costs a
// bounded number of descriptors.
//
// Of the agent's thread. Never blocks.
class ClientSocket {
 public:
  // What a client may leave of our descriptors, beside what is always sent.
  static constexpr size_t kMaxUnread = 256;

  // REQUIRES: nobody else has a copy of our end
  ClientSocket(ClientSockets& all, uid_t user, UniqueFd socket,
               ClientSockets::For what = ClientSockets::For::kEvents)
      : all_(all), user_(user), what_(what), socket_(std::move(socket)) {}
  ~ClientSocket();
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  int get() const { return socket_.get(); }

  // The next message, which stays the next.
  struct Message {
    size_t bytes = 0;        // 0: the client has hung up
    bool is_longer = false;  // than the buffer
    bool has_files = false;  // beside `file`
    ClientFile file;
  };
  // With `with_file` it brings a descriptor with it, if it has one. Errors: EAGAIN: there is none; the
  // kernel's.
  Result<Message> look(Bytes buffer, bool with_file = false) const;
  // Takes out the message that was looked at last. REQUIRES: it has no more files than the one that is held
  void drop() const { socket_.drop(); }

  // Whether the client may be sent so many descriptors now, in view of what it and its user have not taken.
  bool may_send(size_t files);
  // Whether it has taken all descriptors that it was sent.
  bool is_read() { return unread() == 0; }
  // Whether it takes none.
  bool is_clogged() { return unread() >= kMaxUnread; }
  // One message, now or not at all. EAGAIN: it does not fit; ETOOMANYREFS: the kernel takes no more.
  Result<void> send(ConstBytes message, std::span<const int> fds = {});

 private:
  size_t unread();

  ClientSockets& all_;
  const uid_t user_;
  const ClientSockets::For what_;
  ForeignSocket socket_;
  size_t unread_ = 0;  // since all was taken the last time
};

}  // namespace verbena::agent
