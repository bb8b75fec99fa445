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
#include "control/client/agent_dialer.h"
#include "control/model/admin_error.h"
#include "control/protocol/messages.h"

namespace verbena::control {

// How long a call waits for an agent to come, not counting the start of one, and how long a command waits for
// an answer.
inline constexpr Duration kCallTimeout = std::chrono::seconds(2);
inline TimePoint call_deadline() {
  return MonotonicClock::now() + kCallTimeout;
}
// The patience of a command, which gives up so that its user sees why.
inline constexpr Patience kCommandPatience{kCallTimeout, kCallTimeout};

// An agent that a session has just greeted, to which restorers report the process's state.
struct NewAgent {
  AgentConnection& connection;
  uint32_t generation;  // one more than that of the previous agent
  TimePoint deadline;   // for its answers; TimePoint::max(): none
  int link_table;       // the file of its links, see link_table_file.h
};

// Reports one part of the process's state to each new agent.
class Restorer {
 public:
  virtual ~Restorer() = default;
  // Called in a turn of the session (AgentSession::Turn), by the thread that reached the agent. An error
  // means that this agent is of no use, and the session looks for another.
  virtual Result<void> restore(const NewAgent& agent) = 0;
  // Whether the session should look for the next agent before a call needs one.
  virtual bool needs_agent() = 0;
};

// A message that the agent sends without being asked.
struct AgentEvent {
  protocol::MessageHeader header;
  ConstBytes message;  // the header included; at most protocol::kMaxEventBytes
  std::vector<UniqueFd>& fds;
  int socket;  // where to answer
};

// Handles the events of a session's agent.
class AgentListener {
 public:
  virtual ~AgentListener() = default;
  // Called by the thread in attend(), one event at a time; must not call the session. False: the message is
  // no valid event, and the session drops the agent's event socket.
  virtual bool on_event(AgentEvent event) = 0;
};

struct SessionOptions {
  // For calls. Programs take an error for "no device", so a call waits for an agent that is stopped or
  // starved, as it would for the kernel.
  Patience patience{kCallTimeout, Patience::kAsLongAsItLives};
  // For attend(), whose thread may have other work: how long a new agent may take to answer before it is
  // tried again later.
  Duration attend_limit = kCallTimeout;
};

// A process's session with its agent, which survives the agent's death. It connects to an agent or starts
// one, says hello, and passes the takeover state on. When the agent has ended, it looks for the successor
// with back-off, and has restorers report the process's state to that. Connects at the first call.
//
// Thread-safe, with two locks, taken in this order. The lock of turns is held for as long as the agent takes.
// The lock of events is never held across anything that waits.
//
// The takeover state (agent/takeover/takeover_state.h) is what the next agent needs to
// have the wire again. An agent may entrust it to this process. The first process that greets a new agent
// should bring it; without it the agent serves without the wire. The session passes it only to an agent of
// the user who gave it, and drops it on meeting another user's agent: a process that root's agent trusted,
// and that has changed its user since, may meet any program of that user under the agent's name.
class AgentSession {
 public:
  // Calls the restorers in this order. `listener` may be null: events are read and dropped. REQUIRES:
  // restorers and listener outlive the session
  AgentSession(std::unique_ptr<AgentDialer> dialer, std::vector<Restorer*> restorers,
               AgentListener* listener = nullptr, SessionOptions options = {});

  // A sequence of calls by one thread. While a turn lasts, calls of other threads wait, and only calls of
  // this turn call restorers. So the state that restorers read is changed in turns only.
  class Turn {
   public:
    explicit Turn(AgentSession& session);

    // Connects to an agent if not connected. Waits for an agent that lives for as long as the session's
    // patience says. Errors: the agent's, with its text; ETIMEDOUT; ECONNREFUSED when there is no agent and
    // none can be started.
    AdminResult<void> connect();

    // Sends the request that `make_request()`, a Result<Request>, makes for the present agent. Waits for the
    // reply, with at least `min_fds` descriptors. If the agent is found dead, repeats this once with the next
    // one. Throws nothing, as destructors call the agent, too: ENOMEM.
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

    // The agent's capabilities, from its answer to hello.
    uint64_t capabilities() const { return session_.capabilities_; }

    // The agent's process (0: unknown, or no agent), and the descriptor of the takeover state that it has
    // entrusted to this process (-1: none).
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

  // The number of agents that were greeted, which identifies the newest one; 0: none yet. Counts also those
  // that died before they knew the process's state.
  uint32_t generation() const { return generation_.load(std::memory_order_acquire); }

  // Readable when attend() has something to do. Exists from the first agent on. The number and its meaning
  // never change (an epoll set may keep it), unless the application closes it: the next call makes another.
  int event_fd() const { return poll_set_.get(); }
  // Reads the agent's events. Notices its death, and takes one step towards the next agent if a restorer
  // needs one: connects if one listens, else starts one and comes back later. Called by one thread at a time;
  // blocks no longer than a connect and the restorers take.
  void attend();
  // Sends a message to the agent, on the socket of its events. Never blocks. ENOTCONN: there is no agent now;
  // EOPNOTSUPP: its protocol version is before `since`, that of the message; EAGAIN: the agent is behind with
  // reading.
  Result<void> send_event(ConstBytes message, uint16_t since = protocol::kOldestProtocolVersion);

  // In a child after fork(): closes the child's copies of the descriptors and tells the agent nothing. Takes
  // no lock and frees nothing, because a thread of the parent may have been in the middle of anything. Later
  // calls are refused.
  void abandon();

 private:
  AdminResult<void> reach();                                                // REQUIRES: in a turn
  AdminResult<void> greet(AgentConnection connection, TimePoint deadline);  // REQUIRES: in a turn
  AdminResult<void> restore(TimePoint deadline, int link_table);            // REQUIRES: in a turn
  Result<void> make_poll_set();                                             // REQUIRES: in a turn
  bool needs_agent() const;                                                 // REQUIRES: in a turn
  void seek_agent();
  bool may_start_now();
  // REQUIRES for all four: event_mutex_ is held
  void receive_events();
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
  uid_t takeover_state_of_;  // the user of the agent that gave it
  OwnFd poll_set_;           // of events_ and timer_
  uid_t agent_uid_;          // written under both locks

  std::mutex event_mutex_;  // taken after turn_mutex_
  OwnFd events_;            // shows the agent's end first
  uint16_t version_ = 0;    // protocol version in use with the agent of events_
  OwnFd timer_;
  Duration retry_;
  TimePoint next_start_{};
};

}  // namespace verbena::control
