// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/handles.h"

namespace verbena::rdma_core {

// Creates an event channel. This is a program's first call to librdmacm, so it also reports that there is no
// device. On failure reports the error and returns null with errno set.
Channel first_channel();

// Measures the seconds since its construction.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point began_ = Clock::now();
};

// Prints one message on standard error, with the reason, if a program waits for more than 10 seconds.
class Patience {
 public:
  explicit Patience(std::function<std::string()> words) : words_(std::move(words)) {}

  // Returns the timeout for poll(2) in milliseconds: 10 seconds, or -1 once the message is printed.
  int milliseconds() const { return said_ ? -1 : kMilliseconds; }
  // Prints the message. Call it when poll(2) has timed out.
  void say();

 private:
  static constexpr int kMilliseconds = 10000;
  std::function<std::string()> words_;
  bool said_ = false;
};

// Return the next event of a channel, or null, with errno set, after an error. With `patience` the wait has a
// message.
Event next_event(rdma_event_channel* channel);
Event next_event(rdma_event_channel* channel, Patience& patience);

// Returns an event that is already pending on the channel, or null if there is none. Never blocks.
Event event_at_hand(rdma_event_channel* channel);

// Returns the likely reason and the remedy for an event of failure, or an empty string for other events.
const char* remedy_for(rdma_cm_event_type type);

// Returns the likely reason and the remedy for an errno of librdmacm, or an empty string for other errnos.
const char* remedy_for_errno(int error);

// Reports a failed call as `sentence`, the text of errno and the remedy. Returns -1.
int failed(const std::string& sentence);

// Reports a failure that rdma-core's program reports on standard output. With --json only the JSON object may
// go there, so the sentence then goes to standard error.
void tell_failure(const Output& output, const std::string& sentence, const std::string& remedy = {});

}  // namespace verbena::rdma_core
