// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "agent/links/link_table.h"
#include "agent/sessions/client_files.h"

namespace verbena::agent {

// Asks the kernel for the speeds of links' netdevs, and reports them to a LinkTable.
//
// The kernel answers under its lock for network devices (RTNL). Users with a network namespace of their own
// can hold that lock for seconds, and can cause news of the agent's netdevs. So the opening thread of the
// agent's own user asks (ForeignCloser::work_for()), in one look at a time. Until a look ends, the table
// keeps the last known speeds.
//
// For the agent's thread.
class NetdevSpeeds {
 public:
  // Returns the speed of a netdev in Mb/s, or 0 if it is unknown. Called on any thread.
  using Ask = std::function<uint32_t(const std::string& netdev)>;

  // `changed`: called on the agent's thread when a look has changed the table, or has ended with new
  // questions in it. REQUIRES: the table and this object outlive the tasks of `closer`
  NetdevSpeeds(LinkTable& table, ForeignCloser& closer, std::function<void()> changed, Ask ask = ask_kernel)
      : table_(table), closer_(closer), changed_(std::move(changed)), ask_(std::move(ask)) {}

  // Asks the kernel and waits for the answers, at the agent's start.
  void look_and_wait();
  // Begins a look if the table has questions and no look is under way.
  void look();

 private:
  struct Look;
  void end(const Look& look);

  static uint32_t ask_kernel(const std::string& netdev);

  LinkTable& table_;
  ForeignCloser& closer_;
  const std::function<void()> changed_;
  const Ask ask_;
  bool is_looking_ = false;
};

}  // namespace verbena::agent
