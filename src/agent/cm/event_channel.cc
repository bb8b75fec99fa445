// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/event_channel.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "base/log.h"
#include "control/model/message_socket.h"

namespace verbena::agent {
namespace {

// Number of events sent per piece of work. A program that reads as fast as the agent sends may have 131,072
// of them.
constexpr int kAtOnce = 16;

// Returns the bytes of unread messages in the socket, as the kernel counts them (unix(7)); -1: unknown.
int unread_bytes(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 ? bytes : -1;
}

}  // namespace

EventChannel::EventChannel(EventLoop& loop, uid_t user, ClientFile socket, uint32_t generation,
                           Tallies waiting)
    : loop_(loop), user_(user), socket_(std::move(socket)), generation_(generation), waiting_(waiting) {}

EventChannel::~EventChannel() {
  watch(false);
  tally(0, queue_.size());
}

void EventChannel::tally(size_t more, size_t less) {
  waiting_.client += more - less;
  waiting_.users.take(user_, more);
  waiting_.users.give_back(user_, less);
}

uint64_t EventChannel::send(protocol::CmEvent event) {
  event.generation = generation_;
  ++sent_;
  if (!queue_.empty() || !transmit(event)) {
    queue_.emplace(sent_, event);
    by_id_.emplace(event.id, sent_);
    if (event.listener != 0) by_listener_.emplace(event.listener, sent_);
    tally(1, 0);
    watch(true);
  }
  return sent_;
}

void EventChannel::take_out(Queue::iterator event) {
  const auto& [number, content] = *event;
  by_id_.erase({content.id, number});
  by_listener_.erase({content.listener, number});
  queue_.erase(event);
  tally(0, 1);
}

EventChannel::Queue::iterator EventChannel::next_of(const Index& index, uint32_t id, uint64_t from) {
  const auto at = index.lower_bound({id, from});
  return at != index.end() && at->first == id ? queue_.find(at->second) : queue_.end();
}

// Sends an event. False: no room now. True for a channel whose other end is closed.
bool EventChannel::transmit(const protocol::CmEvent& event) {
  const int before = message_cost_ == 0 ? unread_bytes(socket_.get()) : 0;
  const auto sent = control::send_message(socket_.get(), protocol::bytes_of(event));
  if (!sent) return sent.error().code != EAGAIN && sent.error().code != ENOBUFS;
  // The difference is zero or less if the program has read meanwhile. Then the next event is measured.
  if (message_cost_ == 0) message_cost_ = std::max(0, unread_bytes(socket_.get()) - before);
  return true;
}

// All events have one size, so the kernel's count of unread bytes tells how many are in the socket. Messages
// that the program writes to it itself also count, which only makes the result too low.
uint64_t EventChannel::taken() const {
  const int unread = unread_bytes(socket_.get());
  if (unread < 0) return sent_ - queue_.size();
  const auto cost = static_cast<uint64_t>(std::max(message_cost_, 1));
  const uint64_t left = (static_cast<uint64_t>(unread) + cost - 1) / cost + queue_.size();
  return sent_ - std::min(left, sent_);
}

bool EventChannel::on_writable() {
  for (int i = 0; i < kAtOnce && !queue_.empty(); ++i) {
    if (!transmit(queue_.begin()->second)) return false;
    take_out(queue_.begin());
  }
  if (queue_.empty()) watch(false);
  return !queue_.empty();
}

void EventChannel::watch(bool wanted) {
  if (watching_ == wanted) return;
  watching_ = wanted;
  if (wanted) {
    loop_.watch_for(user_, socket_.get(), EPOLLOUT, [this](uint32_t) { return on_writable(); });
  } else {
    loop_.forget(socket_.get());
  }
}

size_t EventChannel::move_events(uint32_t id, EventChannel& other, size_t most) {
  if (&other == this) return 0;
  size_t moved = 0;
  for (uint64_t from = 0; moved < most; ++moved) {
    // Its own, and if it listens those of the requests that came to it; they are the listener's then.
    auto event = next_of(by_id_, id, from);
    while (event != queue_.end() && event->second.listener != 0)
      event = next_of(by_id_, id, event->first + 1);
    const auto requested = next_of(by_listener_, id, from);
    const bool is_request_first =
        event == queue_.end() || (requested != queue_.end() && requested->first < event->first);
    if (is_request_first) event = requested;
    if (event == queue_.end()) break;
    from = event->first + 1;
    other.send(event->second);
    take_out(event);
  }
  return moved;
}

size_t EventChannel::drop_some(size_t most) {
  size_t dropped = 0;
  for (; dropped < most && !queue_.empty(); ++dropped) take_out(queue_.begin());
  return dropped;
}

size_t EventChannel::drop_events(uint32_t id, size_t most) {
  size_t dropped = 0;
  for (; dropped < most; ++dropped) {
    const auto event = next_of(by_id_, id, 0);
    if (event == queue_.end()) break;
    take_out(event);
  }
  return dropped;
}

}  // namespace verbena::agent
