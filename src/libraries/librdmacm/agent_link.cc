// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/agent_link.h"

#include <mutex>
#include <vector>

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/detached_thread.h"
#include "base/log.h"
#include "base/plain_calls.h"
#include "libraries/librdmacm/restoration.h"

namespace verbena::rdmacm {
namespace {

using protocol::MessageType;
using protocol::PlainReply;

constexpr size_t kMonitorStack = 256 << 10;
constexpr int kPauseWithoutMemoryMs = 10;

}  // namespace

AgentLink::AgentLink(IdentifierTable& identifiers, std::unique_ptr<control::AgentDialer> dialer)
    : identifiers_(identifiers),
      session_(std::move(dialer), {this}, nullptr, {.attend_limit = control::Patience::kAsLongAsItLives}) {}

AgentLink::InCall::InCall(AgentLink& link, Identifier& identifier, std::optional<State> during)
    : link_(link), identifier_(identifier), during_(during) {
  const std::lock_guard lock(identifier.mutex);
  link.calling_ = &identifier;
  link.before_call_ = identifier.state;
  if (during) identifier.state = *during;
}

void AgentLink::InCall::failed() const {
  const std::lock_guard lock(identifier_.mutex);
  if (during_ && identifier_.state == *during_) identifier_.state = link_.before_call_;
}

Result<void> AgentLink::open(const std::shared_ptr<Channel>& channel) {
  Turn turn(session_);
  const int fd = channel->agents_end();
  const auto request = [&]() -> Result<protocol::CmChannelRequest> {
    return open_request(*channel, generation());
  };
  const auto reply = exchange<PlainReply>(turn, MessageType::kCmOpenChannel, request, {&fd, 1});
  if (!reply) return fail(reply.error().code);
  identifiers_.add(channel);
  return {};
}

Result<void> AgentLink::create(Identifier& identifier) {
  Turn turn(session_);
  const auto request = [&]() -> Result<protocol::CmCreateRequest> { return create_request(identifier); };
  const auto reply = exchange<PlainReply>(turn, MessageType::kCmCreateId, request);
  if (!reply) return fail(reply.error().code);
  identifiers_.add(identifier);
  return {};
}

void AgentLink::post(Channel& channel, const protocol::CmEvent& event) {
  if (!channel.post(event)) wake_monitor();
}

Result<void> AgentLink::restore(const control::NewAgent& agent) {
  Restoration restoration(agent, identifiers_);
  if (calling_ != nullptr) restoration.keep(*calling_, before_call_);
  const auto restored = restoration.run();
  for (const Told& each : restoration.told()) post(*each.channel, each.event);
  if (restored) start_monitor();
  return restored;
}

// Starts the monitor thread, unless one runs and can be woken. Its wake-up descriptor may have been closed by
// the application (base/own_fd.h).
void AgentLink::start_monitor() {
  const std::lock_guard lock(wakeup_mutex_);
  if (monitored_ && wakeup_.is_ours()) return;
  wakeup_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ++monitors_;
  const auto run = [](void* of) -> void* {
    auto* const link = static_cast<AgentLink*>(of);
    uint32_t number;
    {
      const std::lock_guard started(link->wakeup_mutex_);
      number = link->monitors_;
    }
    link->monitor(number);
    return nullptr;
  };
  monitored_ = start_detached_thread(run, this, kMonitorStack);
  // Calls still notice an agent's death. A program that only waits for events does not.
  if (!monitored_) log_error("no thread could be started: the agent's end will not be noticed at once");
}

void AgentLink::wake_monitor() {
  const uint64_t one = 1;
  const std::lock_guard lock(wakeup_mutex_);
  if (wakeup_.is_ours()) [[maybe_unused]]
    const ssize_t written = ::write(wakeup_.get(), &one, sizeof one);
}

bool AgentLink::may_watch(uint32_t number) {
  const std::lock_guard lock(wakeup_mutex_);
  return number == monitors_ && wakeup_.is_ours();
}

void AgentLink::monitor(uint32_t number) {
  ::pthread_setname_np(::pthread_self(), "verbena-rdmacm");
  while (may_watch(number)) {
    try {
      attend_once(number);
    } catch (const std::bad_alloc&) {
      plain_poll(nullptr, 0, kPauseWithoutMemoryMs);  // memory may become available
    }
  }
}

// Waits for one event. If the application has closed a descriptor that the thread waits for, the thread ends,
// and the next call starts another.
void AgentLink::attend_once(uint32_t number) {
  std::vector<pollfd> entries{{wakeup_.get(), POLLIN, 0}, {session_.event_fd(), POLLIN, 0}};
  std::vector<std::shared_ptr<Channel>> full;
  for (auto& channel : identifiers_.channels()) {
    if (!channel->waits_for_room()) continue;
    entries.push_back({channel->agents_end(), POLLOUT, 0});
    full.push_back(std::move(channel));
  }
  plain_poll(entries.data(), entries.size(), -1);
  if (!may_watch(number)) return;
  if ((entries[1].revents & POLLNVAL) != 0) {
    const std::lock_guard lock(wakeup_mutex_);
    wakeup_.reset();
    return;
  }
  if (entries[0].revents != 0) {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = ::read(wakeup_.get(), &count, sizeof count);
  }
  // The agent also reports changes of links, which this thread ignores: libibverbs watches links itself.
  if (entries[1].revents != 0) session_.attend();
  for (const auto& channel : full) channel->flush();
}

}  // namespace verbena::rdmacm
