// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/handles.h"

namespace verbena::rdma_core {

// The channel of a program's first call to librdmacm. Null, after a complaint, if there is none; errno says
// why.
Channel first_channel();

// What a program says while it waits for something longer than people expect. It says it once, on standard
// error, so that nobody looks at a hanging program and does not know why.
class Patience {
 public:
  explicit Patience(std::function<std::string()> words) : words_(std::move(words)) {}

  // For how long to wait before it is worth a word, in milliseconds, as poll(2) has it: -1 once it is said.
  int milliseconds() const { return said_ ? -1 : kMilliseconds; }
  // The time has passed.
  void say();

 private:
  static constexpr int kMilliseconds = 10000;
  std::function<std::string()> words_;
  bool said_ = false;
};

// The next event of a channel. Null: there will be none, and errno says why.
Event next_event(rdma_event_channel* channel, Patience& patience);

// The event if there is one already.
Event event_at_hand(rdma_event_channel* channel);

// What is likely wrong, and what to do, when an event of failure came; empty for others.
const char* remedy_for(rdma_cm_event_type type);

// The same, when a call of librdmacm's failed with this errno; empty for others.
const char* remedy_for_errno(int error);

// A complaint of a call that has set errno, with the remedy. The answer is that call's -1.
int failed(const std::string& sentence);

// A sentence about a failure that the originals print on standard output: there, or with --json, where
// nothing but the object may stand, on standard error.
void tell_failure(const Output& output, const std::string& sentence, const std::string& remedy = {});

}  // namespace verbena::rdma_core
