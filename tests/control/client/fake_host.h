// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/text.h"
#include "base/time.h"
#include "control/client/agent_connection.h"
#include "control/client/fake_agent.h"
#include "control/protocol/status_page.h"

namespace verbena::control::test {

// A host on which the test chooses the agents that run, one after the other. Its dialers connect to them. It
// must outlive the dialers.
class FakeHost {
 public:
  // Runs an agent of `user`, which listens from now on.
  FakeAgent& run(FakeAgent::Script script, uid_t user = ::geteuid()) {
    const std::lock_guard lock(mutex_);
    return agents_.emplace_back(std::move(script), user);
  }
  // Allows clients to start an agent with this script. Otherwise they may not start one.
  void let_start(FakeAgent::Script script) {
    const std::lock_guard lock(mutex_);
    startable_.push_back(std::move(script));
  }
  // The same, but starting takes `start`.
  void let_start_slowly(FakeAgent::Script script, Duration start) {
    let_start(std::move(script));
    const std::lock_guard lock(mutex_);
    start_ = start;
  }
  // The same, and when the start begins, another agent begins to listen.
  void let_start_slowly_beside(FakeAgent::Script other, FakeAgent::Script script, Duration start) {
    let_start_slowly(std::move(script), start);
    const std::lock_guard lock(mutex_);
    other_ = std::move(other);
  }
  // Allows clients to start agents, but none of these ever listens.
  void let_start_in_vain() {
    const std::lock_guard lock(mutex_);
    in_vain_ = true;
  }
  FakeAgent& agent() {
    const std::lock_guard lock(mutex_);
    return agents_.back();
  }
  // The number of connection attempts, and of agents started.
  int opened() {
    const std::lock_guard lock(mutex_);
    return opened_;
  }
  int started() {
    const std::lock_guard lock(mutex_);
    return started_;
  }

  std::unique_ptr<AgentDialer> dialer() { return std::make_unique<Dialer>(*this); }

 private:
  class Dialer final : public AgentDialer {
   public:
    explicit Dialer(FakeHost& host) : host_(host) {}
    Result<AgentConnection> open() override { return host_.open(); }
    bool may_start() const override { return host_.may_start(); }
    Result<UniqueFd> start() override { return host_.start(); }

   private:
    FakeHost& host_;
  };

  Result<AgentConnection> open() {
    const std::lock_guard lock(mutex_);
    ++opened_;
    if (start_ > Duration::zero() && listens_at_ && MonotonicClock::now() >= *listens_at_) {
      start_ = Duration::zero();
      agents_.emplace_back(std::move(startable_.front()));
      startable_.erase(startable_.begin());
    }
    if (agents_.empty() || agents_.back().is_dead()) return fail(ECONNREFUSED);
    return agents_.back().connection();
  }
  bool may_start() {
    const std::lock_guard lock(mutex_);
    return in_vain_ || !startable_.empty();
  }
  Result<UniqueFd> start() {
    const std::lock_guard lock(mutex_);
    ++started_;
    if (start_ > Duration::zero()) return start_slowly();
    if (!startable_.empty()) {
      agents_.emplace_back(std::move(startable_.front()));
      startable_.erase(startable_.begin());
    }
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return fail(errno);
    ::close(ends[1]);
    return UniqueFd(ends[0]);
  }
  // Returns a timer, which becomes readable after `start_` as a closed pipe would. The agent listens from
  // then on.
  Result<UniqueFd> start_slowly() {
    UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(start_);
    const itimerspec when{{}, {seconds.count(), (start_ - seconds).count()}};
    if (!timer || ::timerfd_settime(timer.get(), 0, &when, nullptr) != 0) return fail(errno);
    listens_at_ = MonotonicClock::now() + start_;
    if (other_) agents_.emplace_back(std::move(*std::exchange(other_, std::nullopt)));
    return timer;
  }

  std::mutex mutex_;
  std::list<FakeAgent> agents_;  // the last one listens
  std::vector<FakeAgent::Script> startable_;
  std::optional<FakeAgent::Script> other_;
  bool in_vain_ = false;
  Duration start_{};  // startup time of the next agent
  std::optional<TimePoint> listens_at_;
  int opened_ = 0;
  int started_ = 0;
};

inline constexpr char kNoWire[] = "this agent has no wire";

// The secret in a slot's status page. Slot 1 has none, as with an older agent.
constexpr protocol::SlotSecret secret_of(uint32_t slot) {
  return slot == 1 ? protocol::SlotSecret{} : protocol::SlotSecret{slot, 0x5ec7e7};
}

// Returns the script of an agent without a wire. It has these links and leases slots, numbered from 1; it
// accepts all other requests.
inline FakeAgent::Script lend_slots(std::vector<Link> links = {}) {
  LinkSnapshot snapshot;
  snapshot.links = std::move(links);
  return [snapshot, next = uint32_t{1}](const FakeAgent::Request& request) mutable {
    using protocol::MessageType;
    if (request.type() == MessageType::kHello) {
      return FakeAgent::greet(request, protocol::kProtocolVersion, protocol::kServesXrcDomains, snapshot);
    }
    FakeAgent::Answer answer = FakeAgent::agree(request);
    if (request.type() == MessageType::kGetLinks) answer.fds.push_back(std::move(*write_link_file(snapshot)));
    if (request.type() == MessageType::kTakeSlot) {
      protocol::TakeSlotReply reply{};
      reply.header = FakeAgent::header(request, protocol::kProtocolVersion);
      reply.index = next++;
      store_text(reply.no_wire_reason, kNoWire);
      answer = FakeAgent::say(reply);
      UniqueFd page(::memfd_create("status", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      if (::ftruncate(page.get(), sizeof(protocol::StatusPage)) != 0 ||
          ::fcntl(page.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        std::abort();
      }
      const auto at = static_cast<off_t>(offsetof(protocol::StatusPage, secret));
      const protocol::SlotSecret secret = secret_of(reply.index);
      if (::pwrite(page.get(), secret.data(), sizeof secret, at) != sizeof secret) std::abort();
      answer.fds.push_back(std::move(page));
    }
    return answer;
  };
}

}  // namespace verbena::control::test
