// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "base/bytes.h"
#include "base/failed_call.h"
#include "base/own_fd.h"
#include "base/result.h"
#include "base/time.h"
#include "control/client/agent_connection.h"
#include "control/model/admin_error.h"
#include "control/protocol/messages.h"

namespace verbena::control {

// Maximum time that a call waits for an agent to listen. The time in which an agent is being started does not
// count. Command-line programs also wait this long for a reply.
inline constexpr Duration kCallTimeout = std::chrono::seconds(2);
// Returns the time kCallTimeout from now.
inline TimePoint call_deadline() {
  return MonotonicClock::now() + kCallTimeout;
}
// The patience of command-line programs, which give up so that the user sees an error.
inline constexpr Patience kCommandPatience{kCallTimeout, kCallTimeout};

// An agent to which a session has just connected. Restorers report the process's state to this agent.
struct NewAgent {
  AgentConnection& connection;
  uint32_t generation;  // one more than that of the previous agent
  TimePoint deadline;   // for the agent's replies; TimePoint::max() if there is none
  int link_table;       // the agent's link table file, see link.h
};

// Reports one part of the process's state, such as its slots, to each new agent.
class Restorer {
 public:
  virtual ~Restorer() = default;
  // Reports this part of the state to a new agent. Called in a turn of the session (AgentSession::Turn), by
  // the thread that connected to the agent. If this returns an error, the session drops the agent and tries
  // the next one.
  virtual Result<void> restore(const NewAgent& agent) = 0;
  // Returns whether attend() should connect to the next agent when an agent has ended. If no restorer needs
  // an agent, attend() does not connect; the session's next call does.
  virtual bool needs_agent() = 0;
};

// A message that the agent sends without a request.
struct AgentEvent {
  protocol::MessageHeader header;
  ConstBytes message;  // the header included; at most protocol::kMaxEventBytes
  std::vector<UniqueFd>& fds;
  int socket;  // the socket for answers
};

// Handles the events of a session's agent.
class AgentListener {
 public:
  virtual ~AgentListener() = default;
  // Handles an event. Called by the thread in attend(), one event at a time. An implementation may not call
  // the session. Returns false for an invalid message; the session then drops the agent's event socket.
  virtual bool on_event(AgentEvent event) = 0;
};

struct SessionOptions {
  // How long calls wait. By default, a call waits without limit for the reply of an agent that is stopped or
  // starved, as it would wait for the kernel. Programs would take an error for "no device".
  Patience patience{kCallTimeout, Patience::kAsLongAsItLives};
  // Maximum time that attend() waits for a new agent's replies. After that time it gives up and tries again
  // later, since the thread that calls attend() may have other work.
  Duration attend_limit = kCallTimeout;
};

// A process's session with its agent, which continues with the next agent after an agent was killed. At the
// first call, connects to an agent or starts one. When the agent has ended, tries to reach the next one with
// back-off, and makes the restorers report the process's state to it.
//
// Thread-safe, with two locks: `turn_mutex_`, then `event_mutex_`. A thread holds `turn_mutex_` while it
// waits for the agent's reply, and never waits while it holds `event_mutex_`.
//
// An agent may send this process the takeover state (agent/takeover/takeover_state.h). Without the takeover
// state, the next agent cannot use UDP port 4791 while programs hold sockets of that port. The session sends
// the takeover state only to an agent of the same user as the sender. The session drops the state when it
// connects to another user's agent. A process that has changed its user might otherwise pass root's takeover
// state to any program of the new user.
class AgentSession {
 public:
  // Calls the restorers in this order. If `listener` is null, events are read and dropped. REQUIRES:
  // restorers and listener outlive the session
  AgentSession(std::unique_ptr<AgentDialer> dialer, std::vector<Restorer*> restorers,
               AgentListener* listener = nullptr, SessionOptions options = {});

  // A sequence of calls to the agent by one thread, for as long as the Turn exists. Other threads' turns
  // wait. Restorers are called only in turns, so the state that they read must be changed only in turns.
  class Turn {
   public:
    explicit Turn(AgentSession& session);

    // Connects to an agent if not connected, with the session's patience. Returns the agent's error with its
    // text, ETIMEDOUT, or ECONNREFUSED when there is no agent and none can be started.
    AdminResult<void> connect();

    // Sends the request that `make_request()` returns (a Result<Request>), and waits for the reply, which
    // must have at least `min_fds` descriptors. If the agent has ended, repeats both steps once with the next
    // agent. Returns ENOMEM instead of throwing std::bad_alloc, because destructors call the agent, too.
    template <class Reply, class MakeRequest>
    AdminResult<Answer<Reply>> call_made(protocol::MessageType type, const MakeRequest& make_request,
                                         size_t min_fds = 0, std::span<const int> fds = {}) {
      try {
        auto answer = call_one_or_the_next<Reply>(type, make_request, min_fds, fds);
        // Records the agent's reason as the reason of the program's failed call, for the error log.
        if (!answer && !answer.error().text.empty()) because(answer.error().code, "{}", answer.error().text);
        return answer;
      } catch (const std::bad_alloc&) {
        return tl::unexpected(AdminError{ENOMEM, {}});
      }
    }
    template <class Reply = protocol::PlainReply, class Request>
    AdminResult<Answer<Reply>> call(protocol::MessageType type, const Request& request, size_t min_fds = 0,
                                    std::span<const int> fds = {}) {
      return call_made<Reply>(
          type, [&]() -> Result<Request> { return request; }, min_fds, fds);
    }

    // Returns the capabilities of the latest agent (protocol::HelloReply); 0 before the first connection.
    uint64_t capabilities() const { return session_.capabilities_; }

    // These functions return the agent's pid, and the descriptor of the takeover state. The pid is 0 if
    // unknown or not connected. The descriptor is -1 if the agent has sent none.
    pid_t agent_pid() const { return session_.connection_ ? session_.connection_->agent_pid() : 0; }
    int takeover_state() const {
      return session_.takeover_state_.is_ours() ? session_.takeover_state_.get() : -1;
    }

   private:
    template <class Reply, class MakeRequest>
    AdminResult<Answer<Reply>> call_one_or_the_next(protocol::MessageType type,
                                                    const MakeRequest& make_request, size_t min_fds,
                                                    std::span<const int> fds) {
      for (int attempt = 0;; ++attempt) {
        if (auto reached = session_.reach(); !reached) return tl::unexpected(std::move(reached.error()));
        const auto request = make_request();
        if (!request) return tl::unexpected(AdminError{request.error().code, {}});
        AgentConnection& connection = *session_.connection_;
        auto answer = connection.call<Reply>(type, *request, min_fds,
                                             deadline_after(session_.options_.patience.to_answer), fds);
        if (answer || !connection.lost() || attempt > 0) return answer;
      }
    }

    AgentSession& session_;
    std::unique_lock<std::mutex> lock_;
  };

  // Returns the number of agents that the session has connected to so far. The number identifies the current
  // agent. Agents that ended before all restorers had reported to them count, too.
  uint32_t generation() const { return generation_.load(std::memory_order_acquire); }

  // Returns a descriptor that is readable when attend() has work; -1 before the first call. The descriptor
  // stays the same, so that it can stay in an epoll set. If the application closes the descriptor by mistake,
  // the next call creates another.
  int event_fd() const { return poll_set_.get(); }
  // Returns event_fd() if it is open and still the session's; else -1.
  int checked_event_fd();
  // Reads the agent's events. If the agent has ended and a restorer needs one, connects to the next agent. If
  // none listens, starts one and makes event_fd() readable later. Called by one thread at a time. Blocks only
  // while it connects and the restorers report, for up to `attend_limit`.
  void attend();
  // Sends a message to the agent on the event socket, without blocking. ENOTCONN if there is no agent now,
  // EAGAIN if the socket is full. EOPNOTSUPP if the agent's protocol version is below `since`, the first one
  // with this message.
  Result<void> send_event(ConstBytes message, uint16_t since = protocol::kOldestProtocolVersion);

  // Closes the descriptors in a child process after fork(), without a message to the agent. Takes no lock and
  // frees nothing, because a thread of the parent may have held a lock at the fork(). Later calls fail with
  // ECONNREFUSED.
  void abandon();

 private:
  AdminResult<void> reach();                                                // REQUIRES: in a turn
  AdminResult<void> greet(AgentConnection connection, TimePoint deadline);  // REQUIRES: in a turn
  AdminResult<void> restore(TimePoint deadline, int link_table);            // REQUIRES: in a turn
  Result<void> make_poll_set();                                             // REQUIRES: in a turn
  bool needs_agent() const;                                                 // REQUIRES: in a turn
  void seek_agent();
  bool may_start_now();
  // REQUIRES for all six: event_mutex_ is held
  void receive_events();
  void pause_events();
  void resume_events();
  void watch_events(UniqueFd socket);
  void forget_events();
  void set_timer(Duration delay);
  Duration longest_retry() const;  // REQUIRES: in a turn

  const std::unique_ptr<AgentDialer> dialer_;
  const std::vector<Restorer*> restorers_;
  AgentListener* const listener_;
  const SessionOptions options_;
  std::atomic<bool> abandoned_{false};
  std::atomic<uint32_t> generation_{0};

  std::mutex turn_mutex_;
  std::optional<AgentConnection> connection_;
  uint64_t capabilities_ = 0;
  OwnFd takeover_state_;
  uid_t takeover_state_of_;         // the user of the agent that sent it
  OwnFd poll_set_;                  // of events_ and timer_
  bool are_events_paused_ = false;  // events_ is not in poll_set_; under event_mutex_
  uid_t agent_uid_;                 // written under both locks

  std::mutex event_mutex_;  // taken after turn_mutex_
  OwnFd events_;            // the event socket; reports the agent's end first
  uint16_t version_ = 0;    // protocol version in use with the agent of events_
  OwnFd timer_;
  Duration retry_;
  TimePoint next_start_{};
};

}  // namespace verbena::control
