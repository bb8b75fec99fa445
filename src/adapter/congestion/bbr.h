// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/congestion/algorithm.h"
#include "adapter/congestion/bbr_model.h"
#include "adapter/congestion/dcqcn_rate.h"
#include "adapter/congestion/fixed_window.h"
#include "adapter/congestion/windowed_max.h"

namespace verbena::congestion {

// BBR: models the path by its bandwidth (the largest recent delivery rate) and its min RTT (the RTT without a
// queue). Keeps in flight what the path holds by this model, and paces at the delivery rate. Periodically it
// sends a little faster to find more bandwidth, then a little slower to drain the queue that this built.
// Neither a loss nor a longer RTT changes the model, so paths with loss or jitter are used fully. A loss only
// ends an attempt to send faster. After Cardwell et al., "BBR: Congestion-Based Congestion Control" (ACM
// Queue 14/5, 2016) and draft-ietf-ccwg-bbr.
//
// Differences from BBR:
// - Loss and a longer RTT together, or heavy loss for about a second, mean that a queue overflows: the
//   inflight cap shrinks (bbr_model.h), and the bandwidth is lowered by up to 10 %.
// - CNPs limit the rate (dcqcn_rate.h).
// - A receiver that reports other senders makes all of them keep less in the queue and measure the min RTT at
//   the same time (incast.h).
// - On a path with an RTT below 100 us and less than 0.2 % loss, nothing is paced. The window is a
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
  // The least window, in bytes. It is smaller with many senders, where four packets each would overfill the
  // shared queue.
  uint64_t least() const { return (incast_.senders > kMany ? 2 : 4) * uint64_t{sizes_.packet}; }

  static constexpr uint32_t kMany = 8;

  const Sizes sizes_;
  Allowance allowance_;
  Phase phase_ = Phase::kStartup;
  WindowedMax bandwidth_;
  uint64_t round_ = 0;
  uint64_t round_ends_ = 0;  // the round ends with data that was sent after this many bytes had arrived
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
  // Bytes of this round.
  uint64_t round_lost_ = 0;
  uint64_t round_arrived_ = 0;
  TimePoint round_since_{};
  double lost_share_ = 0;     // of the bytes sent; smoothed over 16 rounds
  double lasting_share_ = 0;  // of the bytes sent; smoothed over a second
  // Window for paths with an RTT below 100 us and hardly any loss.
  FixedWindow near_;
  // The window in bytes until bandwidth and RTT are known, and the least window in startup. Doubles each
  // round trip, up to the window of near_.
  uint64_t first_;
  InflightCap inflight_cap_;
  Incast incast_;  // the receiver's latest report
  DcqcnRate marks_;
};

}  // namespace verbena::congestion
