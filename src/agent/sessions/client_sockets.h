// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>

#include <sys/types.h>

#include "agent/event_loop.h"
#include "agent/own_process.h"
#include "agent/sessions/client_files.h"
#include "base/bytes.h"
#include "base/foreign_socket.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Returns the socket on which a service manager listens for the agent (sd_listen_fds(3)), so that clients can
// connect before the agent starts. Returns an empty descriptor if there is none, or if it does not listen at
// this user's agent name. Clears the environment variables, so that no child process uses them. Call before
// other threads are started.
UniqueFd take_passed_socket();

// Holds the state that all client sockets share: the number of sent descriptors that clients have not
// received yet, the memory of sent files, and threads for slow closes.
//
// The kernel passes no descriptors for a user with more than RLIMIT_NOFILE of them in flight. All descriptors
// that the agent's clients leave in sockets count for the agent's user. So the agent divides that number
// among its clients' users.
//
// For the agent's thread.
class ClientSockets {
 public:
  // `unread`: maximum number of descriptors that all clients together may leave in their sockets. `received`:
  // maximum number of clients' descriptors that the agent may have open. `refused`: maximum number of further
  // ones that wait to be closed.
  //
  // REQUIRES: `loop` outlives this object, and this object outlives all sockets
  ClientSockets(EventLoop& loop, Quota::Size unread, uid_t own,
                Quota::Size received = ForeignCloser::room_with(descriptor_limit()),
                Quota::Size refused = ForeignCloser::refused_with(descriptor_limit()));
  ~ClientSockets();

  EventLoop& loop() { return loop_; }
  ForeignCloser& closer() { return closer_; }
  // Returns the counter of the memory of files that were sent to clients.
  HeldFiles& files() { return files_; }
  // Returns the maximum number of unread descriptors: half of `descriptors`. The takeover state has the rest.
  static Quota::Size room_with(size_t descriptors);
  // Returns the part of `room` for replies to hello and other requests: at most 1,536 descriptors. That is
  // below 2,024 (UNIX_INFLIGHT_SANE_USER in net/unix/garbage.c). With more, the kernel makes each sender of a
  // socket wait for a search through all sockets in flight, and each hello reply sends a socket.
  static Quota::Size room_for_replies(Quota::Size room);
  // Returns the quota of descriptors that were sent to clients and not received yet.
  const Quota& unread() const { return unread_; }
  // The purpose of a socket. A client has one socket for replies, and one for events that it did not request.
  enum class For : uint8_t { kReplies, kEvents };
  // Returns whether `files` more descriptors may be sent to clients of the user.
  bool allows(uid_t user, size_t files, For what) const {
    return unread_.allows(user, files) && (what == For::kEvents || replies_.allows(user, files));
  }
  // Counts descriptors that were sent.
  void sent(uid_t user, size_t files, For what);
  // Stops counting descriptors that were received. Wakes one waiting socket of each user (await_room()).
  void taken(uid_t user, size_t files, For what);
  // Registers a socket whose next request must wait until allows() returns true. The event loop reads the
  // socket again once there may be room. Also used for three other waits: until closer() allows the user
  // another descriptor, until a look of HeldFiles has ended, or while SlotLeases::is_behind(). Returns a
  // ticket for cancel_wait(), never 0.
  uint64_t await_room(uid_t user, int socket);
  void cancel_wait(uid_t user, uint64_t ticket);
  // Closes a socket. Its `unread` sent descriptors count until the client has received them or is gone.
  // Destroys `share` when the socket is closed.
  void close(uid_t user, ForeignSocket socket, size_t unread, For what, QuotaShare share);
  // Maximum number of refused clients' sockets that wait to be shut down. The agent has accepted these
  // sockets already, and shutting one down may take as long as its client likes.
  static constexpr size_t kMaxRefused = 512;
  // Closes the socket of a client that has no session. Returns may_refuse().
  bool refuse(uid_t user, ForeignSocket socket);
  // Returns whether fewer than kMaxRefused refused sockets wait. If not, the caller should accept no client
  // for now.
  bool may_refuse() const;

 private:
  struct Left {
    uid_t user;
    ForeignSocket socket;
    size_t unread;
    For what;
    QuotaShare share;
  };
  void take_closed();
  void wake_one_of_each_user();
  void wake_all_of(uid_t user);
  void look_later();
  void look();

  EventLoop& loop_;
  ForeignCloser closer_;
  HeldFiles files_;
  Quota unread_;
  Quota replies_;  // the part of unread_ in replies
  // Has a copy for each refused socket that waits to be shut down. Its use count is their number plus one.
  const std::shared_ptr<void> refused_ = std::make_shared<char>();
  std::list<Left> left_;
  uint64_t last_ticket_ = 0;
  std::map<uid_t, std::map<uint64_t, int>> waiting_;  // no empty maps
  DeadlineTimer next_look_{loop_, [this] {
                             look();
                             look_later();
                           }};
};

// The agent's end of a socket to a client. A client may send descriptors with each message: the agent
// receives them only where it expects one (base/foreign_socket.h). A client that receives nothing costs a
// limited number of descriptors (kMaxUnread).
//
// For the agent's thread. Never blocks.
class ClientSocket {
 public:
  // Maximum number of unread descriptors in one socket. A link table is sent even beyond that.
  static constexpr size_t kMaxUnread = 256;

  // `share` is the quota share in which the socket counts until it is closed, which may be after this object
  // is destroyed. REQUIRES: no other process has a copy of `socket`
  ClientSocket(ClientSockets& all, uid_t user, UniqueFd socket,
               ClientSockets::For what = ClientSockets::For::kEvents, QuotaShare share = {})
      : all_(all), user_(user), what_(what), share_(std::move(share)), socket_(std::move(socket)) {}
  ~ClientSocket();

  int get() const { return socket_.get(); }

  // A message that look() has read, and that stays in the socket.
  struct Message {
    size_t bytes = 0;        // 0: the client has closed its end
    bool is_longer = false;  // the message is longer than the buffer
    bool has_files = false;  // the message has descriptors besides `file`
    ClientFile file;
  };
  // Reads the next message into `buffer` without removing it from the socket. `with_file`: also receives the
  // message's first descriptor. Fails with EAGAIN if there is no message, otherwise with the kernel's errno.
  Result<Message> look(Bytes buffer, bool with_file = false) const;
  // Removes the message that look() read last. The removal wakes all epoll(7) watches of the client's end,
  // which may take long. So its time counts as the user's (UserTurns), like the time to send a message.
  // REQUIRES: the message has no descriptors except the one that look() received
  void drop() const;

  // Returns whether the client may be sent `files` more descriptors: this socket has at most kMaxUnread then,
  // and the share of the client's user allows them.
  bool may_send(size_t files);
  // Returns whether the client has received all descriptors. If so, stops counting them.
  bool is_read() { return unread() == 0; }
  // Returns whether the client seems to receive no descriptors: kMaxUnread or more are in its socket.
  bool is_clogged() { return unread() >= kMaxUnread; }
  // Sends one message without waiting. Fails with EAGAIN if the message does not fit, or ETOOMANYREFS if the
  // kernel accepts no more descriptors.
  Result<void> send(ConstBytes message, std::span<const int> fds = {});

 private:
  size_t unread();

  ClientSockets& all_;
  const uid_t user_;
  const ClientSockets::For what_;
  QuotaShare share_;
  ForeignSocket socket_;
  size_t unread_ = 0;  // descriptors sent since all were last received
};

}  // namespace verbena::agent
