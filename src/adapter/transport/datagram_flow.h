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

// How fast a datagram queue pair sends to one other. Who sends much asks what has come of it
// (datagram_report.h). A receiver that answers is sent as much as the path to it carries; one that does not
// (adapters, Linux rxe) gets all there is at once, as ever, and so does one that has stopped answering. The
// first answer is waited for, a short time and not often: an answer that is not waited for, nor the question,
// would get through where most of what is sent at once is lost.
//
// For the shard's lock holder.
class DatagramFlow {
 public:
  // Who has not answered yet is asked after so many bytes in so much time; if he does not, after four times
  // as many, and so on.
  static constexpr uint64_t kUntoldBytes = 16 * 1024;
  static constexpr Duration kUntoldTime = std::chrono::milliseconds(10);
  static constexpr uint32_t kMaxSeldom = 4;
  // For how long an answer is waited for, and how often.
  static constexpr Duration kPatience = std::chrono::milliseconds(50);
  static constexpr uint32_t kMaxWaits = 2;

  // The first to this destination is the `first` that it is counted as: who does not know it makes no
  // receipts up. `traits`: of the way there. To be called once.
  void begin(roce::Psn first, const Traits& traits) {
    next_ = first;
    traits_ = traits;
  }

  // ---- what leaves

  // When the next may leave: `now`, or later. Something else is to be known then, or when on_report() says
  // so.
  TimePoint may_send_at(TimePoint now);
  // The next has left.
  void sent(uint32_t bytes, TimePoint now);
  // What is sent next leaves at another time; `is_all`: there is no more for this destination.
  void end_run(bool is_all) {
    if (told_) told_->end_run(is_all);
  }
  // It is time to ask, with this count.
  bool owes_request() const { return owes_request_; }
  roce::Psn next() const { return next_; }
  void on_requested() { owes_request_ = false; }

  // ---- what comes

  // False: it is not by one who gets our datagrams.
  bool on_report(const ReceiverReport& report, const ReceiverDrivenFlow::Settings& settings, TimePoint now);
  void on_mark(TimePoint now) {
    if (told_) told_->on_mark(now);
  }

  // ---- for those who show it

  // nullptr: nobody tells of it.
  const congestion::Flow* path() const { return told_ ? told_->path() : nullptr; }
  uint64_t in_flight() const { return told_ ? told_->in_flight() : 0; }

 private:
  void forget();
  void sent_untold(uint32_t bytes, TimePoint now);

  Traits traits_;
  roce::Psn next_;
  bool owes_request_ = false;
  // Of one that does not answer.
  uint64_t untold_ = 0;  // bytes since it was asked last
  TimePoint untold_since_{};
  uint32_t seldom_ = 0;  // four times as many so many times
  uint32_t waits_ = 0;
  TimePoint waits_until_{};
  std::optional<ReceiverDrivenFlow> told_;  // of one that answers
};

}  // namespace verbena::transport
