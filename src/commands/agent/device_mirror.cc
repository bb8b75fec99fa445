// SPDX-License-Identifier: Apache-2.0
#include "commands/agent/device_mirror.h"

#include <cerrno>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "agent/sessions/served_users.h"
#include "agent/status/state_sweeper.h"
#include "base/log.h"
#include "base/paths/state_directory.h"
#include "base/paths/state_path.h"

namespace verbena::agent {
namespace {

constexpr Duration kPatience = std::chrono::seconds(8);
constexpr Duration kRetryInterval = std::chrono::milliseconds(5);
// The same intervals as for the agent's own counter files.
constexpr Duration kIntervalWhileRead = std::chrono::milliseconds(10);
constexpr Duration kIntervalUnread = std::chrono::seconds(1);

}  // namespace

Result<DeviceMirror::Place> DeviceMirror::take_place() {
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

Result<std::unique_ptr<DeviceMirror>> DeviceMirror::create() {
  auto client = control::Client::connect({.start_agent = false, .agent_program = {}});
  if (!client) return fail(client.error().code);
  auto place = take_place();
  if (!place) return fail(place.error().code);
  std::unique_ptr<DeviceMirror> mirror(new DeviceMirror(std::move(*client), std::move(*place)));
  if (const auto shown = mirror->show(); !shown) return fail(shown.error().code);
  return mirror;
}

DeviceMirror::DeviceMirror(std::unique_ptr<control::Client> client, Place place)
    : client_(std::move(client)), place_(std::move(place)), state_(place_.directory) {}

DeviceMirror::~DeviceMirror() {
  state_.step_aside();
}

Result<void> DeviceMirror::show() {
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
  if (state_.readers().fd() >= 0) {
    loop_.watch(state_.readers().fd(), EPOLLIN, [this](uint32_t) { on_readers(); });
  }
  refresh_later();
  return {};
}

void DeviceMirror::on_news() {
  if (auto links = client_->next_links()) {
    links_ = std::move(*links);
    state_.show(links_);
  }
}

void DeviceMirror::on_readers() {
  const bool had_any = state_.readers().any();
  state_.readers().take_news();
  if (!had_any && state_.readers().any()) refresh();
}

void DeviceMirror::refresh() {
  if (!is_needed()) return loop_.stop();
  read_counters();
  refresh_later();
}

// Checks at most once a second: while the agent is dead, a call waits a moment for the next agent.
bool DeviceMirror::is_needed() {
  const TimePoint now = MonotonicClock::now();
  if (now < next_look_) return true;
  next_look_ = now + kIntervalUnread;
  const bool shown_by_agent = paths::state_is_shown_by() == paths::ShownBy::kAgent;
  if (!shown_by_agent && client_->links()) return true;
  log_info("{}", shown_by_agent ? "the agent shows the devices itself" : "no agent runs any more");
  return false;
}

void DeviceMirror::read_counters() {
  std::map<std::string, control::DeviceCounters> by_link;
  for (const control::Link& link : links_) {
    if (const auto counters = client_->device_counters(link.device_index)) by_link[link.name] = *counters;
  }
  state_.show_counters(std::move(by_link));
}

void DeviceMirror::refresh_later() {
  if (timer_) loop_.cancel(*timer_);
  const Duration interval = state_.readers().any() ? kIntervalWhileRead : kIntervalUnread;
  timer_ = loop_.at(MonotonicClock::now() + interval, [this] {
    timer_.reset();
    refresh();
  });
}

}  // namespace verbena::agent
