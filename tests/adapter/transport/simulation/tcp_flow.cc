// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/simulation/tcp_flow.h"

#include <algorithm>
#include <cmath>

namespace verbena::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kHighGain = 2.885;
constexpr std::array<double, 8> kTurn = {1.25, 0.75, 1, 1, 1, 1, 1, 1};
constexpr uint64_t kLeastWindow = 4;
constexpr Duration kRoundTripLasts = seconds(10);
constexpr Duration kProbe = milliseconds(200);
constexpr Duration kLeastTimeout = milliseconds(200);

double seconds_of(Duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

double TcpFlow::held(double gain) const {
  return bandwidth() * seconds_of(least_round_trip_) * gain;
}

double TcpFlow::gain() const {
  switch (phase_) {
    case Phase::kStartup:
      return kHighGain;
    case Phase::kDrain:
      return 1 / kHighGain;
    case Phase::kCruise:
      return kTurn[turn_];
    case Phase::kProbeRoundTrip:
      return 1;
  }
  return 1;
}

// The packets of one millisecond, at most one super-packet.
uint64_t TcpFlow::quantum() const {
  return std::clamp<uint64_t>(static_cast<uint64_t>(bandwidth() / 1000), 2, 44);
}

void TcpFlow::run(TimePoint now) {
  take_answers(now);
  send(now);
}

TimePoint TcpFlow::deadline() const {
  TimePoint next = in_flight_.size() < window_ ? may_send_ : kNever;
  for (const Packet& packet : in_flight_) {
    if (packet.answered == kNever) continue;
    return std::min(next, packet.answered);
  }
  return in_flight_.empty() ? next : std::min(next, in_flight_.back().sent + kLeastTimeout);
}

// The link keeps the order: packets sent before an acknowledged one and not acknowledged are lost.
void TcpFlow::take_answers(TimePoint now) {
  uint64_t acked = 0;
  lost_now_ = round_began_ = false;
  size_t lost = 0;
  for (size_t i = 0;
       i < in_flight_.size() && (in_flight_[i].answered == kNever || in_flight_[i].answered <= now);) {
    if (in_flight_[i].answered == kNever) {
      ++i;
      continue;
    }
    lost += i;
    in_flight_.erase(in_flight_.begin(), in_flight_.begin() + static_cast<ptrdiff_t>(i));
    const Packet packet = in_flight_.front();
    in_flight_.pop_front();
    i = 0;
    ++acked;
    on_answer(packet, now);
  }
  const bool silent = !in_flight_.empty() && acked == 0 && in_flight_.back().sent + kLeastTimeout <= now;
  if (silent) {
    lost += in_flight_.size();
    in_flight_.clear();
    window_ = kLeastWindow;
  }
  lost_now_ = lost > 0;
  if (acked == 0) return;
  update_aggregation(now, acked);
  update_phase(now);
  window_ -= std::min(window_ - 1, uint64_t{lost});
  update_window(acked);
}

void TcpFlow::on_answer(const Packet& packet, TimePoint now) {
  ++delivered_;
  delivered_at_ = now;
  delivered_sent_ = packet.sent;
  if (packet.delivered >= round_ends_) {
    round_ends_ = delivered_;
    ++round_;
    round_began_ = true;
  }
  update_round_trip(now, now - packet.sent);
  const Duration interval = std::max(now - packet.delivered_at, packet.sent - packet.delivered_sent);
  if (interval >= least_round_trip_ && interval.count() > 0) {
    const auto packets = static_cast<double>(delivered_ - packet.delivered);
    bandwidth_.add(round_, static_cast<uint64_t>(packets * 1000 / seconds_of(interval)));
  }
}

void TcpFlow::update_round_trip(TimePoint now, Duration round_trip) {
  const bool expired = least_round_trip_.count() != 0 && now > least_since_ + kRoundTripLasts;
  if (least_round_trip_.count() == 0 || round_trip <= least_round_trip_ || expired) {
    least_round_trip_ = round_trip;
    least_since_ = now;
  }
  if (!expired || phase_ == Phase::kProbeRoundTrip) return;
  phase_ = Phase::kProbeRoundTrip;
  window_before_ = window_;
  probe_ends_ = kNever;
}

void TcpFlow::update_phase(TimePoint now) {
  if (!is_full_ && round_began_) {
    if (bandwidth() >= full_ * 1.25) {
      full_ = bandwidth();
      full_rounds_ = 0;
    } else {
      is_full_ = ++full_rounds_ >= 3;
    }
  }
  const auto flying = static_cast<double>(in_flight_.size());
  if (phase_ == Phase::kStartup && is_full_) phase_ = Phase::kDrain;
  if (phase_ == Phase::kDrain && flying <= held(1)) {
    phase_ = Phase::kCruise;
    turn_ = 2;
    turn_began_ = now;
  }
  if (phase_ == Phase::kCruise) {
    const bool is_long = now - turn_began_ > least_round_trip_;
    const bool is_over = turn_ == 0   ? is_long && (lost_now_ || flying >= held(1.25))
                         : turn_ == 1 ? is_long || flying <= held(1)
                                      : is_long;
    if (is_over) {
      turn_ = (turn_ + 1) % kTurn.size();
      turn_began_ = now;
    }
  }
  if (phase_ == Phase::kProbeRoundTrip) {
    if (probe_ends_ == kNever && in_flight_.size() <= kLeastWindow) probe_ends_ = now + kProbe;
    if (now >= probe_ends_) {
      least_since_ = now;
      window_ = std::max(window_, window_before_);
      phase_ = is_full_ ? Phase::kCruise : Phase::kStartup;
      turn_ = 2;
      turn_began_ = now;
    }
  }
}

// Measures how much arrives beyond the bandwidth (ACK aggregation), for which the window leaves room.
void TcpFlow::update_aggregation(TimePoint now, uint64_t acked) {
  if (round_began_ && round_ - extra_round_ >= 5) {
    extra_round_ = round_;
    extra_ = {0, extra_[0]};
  }
  double expected = bandwidth() * seconds_of(now - aggregation_began_);
  if (static_cast<double>(aggregated_) <= expected) {
    aggregated_ = 0;
    aggregation_began_ = now;
    expected = 0;
  }
  aggregated_ += acked;
  const double extra = std::min(static_cast<double>(aggregated_) - expected, static_cast<double>(window_));
  if (extra > 0) extra_[0] = std::max(extra_[0], static_cast<uint64_t>(extra));
}

void TcpFlow::update_window(uint64_t acked) {
  const uint64_t flying = in_flight_.size();
  if (lost_now_ && !recovers_) {
    recovers_ = conserves_ = true;
    window_before_ = std::max(window_, window_before_);
    recovery_round_ = round_;
    recovery_ends_ = delivered_ + flying;
    window_ = std::max(flying + acked, kLeastWindow);
  } else if (recovers_ && delivered_ >= recovery_ends_ && !lost_now_) {
    recovers_ = conserves_ = false;
    window_ = std::max(window_, window_before_);
    window_before_ = 0;
  } else if (recovers_ && lost_now_) {
    recovery_ends_ = delivered_ + flying;
  }
  if (conserves_ && round_ > recovery_round_ + 1) conserves_ = false;
  if (conserves_) {
    window_ = std::max(window_, flying + acked);
  } else {
    double target = held(phase_ == Phase::kStartup || phase_ == Phase::kDrain ? kHighGain : 2);
    target += static_cast<double>(3 * quantum());
    if (is_full_) {
      target += std::min(static_cast<double>(std::max(extra_[0], extra_[1])), bandwidth() / 10);
    }
    if (phase_ == Phase::kCruise && turn_ == 0) target += 2;
    const auto goal = static_cast<uint64_t>(std::ceil(target));
    if (is_full_) {
      window_ = std::min(window_ + acked, goal);
    } else if (window_ < goal || delivered_ < 10) {
      window_ += acked;
    }
  }
  window_ = std::max(window_, kLeastWindow);
  if (phase_ == Phase::kProbeRoundTrip) window_ = std::min(window_, kLeastWindow);
}

void TcpFlow::send(TimePoint now) {
  while (may_send_ <= now && in_flight_.size() < window_) {
    const uint64_t burst = std::min(quantum(), window_ - in_flight_.size());
    if (in_flight_.empty()) delivered_at_ = delivered_sent_ = now;
    for (uint64_t i = 0; i < burst; ++i) {
      Packet packet{now, kNever, delivered_, delivered_at_, delivered_sent_};
      const net::Passage passage = link_.pass(now, kFrame);
      if (passage.arrived()) {
        TimePoint answered = passage.arrives[0] + way_back_;
        if (lump_.count() > 0) answered += lump_ - answered.time_since_epoch() % lump_;
        packet.answered = latest_answer_ = std::max(answered, latest_answer_);
      }
      in_flight_.push_back(packet);
    }
    const double known = bandwidth() > 0 ? bandwidth() : 10'000;
    const double rate = known * gain() * (phase_ == Phase::kStartup ? 1 : 0.99);
    may_send_ = std::max(may_send_, now - milliseconds(1)) +
                Duration(static_cast<int64_t>(static_cast<double>(burst) * 1e9 / rate));
  }
}

}  // namespace verbena::transport
