// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "agent/event_loop.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Measures how long the kernel alone makes messages with descriptors take. Each such message needs a lock of
// the whole host, unix_gc_lock. The kernel holds it while it searches the sockets in flight (Linux's
// net/unix/garbage.c). A user with 190,000 sockets in flight makes each message take 15 to 55 ms (measured).
// The user to whom the agent sends a message is not to blame for that (SlowUsers).
//
// The witness is a thread that sends such messages to itself. Nobody else has their sockets, so nothing but
// the kernel can make them long. It sends only until the time of the last watch_until().
//
// Where threads, sockets or descriptors run out, the witness reports nothing.
//
// For the agent's thread.
class MessageWitness {
 public:
  // The time between two messages: short against a search that takes long, so nearly all of its time is seen.
  static constexpr Duration kInterval = std::chrono::milliseconds(5);
  // Sends and receives a message, and returns the processor time that this took. Called on the thread.
  using Send = std::function<Duration()>;
  // Returns the default Send: each call uses the same pair of sockets.
  static Send send_to_itself();
  // A message that is sent and received within this time has met no search.
  static constexpr Duration kNormal = 2 * UserTurns::kSlowMessage;

  // `on_excess`: called in the loop with the time by which messages took longer than kNormal since the last
  // call. REQUIRES: the loop outlives this object
  MessageWitness(EventLoop& loop, std::function<void(Duration)> on_excess, Send send = send_to_itself());
  ~MessageWitness();
  MessageWitness(const MessageWitness&) = delete;
  MessageWitness& operator=(const MessageWitness&) = delete;

  // Sends messages until this time, at least one.
  void watch_until(TimePoint end);

 private:
  void run();
  void report();

  EventLoop& loop_;
  const std::function<void(Duration)> on_excess_;
  const Send send_;
  UniqueFd news_;  // an eventfd, readable when there is excess to report; empty: there is none
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;  // under mutex_
  bool is_asked_ = false;   // under mutex_
  TimePoint end_{};         // under mutex_
  Duration excess_{};       // under mutex_
  std::thread thread_;      // started by the first watch_until()
};

}  // namespace verbena::agent
