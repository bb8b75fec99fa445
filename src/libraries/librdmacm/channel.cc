// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/channel.h"

#include <sys/socket.h>

#include "base/cancellation_off.h"
#include "base/socket_option.h"

namespace verbena::rdmacm {
namespace {

using protocol::CmEvent;

constexpr uint32_t kToken = ~0u;  // CmEvent::type of a token, which stands for an event in early_

// `pass`: the number of calls of take() so far.
CmEvent token_of(uint32_t pass) {
  CmEvent event{};
  event.magic = CmEvent::kMagic;
  event.type = kToken;
  event.id = pass;
  event.flags = protocol::kCmFromProgram;
  return event;
}

bool is_token_of(uint32_t pass, const CmEvent& event, ssize_t bytes) {
  return bytes == sizeof event && event.magic == CmEvent::kMagic && event.type == kToken && event.id == pass;
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

bool Channel::send_tokens_locked() {
  for (; unsent_tokens_ > 0; --unsent_tokens_) {
    if (!send_locked(token_of(pass_))) return false;
  }
  return true;
}

bool Channel::flush_locked() {
  if (!agents_end_.is_ours()) {
    unsent_tokens_ = 0;
    unsent_.clear();
  }
  if (!send_tokens_locked()) return false;
  for (; !unsent_.empty(); unsent_.pop_front()) {
    if (!send_locked(unsent_.front())) return false;
  }
  return true;
}

// A token replaces each message at once. The agent takes what is gone from the socket for read, and sends
// more: it would find room if the whole socket were read before tokens go back. The pass ends at the first
// token that it has sent, when there are no more tokens than events in early_.
std::vector<CmEvent> Channel::take(const std::function<bool(const CmEvent&)>& wanted) {
  std::vector<CmEvent> taken;
  const std::lock_guard lock(mutex_);
  if (closed_ || !application_.is_ours()) return taken;
  const auto move_out = [&](const CmEvent& event) {
    if (!wanted(event)) return false;
    taken.push_back(event);
    return true;
  };
  size_t surplus = std::erase_if(early_, move_out);  // tokens that stand for nothing now
  std::erase_if(unsent_, move_out);
  ++pass_;
  for (bool is_around = false; !is_around || surplus > 0;) {
    CmEvent event;
    const ssize_t got = ::recv(application_.get(), &event, sizeof event, MSG_TRUNC | MSG_DONTWAIT);
    if (got <= 0) break;
    is_around |= is_token_of(pass_, event, got);
    if (!is_event(event, got) && surplus > 0) {
      --surplus;
      continue;
    }
    ++unsent_tokens_;
    send_tokens_locked();
    if (!is_event(event, got)) continue;
    if (move_out(event)) {
      ++surplus;
    } else {
      early_.push_back(event);
    }
  }
  // Other tokens too many have readers, which have not taken their events yet.
  unsent_tokens_ -= std::min(surplus, unsent_tokens_);
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
