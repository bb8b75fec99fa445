// SPDX-License-Identifier: Apache-2.0
#include "rdmacm/agent_link.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent_client/message_socket.h"
#include "base/log.h"
#include "base/signals_blocked.h"
#include "rdmacm/restoration.h"

namespace verbena::rdmacm {
namespace {

using protocol::MessageType;
using protocol::PlainReply;

constexpr Duration kForGood = Duration(-1);
constexpr size_t kMonitorStack = 256 << 10;

int milliseconds_of(Duration duration) {
  if (duration < Duration::zero()) return -1;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

}  // namespace

AgentLink::AgentLink(IdentifierTable& identifiers) : identifiers_(identifiers) {}

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
  const std::lock_guard lock(mutex_);
  const int fd = channel->agents_end();
  const auto request = [&]() -> Result<protocol::CmChannelRequest> {
    return open_request(*channel, generation());
  };
  const auto reply = exchange<PlainReply>(MessageType::kCmOpenChannel, request, {&fd, 1});
  if (!reply) return fail(reply.error().code);
  identifiers_.add(channel);
  return {};
}

Result<void> AgentLink::create(Identifier& identifier) {
  const std::lock_guard lock(mutex_);
  const auto request = [&]() -> Result<protocol::CmCreateRequest> { return create_request(identifier); };
  const auto reply = exchange<PlainReply>(MessageType::kCmCreateId, request);
  if (!reply) return fail(reply.error().code);
  identifiers_.add(identifier);
  return {};
}

void AgentLink::post(Channel& channel, const protocol::CmEvent& event) {
  if (!channel.post(event)) wake_monitor();
}

void AgentLink::close_in_child() {
  for (const auto& socket : sockets_) {
    if (const int fd = socket.load(); fd >= 0) ::close(fd);
  }
}

void AgentLink::disconnect() {
  sockets_[0].store(-1);
  sockets_[1].store(-1);
  connection_.reset();
  agent_events_.reset();
}

Result<void> AgentLink::connect(TimePoint deadline) {
  disconnect();
  return agent_client::Connection::open_and_greet(
      options_, deadline, MonotonicClock::now() + agent_client::grace_for_next(agent_uid_),
      [this](agent_client::Connection connection, TimePoint until) {
        return greet(std::move(connection), until);
      });
}

Result<void> AgentLink::greet(agent_client::Connection connection, TimePoint deadline) {
  auto answer = connection.say_hello(vault_, deadline);
  if (!answer) return fail(answer.error().code);
  const uint32_t generation = generation_.fetch_add(1) + 1;
  // It has emptied ours; should it die before it knows all, the next one needs its.
  sockets_[2].store(-1);
  vault_ = answer->fds.size() > 2 ? std::move(answer->fds[2]) : UniqueFd();
  sockets_[2].store(vault_.get());
  Restoration restoration(connection, identifiers_, generation);
  if (calling_ != nullptr) restoration.keep(*calling_, before_call_);
  const auto restored = restoration.run();
  for (const Told& each : restoration.told()) post(*each.channel, each.event);
  if (!restored) return fail(restored.error().code);

  agent_uid_ = connection.agent_uid();
  connection_ = std::move(connection);
  agent_events_ = std::move(answer->fds[0]);
  sockets_[0].store(connection_->socket());
  sockets_[1].store(agent_events_.get());
  retry_ = Duration::zero();
  start_monitor();
  wake_monitor();
  return {};
}

void AgentLink::start_monitor() {
  if (monitored_) return;
  wakeup_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const SignalsBlocked blocked;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kMonitorStack);
  pthread_t thread;
  const auto run = [](void* link) -> void* {
    static_cast<AgentLink*>(link)->monitor();
    return nullptr;
  };
  monitored_ = ::pthread_create(&thread, &attributes, run, this) == 0;
  pthread_attr_destroy(&attributes);
  // Calls still find an agent's death themselves; only whoever just waits for events does not.
  if (!monitored_) log_error("no thread could be started: the agent's end will not be noticed at once");
}

void AgentLink::wake_monitor() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakeup_.get(), &one, sizeof one);
}

void AgentLink::monitor() {
  ::pthread_setname_np(::pthread_self(), "verbena-rdmacm");
  bool readable = false;
  for (;;) {
    const Duration wait = look_after_agent(readable);
    std::vector<pollfd> entries{{wakeup_.get(), POLLIN, 0}, {sockets_[1].load(), POLLIN, 0}};
    std::vector<std::shared_ptr<Channel>> full;
    for (auto& channel : identifiers_.channels()) {
      if (!channel->waits_for_room()) continue;
      entries.push_back({channel->agents_end(), POLLOUT, 0});
      full.push_back(std::move(channel));
    }
    ::poll(entries.data(), entries.size(), milliseconds_of(wait));
    if (entries[0].revents != 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t got = ::read(wakeup_.get(), &count, sizeof count);
    }
    readable = entries[1].revents != 0;
    for (const auto& channel : full) channel->flush();
  }
}

// Answers how long to wait before the next look.
Duration AgentLink::look_after_agent(bool readable) {
  const std::lock_guard lock(mutex_);
  while (readable && agent_events_) {
    // Of links (protocol/messages.h): libibverbs has its own eyes for them.
    protocol::MessageHeader header{};
    auto received =
        agent_client::receive_message(agent_events_.get(), std::as_writable_bytes(std::span(&header, 1)));
    if (!received && received.error().code == EAGAIN) break;
    if (!received || received->bytes == 0) disconnect();
  }
  if (connection_) return kForGood;
  // Who has nothing there needs no agent.
  if (identifiers_.empty()) return kForGood;
  if (connect(MonotonicClock::now() + agent_client::kCallTimeout)) return Duration::zero();
  retry_ = std::clamp(retry_ * 2, agent_client::kFirstRetry, agent_client::kLongestRetry);
  return retry_;
}

}  // namespace verbena::rdmacm
