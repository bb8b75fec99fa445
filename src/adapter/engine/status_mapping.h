// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/result.h"
#include "control/protocol/status_page.h"

namespace verbena::engine {

// The page that `verbena status` reads, as a process has it to write.
class StatusMapping {
 public:
  // Of the agent's file. What the file cannot be trusted with is private memory, all of it if need be.
  static Result<std::unique_ptr<StatusMapping>> create(int fd);
  explicit StatusMapping(protocol::StatusPage* page) : page_(page) {}
  ~StatusMapping();
  StatusMapping(const StatusMapping&) = delete;
  StatusMapping& operator=(const StatusMapping&) = delete;

  protocol::StatusPage& page() { return *page_; }
  // Private from now on: what a child does to its inherited QPs is not to be seen in its parent's.
  void detach();

 private:
  protocol::StatusPage* const page_;
};

}  // namespace verbena::engine
