// SPDX-License-Identifier: Apache-2.0
#include "agent/takeover/stopped_agent.h"

#include <chrono>
#include <system_error>
#include <utility>

#include <fcntl.h>

#include "agent/slots/process.h"
#include "base/log.h"

namespace verbena::agent {
namespace {

// Short enough for a queue pair with the usual timeouts, which gives up after 0.5 s.
constexpr Duration kInterval = std::chrono::milliseconds(100);

}  // namespace

StoppedAgent::StoppedAgent() : thread_([this] { run(); }) {}

StoppedAgent::~StoppedAgent() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void StoppedAgent::watch(pid_t agent, UniqueFd takeover_state) {
  const std::lock_guard lock(mutex_);
  agent_ = agent;
  takeover_state_ = std::move(takeover_state);
}

void StoppedAgent::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kInterval, [this] { return ended_; })) consider();
  end();
}

void StoppedAgent::consider() {
  const bool stopped = is_stopped(agent_);
  if (stopped && !forwarder_) begin();
  if (!stopped && forwarder_) end();
}

void StoppedAgent::begin() try {
  log_info("the agent (pid {}) is stopped: packets are forwarded in its place", agent_);
  contents_ = TakeoverState::look(takeover_state_.get());
  forwarder_.emplace();
  for (const SlotRecord& slot : contents_.slots) {
    if (!slot.leased || slot.socket < 0 || slot.forwarder_end < 0) continue;
    UniqueFd end(::fcntl(slot.forwarder_end, F_DUPFD_CLOEXEC, 3));
    const auto goes_on = forwarder_->go_on(slot.index, slot.socket, std::move(end));
    if (!goes_on) log_warning("slot {} gets no packets: errno {}", slot.index, goes_on.error().code);
  }
} catch (const std::system_error& error) {
  log_warning("the agent is stopped, and no packets are forwarded: errno {}", error.code().value());
}

void StoppedAgent::end() {
  forwarder_.reset();
  contents_ = {};
}

}  // namespace verbena::agent
