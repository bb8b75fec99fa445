// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "base/bytes.h"
#include "base/own_fd.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "control/model/admin_error.h"
#include "control/model/agent_process.h"
#include "control/protocol/messages.h"

namespace verbena::control {

template <class Reply>
struct Answer {
  Reply message{};
  std::vector<UniqueFd> fds;
};

// A connection to an agent. Sends one request at a time and waits for its reply. Not thread-safe.
class AgentConnection {
 public:
  // Takes over a connected, blocking SOCK_SEQPACKET socket. `agent_pid` is 0 if unknown.
  AgentConnection(UniqueFd socket, uid_t agent_uid, pid_t agent_pid = 0);

  // Sends the first request of a connection, kHello, with the descriptor `takeover_state` if it is open. Both
  // sides then use the highest protocol version that both know. EPROTONOSUPPORT if there is none, EPERM if
  // the agent serves another user. The first of these two errors in a process is logged.
  AdminResult<Answer<protocol::HelloReply>> say_hello(const OwnFd& takeover_state, TimePoint deadline);

  // Fills in the request's header, sends the request with the descriptors `fds`, and waits for the reply
  // until the deadline (ETIMEDOUT). With TimePoint::max(), waits as long as the agent runs. Returns the
  // agent's error if the agent refuses the request. EPROTO if the reply has fewer than `min_fds` descriptors.
  // ECONNRESET or EPIPE if the agent has ended.
  template <class Reply, class Request>
  AdminResult<Answer<Reply>> call(protocol::MessageType type, Request request, size_t min_fds,
                                  TimePoint deadline, std::span<const int> fds = {}) {
    request.header = protocol::request_header(type, ++sequence_, version_);
    Answer<Reply> answer;
    auto result = exchange(
        request.header, protocol::bytes_of(request), fds,
        {std::as_writable_bytes(std::span(&answer.message, 1)), &protocol::bytes_in<Reply>}, deadline);
    if (!result) return tl::unexpected(std::move(result.error()));
    answer.fds = std::move(*result);
    if (answer.fds.size() < min_fds) return lose(EPROTO);
    return answer;
  }

  // Returns whether the connection is closed, so that all further calls fail. A call closes the connection if
  // the agent has ended or broken the protocol. kHello and kTakeSlot also close it if this process may open
  // no descriptors for the reply. abandon() closes it as well.
  bool lost() const { return lost_; }
  // Returns the protocol version in use on this connection.
  uint16_t version() const { return version_; }
  uid_t agent_uid() const { return agent_uid_; }
  pid_t agent_pid() const { return agent_pid_; }

  // Closes the socket in a child process after fork(). The parent's copy stays connected.
  void abandon();

 private:
  // The buffer for a reply, and a function that returns the reply's length in a protocol version.
  struct ReplyPlace {
    Bytes bytes;
    size_t (*length_in)(uint16_t version);
  };
  AdminResult<std::vector<UniqueFd>> exchange(const protocol::MessageHeader& header, ConstBytes request,
                                              std::span<const int> fds, const ReplyPlace& reply,
                                              TimePoint deadline);
  // Checks a received message. Returns true if it is the reply to `request`, false if it is a late reply to
  // an earlier call that timed out. Returns an error if the agent refuses the request or broke the protocol.
  AdminResult<bool> judge(ConstBytes message, const protocol::MessageHeader& request,
                          const ReplyPlace& reply);
  // Adopts the protocol version of the agent's reply to kHello, if it is older and known to this side.
  void consider_version_of(const protocol::MessageHeader& answer);
  tl::unexpected<AdminError> lose(int code);
  tl::unexpected<AdminError> refuse_without_descriptors(const protocol::MessageHeader& request);
  tl::unexpected<AdminError> lose_to_stranger(uint16_t version);

  OwnFd socket_;
  uid_t agent_uid_;
  pid_t agent_pid_;
  uint32_t sequence_ = 0;
  uint16_t version_ = protocol::kProtocolVersion;
  uint16_t agents_version_ = protocol::kProtocolVersion;  // of the agent's last reply
  bool lost_ = false;
};

// Connects to a running agent, or starts one. An interface, so that tests can connect to a fake agent. Used
// by one thread at a time.
class AgentDialer {
 public:
  virtual ~AgentDialer() = default;

  // Connects to the agent that listens now. ECONNREFUSED if none listens, EAGAIN if its queue of new
  // connections is full.
  virtual Result<AgentConnection> open() = 0;
  // Returns whether an agent may be started if none listens.
  virtual bool may_start() const = 0;
  // Starts an agent. The returned descriptor becomes readable when the agent listens or has given up, for
  // example because another agent listens.
  virtual Result<UniqueFd> start() = 0;

  // Connects by open(), and calls start() if necessary and allowed. Then calls `greet(connection, deadline)`,
  // which sends kHello and returns an AdminResult<void>. If the agent ends meanwhile, repeats this with the
  // next agent. Starts no agent before `start_after`, because a restarting agent may listen soon. Returns
  // ECONNREFUSED when no agent has listened for `patience.to_come`, ETIMEDOUT when an agent has not answered
  // for `patience.to_answer`.
  //
  // Waits longer, up to kLongestStart in total, for a started agent that neither listens nor has given up.
  // The machine or its disk may be busy.
  template <class Greet>
  AdminResult<void> open_and_greet(const Patience& patience, TimePoint start_after, Greet&& greet) {
    Duration for_starts = kLongestStart;
    TimePoint give_up = deadline_after(patience.to_come);
    for (;;) {
      auto connection = open_or_start(give_up, patience, start_after, for_starts);
      if (!connection) return tl::unexpected(error_of(connection.error().code));
      const TimePoint before = MonotonicClock::now();
      auto greeted = greet(std::move(*connection), deadline_after(patience.to_answer));
      const bool again = !greeted && (greeted.error().code == ECONNRESET || greeted.error().code == EPIPE);
      // The time that greet() took does not count against `patience.to_come`: an agent was there.
      give_up += MonotonicClock::now() - before;
      if (!again || MonotonicClock::now() >= give_up) return greeted;
      std::this_thread::sleep_for(kRetryInterval);
    }
  }

 protected:
  std::string cannot_start_;  // the error text if no agent comes after the latest start()

 private:
  static constexpr Duration kLongestStart = std::chrono::seconds(60);
  static constexpr Duration kRetryInterval = std::chrono::milliseconds(5);

  AdminError error_of(int code) const;
  // Connects to an agent, starting one if necessary. `give_up` is the time to stop. It is put off by the time
  // that starts take, and by the time that a running agent's queue of new connections is full. `for_starts`
  // is the time left for starts, which each start reduces.
  Result<AgentConnection> open_or_start(TimePoint& give_up, const Patience& patience, TimePoint start_after,
                                        Duration& for_starts);
  // Calls open() repeatedly after a start, and returns the result of the last call. Stops when open()
  // succeeds, when `ready`, the descriptor from start(), becomes readable, or at `give_up`.
  Result<AgentConnection> open_started(int ready, TimePoint give_up);
};

struct ConnectOptions {
  bool start_agent = true;    // start an agent if none answers
  std::string agent_program;  // if empty, searched beside this library and in PATH (VERBENA_AGENT overrides)
};

// Connects to the agent of this network namespace: root's, or else that of the process's user. Tries both
// agents' socket files, in directories where no other user can create one. Then tries the agents' abstract
// names, which any user can take, and trusts the listener only if it belongs to root or the process's user.
class NamespaceDialer final : public AgentDialer {
 public:
  explicit NamespaceDialer(ConnectOptions options = {}) : options_(std::move(options)) {}

  // ECONNREFUSED also if only an untrusted process listens at an agent's abstract name.
  Result<AgentConnection> open() override;
  bool may_start() const override { return options_.start_agent; }
  Result<UniqueFd> start() override;

 private:
  const ConnectOptions options_;
  Result<AgentConnection> open_by_name(uid_t owner);

  bool missed_program_ = false;  // the error that no program was found has been logged
  bool told_of_stranger_ = false;
  // Times until which open() tries no connection to an abstract name, because an untrusted process listens
  // there. The first element is for the name of root's agent, the second for that of the process's user.
  TimePoint stranger_until_[2]{};
  bool told_of_user_ = false;  // the error that a set-user-ID program starts no agent has been logged
  TimePoint busy_since_[2]{};  // since when the listener at root's abstract name, and at that of the
                               // process's user, has been busy
};

}  // namespace verbena::control
