// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/congestion/ack_aggregation.h"
#include "adapter/congestion/algorithm.h"
#include "adapter/congestion/dcqcn_rate.h"
#include "adapter/congestion/fixed_window.h"
#include "adapter/congestion/inflight_cap.h"
#include "adapter/congestion/min_rtt.h"
#include "adapter/congestion/windowed_max.h"

namespace verbena::congestion {

// A model of the path: how fast data has been arriving at best of late, and how long a round trip takes when
// no queue is in the way. As much is kept in flight as the path then holds, and it leaves at the rate at
// which it arrives; now and then a little faster, to see whether there is more, and then a little slower, to
// let go what has queued up. Neither a loss nor a longer round trip changes the model, so a path that loses
// packets or jitters is used as well as any; a loss ends an attempt to send more, and no more. Only where
// both come together a queue overflows, and less is kept in flight (inflight_cap.h). Switches that mark
// packets are obeyed (dcqcn_rate.h). A receiver that tells of other senders makes all of them keep less in
// the queue and look for a round trip without it at the same time (incast.h). After Cardwell et al., "BBR:
// Congestion-Based Congestion Control" (ACM Queue 14/5, 2016) and draft-ietf-ccwg-bbr.
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
    kStartup,  // doubles each round trip until that brings nothing any more
    kDrain,    // lets go what has queued up by that
    kCruise,   // at the path's rate, with a probe for more in each turn
    kDip,      // little in flight, to see the round trip without a queue
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
  // What the path holds, so many quarters of it.
  uint64_t held(uint32_t quarters) const;
  // Besides, as answers come in lumps over any path.
  uint64_t usual_aggregation() const;
  uint64_t max_in_flight() const;
  bool knows_of_others() const { return incast_.senders > 1; }
  // Less where it would be too much for a queue that many share.
  uint64_t least() const { return (incast_.senders > kMany ? 2 : 4) * uint64_t{sizes_.packet}; }

  static constexpr uint32_t kMany = 8;

  const Sizes sizes_;
  Allowance allowance_;
  Phase phase_ = Phase::kStartup;
  WindowedMax bandwidth_;
  uint64_t round_ = 0;
  uint64_t round_ends_ = 0;  // when so many bytes have arrived
  bool round_began_ = false;

  AckAggregation ack_aggregation_;
  MinRtt round_trip_;
  TimePoint dip_ends_ = kNever;

  uint64_t full_bandwidth_ = 0;
  uint32_t full_rounds_ = 0;
  bool is_full_ = false;

  uint32_t turn_ = 0;
  TimePoint turn_began_{};
  uint64_t lost_ = 0;  // bytes, in this part of the turn
  // Bytes, in this round.
  uint64_t round_lost_ = 0;
  uint64_t round_arrived_ = 0;
  TimePoint round_since_{};
  double lost_share_ = 0;     // of what is sent
  double lasting_share_ = 0;  // the same over a longer time
  // What is best on a machine's own networks, until a path shows what it holds.
  FixedWindow near_;
  // Bytes in flight at first: doubles each round trip, up to that window.
  uint64_t first_;
  InflightCap inflight_cap_;
  Incast incast_;  // as told last
  DcqcnRate marks_;
};

}  // namespace verbena::congestion
