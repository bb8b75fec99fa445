// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "adapter/transport/receiver_driven_flow.h"
#include "adapter/transport/receiver_report.h"
#include "adapter/transport/route.h"
#include "base/time.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

// Flow control of a datagram queue pair towards one destination QP. A sender that sends much asks for
// receiver reports (datagram_report.h). A receiver that answers is sent as much as its path carries. One that
// never answers (adapters, Linux rxe), or stops, is sent everything at once. The sender waits for the first
// report, briefly and a few times only: without the wait, request and report would get lost in the sender's
// own burst.
//
// For the shard's lock holder.
class DatagramFlow {
 public:
  // A destination that has not answered yet is asked after this many bytes within this time. Each further
  // request takes four times as many bytes, up to kMaxSeldom times.
  static constexpr uint64_t kUntoldBytes = 16 * 1024;
  static constexpr Duration kUntoldTime = std::chrono::milliseconds(10);
  static constexpr uint32_t kMaxSeldom = 4;
  // How long, and how often, the sender waits for a report.
  static constexpr Duration kPatience = std::chrono::milliseconds(50);
  static constexpr uint32_t kMaxWaits = 2;

  // Counts datagrams to this destination from `first`, which a forger of reports does not know. `traits`: the
  // route's. Call once.
  void begin(roce::Psn first, const Traits& traits) {
    next_ = first;
    traits_ = traits;
  }

  // ---- sending

  // When the next datagram may leave: `now`, or later. Call again at that time, or after on_report().
  TimePoint may_send_at(TimePoint now);
  // The next datagram has left.
  void sent(uint32_t bytes, TimePoint now);
  // Ends the train: later datagrams leave at another time. `is_all`: none is left for this destination.
  void end_run(bool is_all) {
    if (told_) told_->end_run(is_all);
  }
  // Whether to send a report request with the count next().
  bool owes_request() const { return owes_request_; }
  roce::Psn next() const { return next_; }
  void on_requested() { owes_request_ = false; }

  // ---- receiving reports

  // False: the report is not from a receiver of our datagrams.
  bool on_report(const ReceiverReport& report, const ReceiverDrivenFlow::Settings& settings, TimePoint now);
  void on_mark(TimePoint now) {
    if (told_) told_->on_mark(now);
  }

  // ---- statistics

  // nullptr: the destination sends no reports.
  const congestion::Flow* path() const { return told_ ? told_->path() : nullptr; }
  uint64_t in_flight() const { return told_ ? told_->in_flight() : 0; }

 private:
  void forget();
  void sent_untold(uint32_t bytes, TimePoint now);

  Traits traits_;
  roce::Psn next_;
  bool owes_request_ = false;
  // While the destination has not answered:
  uint64_t untold_ = 0;  // bytes since the last request
  TimePoint untold_since_{};
  uint32_t seldom_ = 0;  // each step makes requests four times rarer
  uint32_t waits_ = 0;
  TimePoint waits_until_{};
  std::optional<ReceiverDrivenFlow> told_;  // set once the destination sends reports
};

}  // namespace verbena::transport
