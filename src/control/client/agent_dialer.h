// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "control/client/agent_connection.h"
#include "control/model/admin_error.h"
#include "control/model/agent_silence.h"

namespace verbena::control {

// Connects to an agent: one that runs, or one that it starts. Tests use a dialer that connects to a fake
// agent. Used by one thread at a time.
class AgentDialer {
 public:
  virtual ~AgentDialer() = default;

  // Connects to the agent that listens now. ECONNREFUSED: none does; EAGAIN: it is busy.
  virtual Result<AgentConnection> open() = 0;
  // Whether an agent may be started if none listens.
  virtual bool may_start() const = 0;
  // Starts an agent. The returned descriptor becomes readable when the agent listens, or has given up: then
  // another may be listening.
  virtual Result<UniqueFd> start() = 0;

  // Connects by open(), and by start() if necessary and allowed. Then says hello by `greet(connection,
  // deadline)`, an AdminResult<void>. If the agent turns out to be ending, repeats this with the next one.
  // Starts none before `start_after`: an agent may be on its way. Gives up when no agent has listened for
  // `patience.to_come` (ECONNREFUSED), or when one has not answered for `patience.to_answer` (ETIMEDOUT).
  //
  // An agent that was started, and neither listens nor has given up, is waited for longer, for kLongestStart
  // in all: the machine or its disk may be busy.
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
      // The time that an agent lived and was silent does not count against `patience.to_come`.
      give_up += MonotonicClock::now() - before;
      if (!again || MonotonicClock::now() >= give_up) return greeted;
      std::this_thread::sleep_for(kRetryInterval);
    }
  }

 protected:
  std::string cannot_start_;  // why the latest start() has brought no agent, if it has not

 private:
  static constexpr Duration kLongestStart = std::chrono::seconds(60);
  static constexpr Duration kRetryInterval = std::chrono::milliseconds(5);

  AdminError error_of(int code) const;
  // Connects to an agent, starting one if necessary. Puts `give_up` off by the time that starts take, and by
  // the time that a listening agent has no room for this connection.
  Result<AgentConnection> open_or_start(TimePoint& give_up, const Patience& patience, TimePoint start_after,
                                        Duration& for_starts);
  // Waits until `ready`, which start() returned, is readable, or another agent listens. Returns the last
  // result of open().
  Result<AgentConnection> open_started(int ready, TimePoint give_up);
};

struct ConnectOptions {
  bool start_agent = true;    // start an agent if none answers
  std::string agent_program;  // empty: searched beside this library, then in PATH (VERBENA_AGENT overrides)
};

// Connects to the agent of this network namespace: root's, or that of the process's user. It looks for each
// by its socket file, in a directory where nobody else can put one. Then it tries the abstract name, which
// anybody can take: the listener's user decides whether it is trusted.
class NamespaceDialer final : public AgentDialer {
 public:
  explicit NamespaceDialer(ConnectOptions options = {}) : options_(std::move(options)) {}

  // ECONNREFUSED also if only an untrusted process listens under an agent's name.
  Result<AgentConnection> open() override;
  bool may_start() const override { return options_.start_agent; }
  Result<UniqueFd> start() override;

 private:
  const ConnectOptions options_;
  Result<AgentConnection> open_by_name(uid_t owner);

  bool missed_program_ = false;  // was logged
  bool told_of_stranger_ = false;
  bool told_of_user_ = false;  // that a set-user-ID program starts none
  TimePoint busy_since_[2]{};  // root's abstract name, that of the process's user
};

}  // namespace verbena::control
