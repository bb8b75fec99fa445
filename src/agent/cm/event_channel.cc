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
  waiting_.user += more - less;
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

std::vector<uint64_t> EventChannel::numbers_of(const Index& index, uint32_t id) {
  std::vector<uint64_t> numbers;
  for (auto at = index.lower_bound({id, 0}); at != index.end() && at->first == id; ++at) {
    numbers.push_back(at->second);
  }
  return numbers;
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

void EventChannel::move_events(uint32_t id, EventChannel& other) {
  if (&other == this) return;
  // Moves the identifier's own events, and for a listener those of its requests, which belong to the
  // listener.
  std::vector<uint64_t> moved = numbers_of(by_listener_, id);
  for (const uint64_t number : numbers_of(by_id_, id)) {
    if (queue_.at(number).listener == 0) moved.push_back(number);
  }
  std::ranges::sort(moved);
  for (const uint64_t number : moved) {
    const auto event = queue_.find(number);
    other.send(event->second);
    take_out(event);
  }
}

size_t EventChannel::drop_some(size_t most) {
  size_t dropped = 0;
  for (; dropped < most && !queue_.empty(); ++dropped) take_out(queue_.begin());
  return dropped;
}

size_t EventChannel::drop_events(uint32_t id) {
  const std::vector<uint64_t> dropped = numbers_of(by_id_, id);
  for (const uint64_t number : dropped) take_out(queue_.find(number));
  return dropped.size();
}

}  // namespace verbena::agent
