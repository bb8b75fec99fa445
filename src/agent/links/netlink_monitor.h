// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include "agent/event_loop.h"
#include "agent/links/link_table.h"
#include "agent/links/netlink_attributes.h"
#include "agent/sessions/client_files.h"
#include "base/result.h"
#include "base/time.h"

namespace verbena::agent {

// Reads the kernel's netdevs and IP addresses by rtnetlink, and reports them to a LinkTable.
//
// If the kernel has dropped events (ENOBUFS), everything is read again (a dump). The kernel answers a dump
// under its lock for network devices (RTNL), which users can hold for seconds (NetdevSpeeds). So the opening
// thread of the agent's own user reads it (ForeignCloser::work_for()). Events that arrive meanwhile are
// reported at once, and again after the dump, which may be older.
//
// For the agent's thread.
class NetlinkMonitor {
 public:
  // Minimum time between the beginnings of two dumps.
  static constexpr Duration kDumpInterval = std::chrono::seconds(1);

  // `changed`: called when a dump has been reported after start(). REQUIRES: the references and this object
  // outlive the tasks of `closer`
  NetlinkMonitor(EventLoop& loop, LinkTable& table, ForeignCloser& closer, std::function<void()> changed)
      : table_(table),
        closer_(closer),
        changed_(std::move(changed)),
        next_dump_(loop, [this] { begin_dump(); }) {}

  // Subscribes to events, then reads all netdevs and addresses into the table on the calling thread. In this
  // order no event is missed.
  Result<void> start();
  int fd() const;
  // Reports the events that have arrived to the table, at most 64 datagrams per call, without waiting for
  // more. If the kernel has dropped events, a dump begins in a later round of the loop.
  void receive();

 private:
  // Netlink messages, one after the other.
  using Messages = std::vector<char>;
  // Memory for events that arrive during a dump. Beyond that, another dump follows.
  static constexpr size_t kKeptBytes = 256 << 10;

  static Result<Messages> dump();
  void keep(const char* events, size_t bytes);
  void consider_dump();
  void begin_dump();
  void end_dump(const Result<Messages>& dumped);
  void report_dump(const Messages& dumped);

  LinkTable& table_;
  ForeignCloser& closer_;
  const std::function<void()> changed_;
  NetlinkSocket events_;
  bool is_dumping_ = false;
  bool is_stale_ = false;  // the table may lack events that came after the latest dump began
  Messages since_dump_;    // events that have arrived since the dump began
  TimePoint earliest_dump_{};
  DeadlineTimer next_dump_;
};

}  // namespace verbena::agent
