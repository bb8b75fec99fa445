// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "adapter/congestion/algorithm.h"
#include "base/time.h"
#include "wire/roce/psn.h"

namespace verbena::congestion {

// Paces the packets of a Flow at the rate that congestion control allows. (UC and UD senders without reports
// use transport::Pacer instead.) A sender that is late, because of timers or busy processors, may catch up by
// two bursts. A burst lasts kBurstTime at the rate, but is large enough to be worth a system call.
class Pacer {
 public:
  // How long a burst may take on the path. Timers are not much finer.
  static constexpr Duration kBurstTime = std::chrono::microseconds(250);

  // Sets the rate in bytes per second (0: not paced). A burst has between `least_burst` and `max_burst`
  // bytes.
  void set(uint64_t rate, uint32_t least_burst, uint32_t max_burst) {
    rate_ = rate;
    if (rate == 0) return;
    const uint64_t bytes = rate / (std::chrono::nanoseconds(std::chrono::seconds(1)) / kBurstTime);
    burst_ = time_of(std::clamp<uint64_t>(bytes, least_burst, std::max(least_burst, max_burst)));
  }

  // Whether a packet may leave now.
  bool allows(TimePoint now) const { return rate_ == 0 || due_ <= now; }
  // Whether another packet might leave now after `bytes` more bytes.
  bool allows_after(uint32_t bytes, TimePoint now) const {
    return rate_ == 0 || due_after(bytes, now) <= now;
  }
  // Whether another packet might leave now after a packet train of `bytes` bytes. Always true for a train
  // that is longer than the burst: a slow path must not wait until it could send the whole train at once.
  bool allows_after_run(uint32_t bytes, TimePoint now) const {
    return rate_ == 0 || time_of(bytes) > burst_ || due_after(bytes, now) <= now;
  }
  // Notes that `bytes` bytes have left.
  void sent(uint32_t bytes, TimePoint now) {
    if (rate_ != 0) due_ = due_after(bytes, now);
  }
  // Allows packets at once again. Called after a timeout: nothing is believed to be in flight then.
  void forget() { due_ = {}; }
  // Returns when a whole burst may leave, after allows() was false.
  TimePoint next() const { return due_ + burst_; }

 private:
  TimePoint due_after(uint32_t bytes, TimePoint now) const {
    return std::max(due_, now - 2 * burst_) + time_of(bytes);
  }
  Duration time_of(uint64_t bytes) const { return Duration(bytes * 1'000'000'000 / rate_); }

  uint64_t rate_ = 0;
  Duration burst_{0};
  TimePoint due_{};
};

// RTT estimator: smoothed RTT and its mean deviation, as in RFC 6298.
class RttEstimator {
 public:
  void on_sample(Duration sample) {
    latest_ = sample;
    if (!is_known_) {
      is_known_ = true;
      least_ = usual_ = smoothed_ = sample;
      deviation_ = sample / 2;
      return;
    }
    least_ = std::min(least_, sample);
    deviation_ += (std::chrono::abs(smoothed_ - sample) - deviation_) / 4;
    smoothed_ += (sample - smoothed_) / 8;
    usual_ = std::min(usual_ + usual_ / kUsualLasts, smoothed_);
  }

  // Whether there was a sample. Without one, all durations below are zero.
  bool is_known() const { return is_known_; }
  Duration smoothed() const { return smoothed_; }
  Duration least() const { return least_; }
  // Recent minimum of the smoothed RTT: the RTT without a queue. A single packet on a shorter path does not
  // lower it much.
  Duration usual() const { return usual_; }
  Duration latest() const { return latest_; }
  // Time after which an acknowledgement is no longer expected: the smoothed RTT plus four mean deviations.
  Duration timeout() const { return smoothed_ + 4 * deviation_; }

 private:
  static constexpr int64_t kUsualLasts = 4096;  // samples: usual_ rises by 1/kUsualLasts per sample

  bool is_known_ = false;
  Duration smoothed_{0};
  Duration deviation_{0};
  Duration least_{0};
  Duration usual_{0};
  Duration latest_{0};
};

// Record of a packet train that was sent: consecutive packets that left together. (transport::PacketTrain
// describes a train that is still to be sent.)
struct PacketTrain {
  roce::Psn first;
  uint32_t packets = 0;
  bool repeated = false;  // sent before: an acknowledgement may be for an earlier copy
  bool limited = false;   // the sender had no more to send
  TimePoint sent;
  // Flow's state when the train left.
  uint64_t delivered = 0;    // bytes delivered until then
  TimePoint delivered_at;    // when the latest of these bytes arrived
  TimePoint delivered_sent;  // latest send time of a delivered byte

  roce::Psn limit() const { return first + packets; }
  bool has(roce::Psn psn) const { return !psn.is_before(first) && psn.is_before(limit()); }
};

// The packet trains in flight, in PSN order. One record per train and not per packet: a window of many
// megabytes has a few hundred trains. Beyond kMax trains, or without memory, new trains are merged into the
// last one.
//
// Allocates only while it grows.
class PacketTrains {
 public:
  static constexpr size_t kMax = 4096;

  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  PacketTrain& back() { return at(count_ - 1); }
  const PacketTrain& at(size_t place) const { return ring_[(first_ + place) & (ring_.size() - 1)]; }
  PacketTrain& at(size_t place) { return ring_[(first_ + place) & (ring_.size() - 1)]; }

  // Adds a train that was sent. REQUIRES: the train starts where the last one ends, if there is one
  void add(const PacketTrain& run);
  // Returns the train with this PSN; nullptr if no train in flight has it.
  const PacketTrain* find(roce::Psn psn) const;
  // Forgets trains that end at or before `limit`.
  void drop_before(roce::Psn limit);
  // Forgets packets from `from` on. Call before they are sent again.
  void drop_from(roce::Psn from);

 private:
  bool grow();

  std::vector<PacketTrain> ring_;
  size_t first_ = 0;
  size_t count_ = 0;
};

// The packets in flight of one requester, or of one UC or UD flow, as seen by congestion control. Remembers
// when packets left, turns their acknowledgements into samples, and passes these to an Algorithm. Numbers of
// bytes include the charge for each packet (Traits::charge_per_packet).
//
// Threads: the caller holds the shard's lock.
class Flow {
 public:
  // Returns nullptr if memory has run out.
  static std::unique_ptr<Flow> make(Kind kind, const Sizes& sizes) noexcept;
  Flow(Kind kind, const Sizes& sizes);
  // Starts another algorithm, if `kind` differs from the present one. Keeps the RTT estimate and the packet
  // trains. If memory has run out, the old algorithm stays.
  void use(Kind kind) noexcept;

  // ---- sending

  // Notes that packets have left. `repeated`: they are sent again in sequence, after starts_over().
  // `in_flight` is the number of bytes in flight before these packets.
  void sent(roce::Psn first, uint32_t packets, uint32_t bytes, bool repeated, uint64_t in_flight,
            TimePoint now);
  // Notes that packets were retransmitted out of sequence. They count for the pacing only.
  void repaired(uint32_t bytes, TimePoint now) { pacer_.sent(bytes, now); }
  // Ends the current train: packets sent from now on leave at another time.
  void end_run() { run_is_open_ = false; }
  // Call when the sender has no more data, though the window has room. The next samples then count as limited
  // by the application (Sample::limited).
  void ran_dry(uint64_t in_flight) { limited_until_ = delivered_ + in_flight + 1; }
  // Forgets the packets from `from` on: the sender goes back and sends them again in sequence.
  void starts_over(roce::Psn from) { trains_.drop_from(from); }
  // Whether the pacing allows a packet now.
  bool may_send(TimePoint now) const { return pacer_.allows(now); }
  // Whether the pacing would still allow a packet now if `bytes` more bytes had left.
  bool may_send_after(uint32_t bytes, TimePoint now) const { return pacer_.allows_after(bytes, now); }
  // Like may_send_after(), but always true for a packet train that is longer than the pacer's burst.
  bool may_send_after_run(uint32_t bytes, TimePoint now) const { return pacer_.allows_after_run(bytes, now); }
  // Returns when to send again, after may_send() was false.
  TimePoint may_send_at() const { return pacer_.next(); }

  // ---- acknowledgements

  // Notes that `bytes` more bytes have arrived.
  void arrived(uint64_t bytes) { delivered_ += bytes; }
  // Takes an RTT sample from packets [first, limit), which have arrived. Takes none if their train was sent
  // again in sequence or is not known. REQUIRES: first is before limit; no packet was retransmitted out of
  // sequence
  void took_time(roce::Psn first, roce::Psn limit);
  // Ends the handling of an acknowledgement: makes a sample of the arrived() and took_time() calls since the
  // last answered(), and gives it to the algorithm.
  void answered(uint64_t in_flight, TimePoint now);
  // Forgets the packet trains that end at or before `limit`. Call when all packets before `limit` are
  // acknowledged.
  void settled(roce::Psn limit) { trains_.drop_before(limit); }
  // Pass events on to the algorithm: a loss, a retransmission timeout, a CNP, a receiver's report on its
  // senders.
  void lost(uint64_t bytes) {
    algorithm_->on_loss(bytes);
    obey();
  }
  void timed_out();
  void marked() {
    algorithm_->on_mark();
    obey();
  }
  void told(const Incast& incast) {
    algorithm_->on_incast(incast);
    obey();
  }

  // ---- results

  // The algorithm's limits: max bytes in flight, and bytes per second (0: not paced).
  uint64_t window() const { return allowance_.window; }
  uint64_t rate() const { return allowance_.rate; }
  const RttEstimator& round_trip() const { return round_trip_; }
  // Send time of the latest packet that was sent only once and has arrived; TimePoint{} if there is none.
  TimePoint latest_sent() const { return delivered_sent_; }
  // Send time of the train with this packet; kNever if it is no longer known.
  TimePoint sent_at(roce::Psn psn) const {
    const PacketTrain* run = trains_.find(psn);
    return run != nullptr ? run->sent : kNever;
  }

 private:
  void obey();

  const Sizes sizes_;
  Kind kind_;
  std::unique_ptr<Algorithm> algorithm_;
  Allowance allowance_;
  Pacer pacer_;
  RttEstimator round_trip_;
  PacketTrains trains_;
  bool run_is_open_ = false;
  uint64_t delivered_ = 0;
  uint64_t answered_ = 0;  // part of delivered_ that the algorithm has seen
  // took_time() calls since the last answered().
  struct Timed {
    uint64_t packets = 0;
    std::optional<roce::Psn> latest;  // in PSN order
    TimePoint first_sent{};           // send time of the first train counted
    Duration after{0};                // sum over the packets of send time minus first_sent
    TimePoint sent_on_average() const { return first_sent + after / static_cast<int64_t>(packets); }
  };
  Timed timed_;
  TimePoint delivered_at_{};    // when the latest bytes arrived
  TimePoint delivered_sent_{};  // latest send time of bytes that have arrived
  uint64_t limited_until_ = 0;  // samples of packets sent before `delivered_` reaches this are
                                // application-limited
};

}  // namespace verbena::congestion
