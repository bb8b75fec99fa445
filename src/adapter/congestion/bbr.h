// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "adapter/congestion/algorithm.h"
#include "base/time.h"

namespace verbena::congestion {

// Windowed maximum: the largest of the values of the last kRounds rounds.
class WindowedMax {
 public:
  static constexpr uint32_t kRounds = 10;

  // Adds a value of round `round`. REQUIRES: `round` never decreases
  void add(uint64_t round, uint64_t value) {
    if (round != round_) {
      // Rounds without a value count as zero.
      for (uint64_t r = round_ + 1; r <= round && r - round_ <= kRounds; ++r) values_[r % kRounds] = 0;
      round_ = round;
      max_ = *std::max_element(values_.begin(), values_.end());
    }
    uint64_t& here = values_[round % kRounds];
    here = std::max(here, value);
    max_ = std::max(max_, value);
  }
  // The largest value; 0 if there is none.
  uint64_t get() const { return max_; }
  // Lowers all values so far to `value`, if they are larger.
  void cut(uint64_t value) {
    for (uint64_t& other : values_) other = std::min(other, value);
    max_ = std::min(max_, value);
  }

 private:
  std::array<uint64_t, kRounds> values_{};
  uint64_t round_ = 0;
  uint64_t max_ = 0;
};

// DCQCN rate limit of a sender whose packets switches have marked. This is the reaction point of Zhu et al.,
// "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015), with one round trip as its timer. A
// CNP reduces the rate by a share that is larger the more CNPs came recently. Each later round trip without a
// CNP gives back half of what remains of the reduction. From the sixth such round trip on, each one also
// raises the target of this recovery by 1/64 of the path's bandwidth.
//
// Rates are bytes per second. Threads: the caller holds the shard's lock.
class DcqcnRate {
 public:
  // The least rate, one megabit per second: CNPs never reduce the rate further. Anybody can forge CNPs, and a
  // QP that may not send never notices that its peer is gone.
  static constexpr uint64_t kLeast = 125'000;

  // Max rate; 0 if there is no limit, as no CNP has come for long.
  uint64_t limit() const { return limit_; }

  // Call when a CNP has come while the sender sent at `rate`. Only the first CNP in a round trip counts.
  void on_mark(uint64_t rate) {
    if (rate == 0 || marked_in_round_) return;  // packets in flight cannot know of the first CNP
    marked_in_round_ = true;
    share_ += (1 - share_) * kGain;
    target_ = limit_ != 0 && limit_ < rate ? limit_ : rate;
    const auto less = static_cast<uint64_t>(static_cast<double>(target_) * (1 - share_ / 2));
    limit_ = std::max(less, std::min(target_, kLeast));
    rounds_ = 0;
  }
  // Call when a round trip has ended. `bandwidth` is the path's measured bandwidth. The limit ends once it
  // exceeds 1.5 times the bandwidth.
  void on_round(uint64_t bandwidth) {
    if (limit_ == 0) return;
    if (marked_in_round_) {
      marked_in_round_ = false;
      return;
    }
    share_ *= 1 - kGain;
    if (++rounds_ > kFastRounds) target_ += bandwidth / kSlowSteps;
    limit_ = (limit_ + target_ + 1) / 2;
    if (limit_ > bandwidth + bandwidth / 2) *this = DcqcnRate();
  }

 private:
  static constexpr double kGain = 1.0 / 16;
  static constexpr uint32_t kFastRounds = 5;
  static constexpr uint64_t kSlowSteps = 64;

  uint64_t limit_ = 0;
  uint64_t target_ = 0;
  double share_ = 1;     // estimated share of packets that are marked
  uint32_t rounds_ = 0;  // since the last CNP
  bool marked_in_round_ = false;
};

// Measures the min RTT: the round-trip time without a queue. This is the least mean RTT of a round, since
// single packets may take a shorter path. An old minimum must be confirmed in a dip (BBR's ProbeRTT): a short
// time with little in flight. The first minimum may have included a queue, our own or another sender's. So
// dips come soon at first, and stay frequent while they find much lower values.
//
// Threads: the caller holds the shard's lock.
class MinRtt {
 public:
  static constexpr Duration kDip = std::chrono::milliseconds(20);  // least length of a dip
  static constexpr Duration kSoon = 20 * kDip;                     // time between dips at first
  static constexpr Duration kLasts = std::chrono::seconds(10);     // time between dips at most
  static constexpr int64_t kRoundTripsBetween = 100;  // least time between dips, in RTTs, up to kLasts
  static constexpr int64_t kLeastSamples = 8;         // for the mean of a round

  // The min RTT; zero if it is not known yet.
  Duration get() const { return least_; }
  // Mean RTT of the last round; zero if it is not known yet.
  Duration latest() const { return latest_; }

  // Adds the RTT of a packet.
  void on_sample(Duration sample, TimePoint now) {
    sum_ += sample;
    ++samples_;
    if (least_.count() == 0) found(sample, now);
  }
  // Call when a round has ended. Returns true if a dip should begin now: the minimum is old, and `may_dip` is
  // true.
  bool on_round(TimePoint now, bool may_dip) {
    if (samples_ < kLeastSamples) return false;
    latest_ = std::exchange(sum_, Duration(0)) / std::exchange(samples_, 0);
    if (latest_ <= least_ || !has_mean_) {
      has_mean_ = true;
      found(latest_, now);
      return false;
    }
    const Duration lasts = std::min(std::max(patience_, kRoundTripsBetween * least_), kLasts);
    if (now - since_ <= lasts || !may_dip) return false;
    since_ = now;
    return true;
  }
  // The min RTT before the dip.
  Duration before_dip() const { return before_dip_; }
  // Call begin_dip() when a dip begins, end_dip() when it ends. The min RTT found in the dip replaces the
  // earlier min RTT.
  void begin_dip() { before_dip_ = std::exchange(least_, latest_); }
  void end_dip(TimePoint now) {
    patience_ = least_ < before_dip_ / 2 ? kSoon : std::min(2 * patience_, kLasts);
    since_ = now;
  }

 private:
  void found(Duration least, TimePoint now) {
    least_ = least;
    since_ = now;
  }

  Duration least_{0};
  Duration latest_{0};
  Duration before_dip_{0};
  Duration patience_ = kSoon;
  TimePoint since_{};
  // Sum and number of the samples since the last mean: of several rounds if these have few samples.
  Duration sum_{0};
  int64_t samples_ = 0;
  bool has_mean_ = false;
};

// Measures ACK aggregation, like Linux's BBR: the maximum, over the last rounds, of the bytes by which a
// burst of acknowledgements exceeded what the path's rate explains. Over Wi-Fi, or from a process that waits
// for a processor, nothing arrives for some time and then everything at once. The sender must have this many
// bytes in flight beyond what the path holds; otherwise the path runs empty during the pauses.
class AckAggregation {
 public:
  // The largest excess of the last WindowedMax::kRounds rounds, in bytes.
  uint64_t get() const { return max_.get(); }

  // Call when `arrived` more bytes have arrived in round `round`, over a path with a rate of `rate` bytes per
  // second.
  void on_arrival(uint64_t round, uint64_t arrived, uint64_t rate, TimePoint now) {
    uint64_t explained = explained_by(rate, now);
    // Starts a new measurement. Otherwise even arrivals over a long time would hide a burst.
    if (arrived_ <= explained || round - round_ >= WindowedMax::kRounds) {
      round_ = round;
      since_ = now;
      arrived_ = explained = 0;
    }
    arrived_ += arrived;
    max_.add(round, arrived_ - explained);
  }

 private:
  uint64_t explained_by(uint64_t rate, TimePoint now) const {
    const double seconds = std::chrono::duration<double>(now - since_).count();
    return static_cast<uint64_t>(static_cast<double>(rate) * seconds);
  }

  WindowedMax max_;
  // Round, time and bytes since the current measurement began.
  uint64_t round_ = 0;
  TimePoint since_{};
  uint64_t arrived_ = 0;
};

// Limits the bytes in flight over a link whose queue overflows because other senders fill it, too. The cap
// shrinks after each round trip with an overflow. It grows a little after each round trip without an
// overflow, until it exceeds what would be sent anyway. Both changes are proportional to the cap, so the cap
// does not change the senders' shares of a queue.
//
// Threads: the caller holds the shard's lock.
class InflightCap {
 public:
  static constexpr uint64_t kNone = ~uint64_t{0};

  // The cap in bytes; kNone if there is none.
  uint64_t get() const { return bytes_; }

  // Call when the queue has overflowed while `in_flight` bytes were in flight. Sets the cap to 54/64 of
  // `in_flight`, but at least to `least`.
  void on_overflow(uint64_t in_flight, uint64_t least) {
    bytes_ = std::max(least, in_flight - in_flight * kLess / kParts);
  }
  // Call when a round trip has ended without overflow, while the receiver had `senders` senders. Raises the
  // cap by 1/16 or by `packet` bytes, whichever is more, times 2 / (1 + senders). Above `enough` bytes the
  // cap is removed.
  void on_quiet_round(uint64_t packet, uint64_t enough, uint32_t senders) {
    if (bytes_ == kNone) return;
    bytes_ += std::max(packet, bytes_ * kMore / kParts) * 2 / (1 + senders);
    if (bytes_ > enough) bytes_ = kNone;
  }

 private:
  static constexpr uint64_t kParts = 64;
  static constexpr uint64_t kLess = 10;
  static constexpr uint64_t kMore = 4;

  uint64_t bytes_ = kNone;
};

// BBR: models the path by its bandwidth (the largest recent delivery rate) and its min RTT (the RTT without a
// queue). Keeps in flight what the path holds by this model, and paces at the delivery rate. Periodically
// sends a little faster to find more bandwidth, then a little slower to drain the queue that has built up.
// Neither a loss nor a longer RTT changes the model, so paths with loss or jitter are used fully. A loss only
// ends an attempt to send faster. After Cardwell et al., "BBR: Congestion-Based Congestion Control" (ACM
// Queue 14/5, 2016) and draft-ietf-ccwg-bbr.
//
// Differences from BBR:
// - Loss and a longer RTT together, or heavy loss for about a second, mean that a queue overflows: the
//   inflight cap shrinks (InflightCap), and the bandwidth is lowered by up to 10 %.
// - CNPs limit the rate (DcqcnRate).
// - A receiver that reports other senders makes all of them keep less in the queue and measure the min RTT at
//   the same time (incast.h).
// - On a path with an RTT below 100 us and less than 0.2 % loss, nothing is paced. The window is that of a
//   FixedWindow, or two bandwidth-delay products if that is more.
class Bbr final : public Algorithm {
 public:
  explicit Bbr(const Sizes& sizes);

  void on_arrival(const Sample& sample) override;
  void on_loss(uint64_t bytes) override;
  void on_timeout() override;
  void on_mark() override;
  void on_incast(const Incast& incast) override;
  Allowance allowance() const override { return allowance_; }

 private:
  enum class Phase : uint8_t {
    kStartup,  // as in BBR: doubles the rate each round until the bandwidth stops growing
    kDrain,    // as in BBR: drains the queue that startup has built
    kCruise,   // BBR's ProbeBW: sends at the path's rate, and probes for more bandwidth once per turn
    kDip,      // BBR's ProbeRTT: keeps little in flight to measure the RTT without a queue
  };

  void note_round(const Sample& sample);
  void note_round_trip(const Sample& sample);
  void check_full(const Sample& sample);
  void note_losses(const Sample& sample);
  bool takes_longer() const;
  double usually_lost(double all) const;
  bool has_overflowed(double all) const;
  void note_overflow(uint64_t in_flight, double all, double seconds);
  void begin_dip();
  void end_dip(TimePoint now);
  void step(const Sample& sample);
  void next_of_turn(TimePoint now);
  void decide();
  void follow_model();
  // The bandwidth-delay product of the model, times `quarters` / 4.
  uint64_t held(uint32_t quarters) const;
  // Bytes that may be in flight beyond the bandwidth-delay product, since acknowledgements come in bursts
  // over any path.
  uint64_t usual_aggregation() const;
  uint64_t max_in_flight() const;
  bool knows_of_others() const { return incast_.senders > 1; }
  // The least window, in bytes. With more than kMany senders it is smaller: four packets of each sender would
  // overfill the receiver's queue.
  uint64_t least() const { return (incast_.senders > kMany ? 2 : 4) * uint64_t{sizes_.packet}; }

  static constexpr uint32_t kMany = 8;

  const Sizes sizes_;
  Allowance allowance_;
  Phase phase_ = Phase::kStartup;
  WindowedMax bandwidth_;
  uint64_t round_ = 0;
  // The round ends when data arrives that was sent after this many bytes had arrived.
  uint64_t round_ends_ = 0;
  bool round_began_ = false;

  AckAggregation ack_aggregation_;
  MinRtt round_trip_;
  TimePoint dip_ends_ = kNever;

  uint64_t full_bandwidth_ = 0;
  uint32_t full_rounds_ = 0;
  bool is_full_ = false;

  uint32_t turn_ = 0;
  TimePoint turn_began_{};
  uint64_t lost_ = 0;  // bytes, in this step of the turn
  // Bytes lost and arrived in this round, and its start.
  uint64_t round_lost_ = 0;
  uint64_t round_arrived_ = 0;
  TimePoint round_since_{};
  double lost_share_ = 0;     // of the bytes sent; smoothed over 16 rounds
  double lasting_share_ = 0;  // of the bytes sent; smoothed over a second
  // Window for paths with an RTT below 100 us and hardly any loss.
  FixedWindow near_;
  // The window in bytes until bandwidth and RTT are known, and the least window in startup. Doubles each
  // round trip, until it is as large as the window of near_ (a FixedWindow).
  uint64_t first_;
  InflightCap inflight_cap_;
  Incast incast_;  // the receiver's latest report
  DcqcnRate marks_;
};

}  // namespace verbena::congestion
