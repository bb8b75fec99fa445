// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/channel.h"

#include <sys/socket.h>

#include "base/cancellation_off.h"
#include "base/socket_option.h"

namespace verbena::rdmacm {
namespace {

using protocol::CmEvent;

constexpr uint32_t kToken = ~0u;  // CmEvent::type of a token, which stands for an event in early_

CmEvent token() {
  CmEvent event{};
  event.magic = CmEvent::kMagic;
  event.type = kToken;
  event.flags = protocol::kCmFromProgram;
  return event;
}

bool is_event(const CmEvent& event, ssize_t bytes) {
  return bytes == sizeof event && event.magic == CmEvent::kMagic && event.type != kToken &&
         event.parameters.private_length <= protocol::kCmPrivateBytes;
}

ssize_t wait_for(int socket, CmEvent& event) {
  const CancellationAllowed asleep;
  return ::recv(socket, &event, sizeof event, MSG_TRUNC);
}

}  // namespace

Channel::Channel(uint32_t number, UniqueFd application, UniqueFd agent)
    : rdma_event_channel{application.get()},
      number_(number),
      application_(OwnFd::with_known_number(std::move(application))),
      agents_end_(std::move(agent)) {}

Result<std::shared_ptr<Channel>> Channel::open(uint32_t number) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail(errno);
  UniqueFd application(ends[0]), agent(ends[1]);
  if (!bind_to_random_name(agent.get())) return fail(errno);  // the agent sends on a named socket at once
  return std::shared_ptr<Channel>(new Channel(number, std::move(application), std::move(agent)));
}

Result<CmEvent> Channel::next() {
  const Reading reading(*this);
  if (!reading.is_open()) return fail(EBADF);
  for (;;) {
    CmEvent event;
    if (!application_.is_ours()) return fail(EBADF);  // the application has closed it
    const ssize_t got = wait_for(application_.get(), event);
    if (got < 0) return fail(errno);
    // Unreachable: the channel holds the other end as long as it exists.
    if (got == 0) return fail(ENODATA);
    const std::lock_guard lock(mutex_);
    if (closed_) return fail(EBADF);
    if (has_unsent()) flush_locked();
    if (is_event(event, got)) early_.push_back(event);
    if (early_.empty()) continue;
    event = early_.front();
    early_.pop_front();
    return event;
  }
}

bool Channel::post(const CmEvent& event) {
  const std::lock_guard lock(mutex_);
  has_own_events_ = true;
  unsent_.push_back(event);
  return flush_locked();
}

// Returns false if there is no room. Otherwise the message was sent, or its reader is gone.
bool Channel::send_locked(const CmEvent& event) {
  const ssize_t sent = ::send(agents_end_.get(), &event, sizeof event, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent >= 0 || (errno != EAGAIN && errno != EINTR);
}

bool Channel::flush_locked() {
  if (!agents_end_.is_ours()) {
    unsent_tokens_ = 0;
    unsent_.clear();
  }
  for (; unsent_tokens_ > 0; --unsent_tokens_) {
    if (!send_locked(token())) return false;
  }
  for (; !unsent_.empty(); unsent_.pop_front()) {
    if (!send_locked(unsent_.front())) return false;
  }
  return true;
}

std::vector<CmEvent> Channel::take(const std::function<bool(const CmEvent&)>& wanted) {
  std::vector<CmEvent> taken;
  const std::lock_guard lock(mutex_);
  if (closed_ || !application_.is_ours()) return taken;
  const size_t waiting = early_.size();
  size_t tokens = 0;
  for (;;) {
    CmEvent event;
    const ssize_t got = ::recv(application_.get(), &event, sizeof event, MSG_TRUNC | MSG_DONTWAIT);
    if (got <= 0) break;
    if (is_event(event, got)) {
      early_.push_back(event);
    } else {
      ++tokens;
    }
  }
  tokens += unsent_tokens_;
  const auto move_out = [&](const CmEvent& event) {
    if (!wanted(event)) return false;
    taken.push_back(event);
    return true;
  };
  std::erase_if(early_, move_out);
  std::erase_if(unsent_, move_out);
  // Puts tokens back, except those whose reader has taken the token but not yet its event.
  const size_t being_read = waiting - std::min(waiting, tokens);
  unsent_tokens_ = early_.size() - std::min(early_.size(), being_read);
  flush_locked();
  return taken;
}

void Channel::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  fd = -1;
  early_.clear();
  unsent_tokens_ = 0;
  unsent_.clear();
  close_unread_locked();
}

}  // namespace verbena::rdmacm
