// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "adapter/congestion/flow.h"
#include "adapter/transport/receiver_report.h"
#include "adapter/transport/route.h"
#include "base/time.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

// Token-bucket pacer for UC and UD, whose senders get no ACKs. A receiver takes longer per packet than a
// sender. Without a limit, a large message would overrun the receiver's buffer, and lose everything beyond
// its first hundreds of kilobytes. So a burst leaves at once, and the rest at a rate that the receiver can
// follow. Burst and rate are the route's; a lossless route is unlimited.
class Pacer {
 public:
  // Starts with the burst and the rate of a route, and a full burst available.
  void reset(const Traits& traits) {
    debt_ = 0;
    unbounded_ = traits.lossless;
    burst_bytes_ = std::max(traits.blind_burst_bytes, 1u);
    bytes_per_microsecond_ = std::max(traits.blind_bytes_per_microsecond, 1u);
  }

  // Lowers the rate to `bytes_per_second`, if that is less. REQUIRES: reset() was called
  void slow_down(uint64_t bytes_per_second) {
    bytes_per_microsecond_ = std::clamp<uint64_t>(bytes_per_second / 1'000'000, 1, bytes_per_microsecond_);
  }

  // Whether a packet may leave now: the burst is not used up.
  bool allows(TimePoint now) {
    if (unbounded_) return true;
    settle(now);
    return debt_ < burst_bytes_;
  }
  // When the next packet may leave, after allows() was false: when half the burst is free again, since
  // packets are cheaper in batches.
  TimePoint next() const {
    return settled_at_ + std::chrono::microseconds((debt_ - burst_bytes_ / 2) / bytes_per_microsecond_ + 1);
  }
  void sent(uint32_t bytes) {
    if (!unbounded_) debt_ += bytes;
  }

 private:
  void settle(TimePoint now) {
    const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(now - settled_at_).count();
    if (passed <= 0) return;
    debt_ -= std::min<uint64_t>(debt_, static_cast<uint64_t>(passed) * bytes_per_microsecond_);
    settled_at_ += std::chrono::microseconds(passed);
  }

  bool unbounded_ = false;
  uint64_t burst_bytes_ = 1;
  uint64_t bytes_per_microsecond_ = 1;
  uint64_t debt_ = 0;  // bytes sent that the rate has not yet covered
  TimePoint settled_at_{};
};

// Receiver-driven flow control of the packets from a UC or UD sender to one receiver. Receiver reports set
// how many bytes may be in flight: as many as the path holds. Nothing is sent again, and nothing waits for
// long: packets that no report covers in time count as gone. If the peer never reports (adapters, Linux rxe),
// or has ended, packets leave at a fixed rate after one wait (Pacer). A lossless route is unlimited.
//
// For the shard's lock holder.
class ReceiverDrivenFlow {
 public:
  // Max wait for the first report once the first window is full: the peer may never report.
  static constexpr Duration kPatience = std::chrono::milliseconds(50);
  // After this many timeouts in a row, each twice as long as the one before, the peer counts as gone.
  static constexpr uint32_t kMaxSilences = 4;
  // Min window, in packets: with fewer, each lost packet or report would cause a timeout. With more than
  // kManySenders senders to the same receiver, the minimum is kLeastOfMany.
  static constexpr uint32_t kLeastWindow = 4;
  static constexpr uint32_t kLeastOfMany = 2;
  static constexpr uint32_t kManySenders = 8;
  // Max packets in flight, however much the path holds: more PSNs would not be distinguishable in reports.
  static constexpr int32_t kMaxInFlight = 1 << 14;
  // Reports whose PSN is this far behind, or further, are ignored as forged: a receiver of our packets knows
  // newer PSNs.
  static constexpr int32_t kFurthest = 2 * kMaxInFlight;
  // Confirms this many reports, so that one confirmation arrives. After a timeout, confirms as many again.
  static constexpr uint32_t kMaxThanks = 8;

  struct Settings {
    congestion::Kind kind;
    bool listens;  // false: only the fixed rate is wanted
    uint32_t mtu;
    Duration least_timeout;  // min time to wait for a report: threads share processors
  };
  // Starts on a route with these traits; the first packet has PSN `first`.
  void begin(const Traits& traits, const Settings& settings, roce::Psn first);
  void end() { *this = ReceiverDrivenFlow(); }
  // Call after begin() if the peer may have counted missing packets of earlier flows: its first report is
  // then only a starting point.
  void joins() { counts_ = false; }

  // ---- sending

  // Whether the window is full: nothing may leave until on_report() or on_timer() changes that.
  bool is_full() const { return is_paced() && !fits(); }
  // Whether the pacing allows a packet now. REQUIRES: !is_full()
  bool may_send(TimePoint now);
  // When a packet may leave, after may_send() was false.
  TimePoint may_send_at() const { return is_paced() ? flow_->may_send_at() : pacer_.next(); }
  // Whether the next packet must request a report.
  bool must_ask() const;
  // The next packet has left. REQUIRES: `asked` is the result of must_ask()
  void sent(uint32_t bytes, bool asked, TimePoint now);
  // Ends the packet train: later packets belong to a new one. `is_all` tells that nothing is left to send.
  // The next samples of the path then count as limited by the application.
  void end_run(bool is_all);

  // ---- receiving reports

  // Processes a receiver report. Returns false if the report is ignored. That is when its PSN is not recent,
  // so that it is not from a receiver of our packets, or when only the fixed rate applies.
  bool on_report(const ReceiverReport& report, TimePoint now);
  // A CNP has come.
  void on_mark(TimePoint now);
  void on_timer(TimePoint now);
  // When to call on_timer(); kNever: not at all.
  TimePoint deadline() const { return silent_at_; }
  // Whether the peer has sent reports before, but none for kMaxSilences timeouts in a row.
  bool has_given_up() const { return is_told_ && is_blind_; }

  // Whether to send the peer a confirmation that this side understands its reports.
  bool owes_thanks() const { return thanks_due_; }
  void on_thanks_sent() {
    thanks_due_ = false;
    ++thanks_;
  }

  // ---- statistics

  // State of the path, as congestion control sees it; nullptr if the peer has sent no report.
  const congestion::Flow* path() const { return is_told_ ? flow_.get() : nullptr; }
  uint64_t in_flight() const { return static_cast<uint64_t>(next_ - told_) * packet_; }

 private:
  uint64_t window() const;
  bool fits() const { return in_flight() + packet_ <= window() && next_ - told_ < kMaxInFlight; }
  // Whether the model of the path decides, not the fixed rate.
  bool is_paced() const { return flow_ && !is_blind_; }
  void note(const ReceiverReport& report, TimePoint now);
  void await_word(TimePoint now);
  void give_up_flight();

  std::unique_ptr<congestion::Flow> flow_;
  Traits traits_;
  Pacer pacer_;
  // Each packet counts as a full one: a short one takes as long to handle.
  uint32_t packet_ = 1;
  uint32_t run_ = 1;
  Duration least_timeout_{0};
  roce::Psn next_;
  roce::Psn told_;        // all packets before it have arrived, or are missing
  uint32_t missing_ = 0;  // as reported last
  bool counts_ = true;    // missing_ covers all packets before told_
  uint64_t since_asked_ = 0;
  bool is_told_ = false;   // the peer has sent a report
  bool is_blind_ = false;  // the peer sends no reports now, or never did
  bool thanks_due_ = false;
  uint32_t thanks_ = 0;
  uint32_t silences_ = 0;
  uint32_t senders_ = 1;
  TimePoint silent_at_ = kNever;
};

}  // namespace verbena::transport
