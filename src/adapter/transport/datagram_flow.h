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

// Flow control of a datagram queue pair towards one destination QP. A sender of many datagrams requests
// receiver reports (receiver_report.h). While the destination reports, the sender sends no more than the path
// carries. To a destination that never reports (adapters, Linux rxe), or that has stopped, it sends
// everything at once. The sender waits for the first report, for kPatience and at most kMaxWaits times.
// Without the wait, request and report would get lost in the sender's own burst.
//
// For the shard's lock holder.
class DatagramFlow {
 public:
  // A destination that has not reported yet gets the first request after kUntoldBytes bytes within
  // kUntoldTime. Each later request follows after four times as many bytes as the one before it, in any time.
  // The number of bytes grows kMaxSeldom times at most.
  static constexpr uint64_t kUntoldBytes = 16 * 1024;
  static constexpr Duration kUntoldTime = std::chrono::milliseconds(10);
  static constexpr uint32_t kMaxSeldom = 4;
  // The sender waits this long, and this many times at most, for the first report.
  static constexpr Duration kPatience = std::chrono::milliseconds(50);
  static constexpr uint32_t kMaxWaits = 2;

  // Starts the flow; call once. Datagrams to this destination are counted from `first`, a number that a
  // forger of reports does not know. `traits` are those of the route.
  void begin(roce::Psn first, const Traits& traits) {
    next_ = begins_at_ = first;
    traits_ = traits;
  }

  // ---- sending

  // Returns when the next datagram may leave: `now`, or a later time. If later, call again at that time, or
  // after on_report(). May make a report request due.
  TimePoint may_send_at(TimePoint now);
  // Notes that the next datagram, with `bytes` bytes of payload, has left.
  void sent(uint32_t bytes, TimePoint now);
  // Ends the packet train: later datagrams count as sent at another time. `is_all` tells that the sender has
  // no more datagrams for this destination.
  void end_run(bool is_all) {
    if (told_) told_->end_run(is_all);
  }
  // Whether a report request with the count next() is due. Call on_requested() once it was sent.
  bool owes_request() const { return owes_request_; }
  roce::Psn next() const { return next_; }
  void on_requested() { owes_request_ = false; }

  // ---- receiving reports

  // Processes a receiver report. `settings` configure the flow at the first report. Returns false if the
  // report's count is not one of a recent request: then it does not come from a receiver of our datagrams.
  bool on_report(const ReceiverReport& report, const ReceiverDrivenFlow::Settings& settings, TimePoint now);
  // A CNP from the destination's address has come.
  void on_mark(TimePoint now) {
    if (told_) told_->on_mark(now);
  }

  // ---- statistics

  // State of the path, as congestion control sees it; nullptr if the destination sends no reports.
  const congestion::Flow* path() const { return told_ ? told_->path() : nullptr; }
  uint64_t in_flight() const { return told_ ? told_->in_flight() : 0; }

 private:
  void forget();
  void sent_untold(uint32_t bytes, TimePoint now);

  Traits traits_;
  roce::Psn next_;
  roce::Psn begins_at_;  // reports about datagrams before this one are about a flow that was given up
  bool owes_request_ = false;
  // Used while the destination has sent no report:
  uint64_t untold_ = 0;  // bytes since the last request
  TimePoint untold_since_{};
  uint32_t seldom_ = 0;  // number of times that the bytes between requests have grown fourfold
  uint32_t waits_ = 0;
  TimePoint waits_until_{};
  std::optional<ReceiverDrivenFlow> told_;  // set once the destination sends reports
};

}  // namespace verbena::transport
