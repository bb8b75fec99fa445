// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/handles.h"

namespace verbena::rdma_core {

// Creates an event channel, the first call to librdmacm. On failure reports it, and returns null with errno
// set.
Channel first_channel();

// Prints one message on standard error while a program waits for more than 10 seconds. So the user learns
// what a program waits for that seems to hang.
class Patience {
 public:
  explicit Patience(std::function<std::string()> words) : words_(std::move(words)) {}

  // The timeout for poll(2): 10 seconds, or -1 once the message is printed.
  int milliseconds() const { return said_ ? -1 : kMilliseconds; }
  // Prints the message, after the timeout.
  void say();

 private:
  static constexpr int kMilliseconds = 10000;
  std::function<std::string()> words_;
  bool said_ = false;
};

// Waits for the next event of a channel. Null, with errno set, after an error.
Event next_event(rdma_event_channel* channel, Patience& patience);

// Returns an event that is already there, or null.
Event event_at_hand(rdma_event_channel* channel);

// Returns the likely reason and remedy for an event of failure; empty for others.
const char* remedy_for(rdma_cm_event_type type);

// Returns the likely reason and remedy for an errno of librdmacm's functions; empty for others.
const char* remedy_for_errno(int error);

// Reports a failed call by errno, with the remedy. Returns -1.
int failed(const std::string& sentence);

// Reports a failure that rdma-core's program reports on standard output. With --json only the object may go
// there, so the sentence then goes to standard error.
void tell_failure(const Output& output, const std::string& sentence, const std::string& remedy = {});

}  // namespace verbena::rdma_core
