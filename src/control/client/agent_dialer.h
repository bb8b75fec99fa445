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

// The way to an agent: to the one that runs, or to one that is started. Tests put a fake agent at its end.
// Used by one thread at a time.
class AgentDialer {
 public:
  virtual ~AgentDialer() = default;

  // To the agent that listens now. ECONNREFUSED: none does; EAGAIN: it is busy.
  virtual Result<AgentConnection> open() = 0;
  // Whether one may be started where none listens.
  virtual bool may_start() const = 0;
  // Starts one. The answer becomes readable when it listens, or has given up: then another may be listening.
  virtual Result<UniqueFd> start() = 0;

  // Calls open(), and start() if need be and allowed, and then says hello by `greet(connection, deadline)`,
  // an AdminResult<void>; to another agent where the one that answered was about to end. Does not start one
  // before `start_after`: an agent may be on its way. Gives up when no agent has listened for
  // `patience.to_come` (ECONNREFUSED), or when one has not answered for `patience.to_answer` (ETIMEDOUT).
  //
  // An agent that has been started and neither listens nor has given up is waited for longer, for
  // kLongestStart in all: the machine may be busy, or its disk.
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
      // An agent that lived and was silent has used up nothing of the time for the next one to come.
      give_up += MonotonicClock::now() - before;
      if (!again || MonotonicClock::now() >= give_up) return greeted;
      std::this_thread::sleep_for(kRetryInterval);
    }
  }

 protected:
  std::string cannot_start_;  // why no agent has come of the latest start(), if none has

 private:
  static constexpr Duration kLongestStart = std::chrono::seconds(60);
  static constexpr Duration kRetryInterval = std::chrono::milliseconds(5);

  AdminError error_of(int code) const;
  // `give_up`: when no agent is waited for any more. Put off by the time that a start takes, and by the time
  // that an agent is there and has no room for us.
  Result<AgentConnection> open_or_start(TimePoint& give_up, const Patience& patience, TimePoint start_after,
                                        Duration& for_starts);
  // Until what start() has answered is readable, or another agent listens: the connection to that, if open()
  // had to be asked.
  Result<AgentConnection> open_started(int ready, TimePoint give_up);
};

struct ConnectOptions {
  bool start_agent = true;    // start one if none answers
  std::string agent_program;  // empty: found beside this library, then in PATH (VERBENA_AGENT overrides)
};

// To the agent of this network namespace: root's, or that of our own user. Each is looked for by its socket
// file, in a directory where nobody else can put one, and then by its abstract name, which counts for nothing
// by itself.
class NamespaceDialer final : public AgentDialer {
 public:
  explicit NamespaceDialer(ConnectOptions options = {}) : options_(std::move(options)) {}

  // ECONNREFUSED also where only a stranger has taken an agent's name.
  Result<AgentConnection> open() override;
  bool may_start() const override { return options_.start_agent; }
  Result<UniqueFd> start() override;

 private:
  const ConnectOptions options_;
  Result<AgentConnection> open_by_name(uid_t owner);

  bool missed_program_ = false;  // the user was told
  bool told_of_stranger_ = false;
  bool told_of_user_ = false;  // who may not start one
  TimePoint busy_since_[2]{};  // root's abstract name, our user's
};

}  // namespace verbena::control
