// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "agent/event_loop.h"
#include "agent/sessions/served_users.h"
#include "agent/status/state_sweeper.h"
#include "agent/status/state_tree.h"
#include "base/log.h"
#include "base/paths/state_directory.h"
#include "base/paths/state_path.h"
#include "commands/agent/beside_agent.h"
#include "control/client/client.h"

namespace verbena::agent {
namespace {

constexpr Duration kPatience = std::chrono::seconds(8);
constexpr Duration kRetryInterval = std::chrono::milliseconds(5);
// The same intervals as for the agent's own counter files.
constexpr Duration kIntervalWhileRead = std::chrono::milliseconds(10);
constexpr Duration kIntervalUnread = std::chrono::seconds(1);

// The mirror's directory, and the lock on it.
struct Place {
  std::string directory;
  UniqueFd lock;
};

// Creates and locks the mirror's directory. Waits up to 8 seconds while another mirror holds the lock, then
// fails with EBUSY. Fails with EEXIST once the devices are shown.
Result<Place> take_place() {
  const TimePoint deadline = MonotonicClock::now() + kPatience;
  for (;;) {
    if (paths::state_is_shown_by() != paths::ShownBy::kNobody) return fail(EEXIST);
    auto directory = paths::make_mirror_directory();
    if (!directory) return fail(directory.error().code);
    UniqueFd lock = lock_mirror_directory(*directory);
    if (lock) return Place{std::move(*directory), std::move(lock)};
    if (MonotonicClock::now() >= deadline) return fail(EBUSY);
    std::this_thread::sleep_for(kRetryInterval);
  }
}

// Single-threaded. The StateWriter has a thread of its own.
class DeviceMirror {
 public:
  DeviceMirror(std::unique_ptr<control::Client> client, Place place)
      : client_(std::move(client)), place_(std::move(place)), state_(place_.directory) {}
  ~DeviceMirror() { state_.step_aside(); }
  DeviceMirror(const DeviceMirror&) = delete;
  DeviceMirror& operator=(const DeviceMirror&) = delete;

  EventLoop& loop() { return loop_; }

  // Returns once the directory is complete. Errors come from the agent or from creating the directory.
  Result<void> show() {
    auto links = client_->links();
    if (!links) return fail(links.error().code);
    links_ = std::move(*links);
    state_.show(links_);
    read_counters();
    state_.wait(MonotonicClock::now() + kPatience);
    auto mark = paths::mark_in_use(place_.directory);
    if (!mark) return fail(mark.error().code);
    mark_ = std::move(*mark);
    loop_.watch(client_->event_fd(), EPOLLIN, [this](uint32_t) { on_news(); });
    state_.readers().watch_in(loop_, [this] { refresh(); });
    refresh_later();
    return {};
  }

 private:
  void on_news() {
    if (auto links = client_->next_links()) {
      links_ = std::move(*links);
      state_.show(links_);
    }
  }

  void refresh() {
    if (!is_needed()) return loop_.stop();
    refresh_later();
    read_counters();
  }

  // Whether the mirror should go on: an agent runs, and the agent's own directory is not visible here. Checks
  // at most once a second, and returns true between checks: while the agent is dead, a call waits a moment
  // for the next agent.
  bool is_needed() {
    const TimePoint now = MonotonicClock::now();
    if (now < next_look_) return true;
    next_look_ = now + kIntervalUnread;
    const bool shown_by_agent = paths::state_is_shown_by() == paths::ShownBy::kAgent;
    if (!shown_by_agent && client_->links()) return true;
    log_info("{}", shown_by_agent ? "the agent shows the devices itself" : "no agent runs any more");
    return false;
  }

  void read_counters() {
    std::map<std::string, control::DeviceCounters> by_link;
    for (const control::Link& link : links_) {
      if (const auto counters = client_->device_counters(link.device_index)) by_link[link.name] = *counters;
    }
    state_.show_counters(std::move(by_link));
  }

  void refresh_later() {
    if (timer_) loop_.cancel(*timer_);
    const Duration interval = state_.readers().any() ? kIntervalWhileRead : kIntervalUnread;
    timer_ = loop_.at(MonotonicClock::now() + interval, [this] {
      timer_.reset();
      refresh();
    });
  }

  EventLoop loop_;
  const std::unique_ptr<control::Client> client_;
  const Place place_;
  StateWriter state_;
  UniqueFd mark_;  // marks the directory as valid for programs, while open
  std::vector<control::Link> links_;
  std::optional<EventLoop::TimerId> timer_;
  TimePoint next_look_{};
};

Result<void> run_mirror(UniqueFd ready, const UniqueFd& signals) {
  auto client = control::Client::connect({.start_agent = false, .agent_program = {}});
  if (!client) return fail(client.error().code);
  auto place = take_place();
  if (!place) return fail(place.error().code);
  DeviceMirror mirror(std::move(*client), std::move(*place));
  if (const auto shown = mirror.show(); !shown) return shown;
  ready.reset();
  mirror.loop().watch(signals.get(), EPOLLIN, [&](uint32_t) { mirror.loop().stop(); });
  mirror.loop().run();
  return {};
}

}  // namespace

int mirror_devices(UniqueFd ready, const UniqueFd& signals) {
  const auto ran = run_mirror(std::move(ready), signals);
  if (ran) return 0;
  log_info("no mirror of the devices: errno {}", ran.error().code);
  return ran.error().code == EEXIST ? 0 : 1;
}

}  // namespace verbena::agent
