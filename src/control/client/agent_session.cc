// SPDX-License-Identifier: Apache-2.0
#include "control/client/agent_session.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "base/paths/users.h"
#include "base/plain_calls.h"
#include "control/model/message_socket.h"

namespace verbena::control {
namespace {

constexpr uid_t kNoAgentYet = static_cast<uid_t>(-1);
// Intervals between attempts to reach the next agent, and to start one.
constexpr Duration kFirstRetry = std::chrono::milliseconds(10);
constexpr Duration kEventPause = std::chrono::milliseconds(100);
constexpr Duration kLongestRetry = std::chrono::seconds(1);
constexpr Duration kLongestRetryWithTakeoverState = kSurvivorWait / 6;
constexpr Duration kStartRetry = std::chrono::seconds(1);
constexpr Duration kRootGrace = std::chrono::seconds(1);

// While root's agent restarts, an ordinary user's process waits this long for it before it starts one of its
// own.
Duration grace_for_next(uid_t former_agent) {
  return former_agent == 0 && paths::own_user() != 0 ? kRootGrace : Duration::zero();
}

tl::unexpected<AdminError> admin_error(int code) {
  return tl::unexpected(AdminError{code, {}});
}

}  // namespace

AgentSession::AgentSession(std::unique_ptr<AgentDialer> dialer, std::vector<Restorer*> restorers,
                           AgentListener* listener, SessionOptions options)
    : dialer_(std::move(dialer)),
      restorers_(std::move(restorers)),
      listener_(listener),
      options_(options),
      takeover_state_of_(kNoAgentYet),
      agent_uid_(kNoAgentYet),
      retry_(kFirstRetry) {}

// In a child after fork() the lock may be held by a thread that does not exist there.
AgentSession::Turn::Turn(AgentSession& session)
    : session_(session), lock_(session.turn_mutex_, std::defer_lock) {
  if (!session.abandoned_) lock_.lock();
}

AdminResult<void> AgentSession::Turn::connect() {
  return session_.reach();
}

AdminResult<void> AgentSession::reach() {
  if (abandoned_) return admin_error(ECONNREFUSED);
  // Descriptors that the application has closed by mistake (base/own_fd.h) are opened again.
  const bool is_whole = poll_set_.is_ours() && timer_.is_ours();
  if (is_whole && connection_ && !connection_->lost()) return {};
  connection_.reset();
  if (const auto made = make_poll_set(); !made) return admin_error(made.error().code);
  return dialer_->open_and_greet(
      options_.patience, MonotonicClock::now() + grace_for_next(agent_uid_),
      [this](AgentConnection connection, TimePoint until) { return greet(std::move(connection), until); });
}

Result<void> AgentSession::make_poll_set() {
  if (poll_set_.is_ours() && timer_.is_ours()) return {};
  OwnFd poll_set(UniqueFd{plain_epoll_create()});
  if (!poll_set) return fail(errno);
  OwnFd timer(UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)));
  if (!timer) return fail(errno);
  epoll_event interest{EPOLLIN, {.fd = timer.get()}};
  if (plain_epoll_ctl(poll_set.get(), EPOLL_CTL_ADD, timer.get(), &interest) != 0) return fail(errno);
  const std::lock_guard lock(event_mutex_);
  events_.reset();
  poll_set_ = std::move(poll_set);
  timer_ = std::move(timer);
  return {};
}

AdminResult<void> AgentSession::greet(AgentConnection connection, TimePoint deadline) {
  connection_ = std::move(connection);
  if (takeover_state_of_ != connection_->agent_uid()) takeover_state_.reset();
  auto answer = connection_->say_hello(takeover_state_, deadline);
  if (!answer) {
    connection_.reset();
    return tl::unexpected(std::move(answer.error()));
  }
  generation_.fetch_add(1);
  // The agent has taken everything out of the old takeover state. If it dies before the restorers are done,
  // the next agent needs the new one.
  takeover_state_ = answer->fds.size() > 2 ? std::move(answer->fds[2]) : UniqueFd();
  takeover_state_of_ = connection_->agent_uid();
  capabilities_ = answer->message.capabilities;
  if (auto restored = restore(deadline, answer->fds[1].get()); !restored) {
    connection_.reset();
    return restored;
  }
  const std::lock_guard lock(event_mutex_);
  const bool is_successor = std::exchange(agent_uid_, connection_->agent_uid()) != kNoAgentYet;
  watch_events(std::move(answer->fds[0]));
  version_ = connection_->version();
  retry_ = kFirstRetry;
  // Makes the thread in attend() look, because the previous agent's news is no longer valid.
  if (is_successor) set_timer(Duration(1));
  return {};
}

AdminResult<void> AgentSession::restore(TimePoint deadline, int link_table) {
  const NewAgent agent{*connection_, generation(), deadline, link_table};
  for (Restorer* each : restorers_) {
    if (const auto restored = each->restore(agent); !restored) return admin_error(restored.error().code);
  }
  if (connection_->lost()) return admin_error(ECONNRESET);
  return {};
}

int AgentSession::checked_event_fd() {
  const std::lock_guard lock(event_mutex_);
  return poll_set_.is_ours() ? poll_set_.get() : -1;
}

void AgentSession::attend() {
  if (abandoned_) return;
  bool connected;
  {
    const std::lock_guard lock(event_mutex_);
    uint64_t expirations;
    if (timer_.is_ours()) [[maybe_unused]]
      const ssize_t got = ::read(timer_.get(), &expirations, sizeof expirations);
    receive_events();
    connected = static_cast<bool>(events_);
  }
  if (!connected) seek_agent();
}

void AgentSession::receive_events() {
  events_.settle();
  while (events_) {
    std::byte buffer[protocol::kMaxEventBytes];
    auto received = peek_message(events_.get(), buffer);
    if (!received && received.error().code == EAGAIN) return resume_events();
    if (received && received->lost_fds) return pause_events();
    // Removes the message. Its descriptors stay open: `received` has copies.
    std::byte none[1];
    if (received) [[maybe_unused]]
      const auto removed = receive_message(events_.get(), none, 0);
    if (received && !received->truncated) {
      const ConstBytes message(buffer, received->bytes);
      const auto header = protocol::read_as<protocol::MessageHeader>(message);
      const bool whole = message.size() >= sizeof header && header.magic == protocol::kProtocolMagic;
      const bool dropped = whole && listener_ == nullptr;
      if (dropped || (whole && listener_->on_event({header, message, received->fds, events_.get()})))
        continue;
    }
    forget_events();  // the agent died
    retry_ = kFirstRetry;
    next_start_ = MonotonicClock::now() + grace_for_next(agent_uid_);
  }
}

// The process may open no more descriptors, and an event brings one. Any user can bring that about, by
// connections to a program that accepts them, and then cause such an event. The event waits in the socket.
void AgentSession::pause_events() {
  if (!std::exchange(are_events_paused_, true) && poll_set_.is_ours()) {
    plain_epoll_ctl(poll_set_.get(), EPOLL_CTL_DEL, events_.get(), nullptr);
  }
  set_timer(kEventPause);
}

void AgentSession::resume_events() {
  if (!std::exchange(are_events_paused_, false) || !poll_set_.is_ours()) return;
  epoll_event interest{EPOLLIN, {.fd = events_.get()}};
  plain_epoll_ctl(poll_set_.get(), EPOLL_CTL_ADD, events_.get(), &interest);
}

void AgentSession::watch_events(UniqueFd socket) {
  forget_events();
  events_ = OwnFd(std::move(socket));
  epoll_event interest{EPOLLIN, {.fd = events_.get()}};
  if (plain_epoll_ctl(poll_set_.get(), EPOLL_CTL_ADD, events_.get(), &interest) != 0) {
    log_error("the agent's events cannot be watched: errno {}", errno);
  }
}

// Closing alone would leave the socket in the set while a child after fork() has a copy.
void AgentSession::forget_events() {
  if (events_.is_ours() && poll_set_.is_ours()) {
    plain_epoll_ctl(poll_set_.get(), EPOLL_CTL_DEL, events_.get(), nullptr);
  }
  events_.reset();
  are_events_paused_ = false;
}

void AgentSession::seek_agent() {
  const std::unique_lock turn(turn_mutex_, std::try_to_lock);
  if (!turn.owns_lock()) {  // another thread's call will find the agent's end itself
    const std::lock_guard lock(event_mutex_);
    set_timer(kFirstRetry);
    return;
  }
  {
    const std::lock_guard lock(event_mutex_);
    if (events_) return;  // a call was quicker
  }
  connection_.reset();
  if (!needs_agent()) return;
  if (auto connection = dialer_->open()) {
    if (greet(std::move(*connection), deadline_after(options_.attend_limit))) return;
  } else if (connection.error().code == ECONNREFUSED && dialer_->may_start() && may_start_now()) {
    [[maybe_unused]] const auto started = dialer_->start();
  }
  const std::lock_guard lock(event_mutex_);
  set_timer(retry_);
  retry_ = std::min(retry_ * 2, longest_retry());
}

// The maximum interval between attempts to reach the next agent. It is short with the takeover state: the
// agent waits for that for kSurvivorWait only. Later it serves without the wire, and the ports are free for
// others.
Duration AgentSession::longest_retry() const {
  return takeover_state_.is_ours() ? kLongestRetryWithTakeoverState : kLongestRetry;
}

bool AgentSession::needs_agent() const {
  return std::ranges::any_of(restorers_, [](Restorer* each) { return each->needs_agent(); });
}

// True once per interval.
bool AgentSession::may_start_now() {
  const std::lock_guard lock(event_mutex_);
  const TimePoint now = MonotonicClock::now();
  if (now < next_start_) return false;
  next_start_ = now + kStartRetry;
  return true;
}

// Makes event_fd() readable after `delay`.
void AgentSession::set_timer(Duration delay) {
  itimerspec when{};
  when.it_value.tv_sec = delay.count() / 1'000'000'000;
  when.it_value.tv_nsec = delay.count() % 1'000'000'000;
  if (timer_.is_ours()) ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

Result<void> AgentSession::send_event(ConstBytes message, uint16_t since) {
  const std::lock_guard lock(event_mutex_);
  if (!events_.settle()) return fail(ENOTCONN);
  if (version_ < since) return fail(EOPNOTSUPP);
  return send_message(events_.get(), message);
}

void AgentSession::abandon() {
  abandoned_ = true;
  if (connection_) connection_->abandon();
  // Only closed, not removed from the poll set, which is also the parent's.
  for (OwnFd* each : {&events_, &timer_, &poll_set_, &takeover_state_}) each->reset();
}

}  // namespace verbena::control
