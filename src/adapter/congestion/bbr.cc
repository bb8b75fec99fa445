// SPDX-License-Identifier: Apache-2.0
#include "adapter/congestion/bbr.h"

#include <cmath>

namespace verbena::congestion {
namespace {

// Gains, in hundredths: rates and windows as multiples of the model's.
constexpr uint32_t kOne = 100;
constexpr uint32_t kDouble = 277;  // 4 ln 2: the least gain that doubles the rate each round trip
constexpr uint32_t kDrain = 36;    // the inverse of kDouble
// The pacing gains of a turn (BBR's gain cycle): faster, slower, then even for six steps. A turn has eight
// steps so that flows on one link probe at different times.
constexpr std::array<uint32_t, 8> kTurn = {125, 75, 100, 100, 100, 100, 100, 100};
// The path is full when the bandwidth has not grown by a quarter for this many rounds.
constexpr uint32_t kFullRounds = 3;
// In startup, the path is also full when the bytes lost in a round exceed those arrived divided by this.
constexpr uint32_t kOverflow = 6;
// Lost data is sent on top of the path's rate, up to this share of what is sent.
constexpr double kMaxLost = 0.1;

// Shares of lost bytes that mean a full queue: kSomeLost beyond the usual loss while the RTT is longer, or
// kMuchLost averaged over kLasting seconds.
constexpr double kSomeLost = 0.01;
constexpr double kMuchLost = 0.07;
constexpr double kLasting = 1;
// With other senders reported, less evidence of a full queue suffices: a loss share this much above the
// lasting share, or an RTT this much longer.
constexpr double kToldLost = 0.06;
constexpr Duration kToldLonger = std::chrono::microseconds(500);
// The RTT may be longer by this because the hosts are busy.
constexpr Duration kBusy = std::chrono::microseconds(250);

// Packets in flight before anything is known of the path. Many flows may start at once, and a queue holds
// some hundred packets. TCP starts with ten (RFC 6928).
constexpr uint32_t kFirstPackets = 16;

// Below this RTT a path is within the machine or a single cable. Its RTT consists of wake-ups, and timers are
// too coarse to pace it: the window alone decides.
constexpr Duration kNear = std::chrono::microseconds(100);
// Except on a path that keeps losing this share. There a window would depend on the losses, instead of on
// what the path holds plus what busy hosts add.
constexpr double kNearLost = 0.002;

// Seconds. After a longer stall the path has changed anyway.
constexpr double kLongestStall = 0.1;

// A queue that others keep full makes the RTT at most this many times as long.
constexpr int64_t kLongestQueue = 16;

uint64_t hundredths(uint64_t value, uint32_t part) {
  return value * part / kOne;
}

}  // namespace

Bbr::Bbr(const Sizes& sizes) : sizes_(sizes) {
  near_.reset(sizes, FixedWindow::kFourTimes);
  first_ = std::min<uint64_t>(kFirstPackets * uint64_t{sizes.packet}, near_.usable());
  allowance_.window = first_;
}

uint64_t Bbr::held(uint32_t quarters) const {
  const double bytes =
      static_cast<double>(bandwidth_.get()) * 1e-9 * static_cast<double>(round_trip_.get().count());
  return static_cast<uint64_t>(bytes * quarters / 4);
}

// Proportional to the square root of the rate: of flows that share a queue, the slower ones gain.
// (Proportional to the rate, as in TCP's BBR, each flow would keep its share.) 0.2 MB at a gigabit, about the
// same as TCP. With other senders at the receiver, this is the sum for all of them.
uint64_t Bbr::usual_aggregation() const {
  constexpr double kOfRoot = 18;
  constexpr uint64_t kMax = 6 * 65536;
  constexpr uint32_t kLeastPackets = 8;
  const auto senders = static_cast<double>(incast_.senders);
  const double rate_of_all = senders * static_cast<double>(bandwidth_.get());
  const auto bytes = static_cast<uint64_t>(kOfRoot * std::sqrt(rate_of_all) / senders);
  const uint64_t least_packets = std::max(kLeastPackets / incast_.senders, 2u);
  return std::clamp<uint64_t>(bytes, least_packets * sizes_.packet, kMax);
}

// Twice the bandwidth-delay product (BDP), since lost data is in flight again for another round trip. Three
// times in startup: where RTTs vary much, as over Wi-Fi, the mean is twice the min RTT, and with two BDPs the
// rate would seem to have stopped growing. Or 1.25 BDP plus the ACK aggregation, if that is more.
uint64_t Bbr::max_in_flight() const {
  const auto most = static_cast<uint64_t>(static_cast<double>(bandwidth_.get()) * kLongestStall);
  const uint64_t evenly = held(phase_ == Phase::kStartup ? 12 : 8) + usual_aggregation();
  return std::max(evenly, held(5) + std::min(ack_aggregation_.get(), most));
}

void Bbr::on_arrival(const Sample& sample) {
  if (round_since_ == TimePoint{}) round_since_ = sample.now;  // the first round starts
  near_.on_acknowledged(static_cast<uint32_t>(sample.arrived));
  first_ = std::min<uint64_t>(first_ + sample.arrived, near_.usable());
  round_arrived_ += sample.arrived;
  note_round(sample);
  if (sample.rate != 0 && (!sample.limited || sample.rate >= bandwidth_.get())) {
    bandwidth_.add(round_, sample.rate);
  }
  if (bandwidth_.get() != 0)
    ack_aggregation_.on_arrival(round_, sample.arrived, bandwidth_.get(), sample.now);
  note_round_trip(sample);
  check_full(sample);
  note_losses(sample);
  if (round_began_) marks_.on_round(bandwidth_.get());
  step(sample);
  decide();
}

// A round ends when data that was sent after its start is acknowledged.
void Bbr::note_round(const Sample& sample) {
  round_began_ = false;
  if (sample.sent_at < round_ends_ || sample.rate == 0) return;
  round_ends_ = sample.delivered;
  ++round_;
  round_began_ = true;
}

void Bbr::note_round_trip(const Sample& sample) {
  if (sample.round_trip.count() != 0) round_trip_.on_sample(sample.round_trip, sample.now);
  const bool is_old = round_began_ && round_trip_.on_round(sample.now, phase_ != Phase::kDip);
  if (is_old && phase_ == Phase::kCruise) begin_dip();
}

void Bbr::begin_dip() {
  phase_ = Phase::kDip;
  dip_ends_ = kNever;
  round_trip_.begin_dip();
}

void Bbr::end_dip(TimePoint now) {
  round_trip_.end_dip(now);
  phase_ = is_full_ ? Phase::kCruise : Phase::kStartup;
  turn_ = 2;
  turn_began_ = now;
}

void Bbr::check_full(const Sample& sample) {
  if (is_full_ || !round_began_ || sample.limited) return;
  if (bandwidth_.get() >= hundredths(full_bandwidth_, 125)) {
    full_bandwidth_ = bandwidth_.get();
    full_rounds_ = 0;
    return;
  }
  // A few packets in a round may have been delayed by something else than the path.
  const bool has_tried = first_ >= near_.usable();
  is_full_ = ++full_rounds_ >= kFullRounds && has_tried;
}

bool Bbr::takes_longer() const {
  const Duration longer = std::min(round_trip_.get() / 4, knows_of_others() ? kToldLonger : Duration::max());
  return round_trip_.latest() > round_trip_.get() + longer + kBusy;
}

// The bytes of a round that are usually lost, plus three standard deviations of chance. No chance is added
// with other senders or heavy loss: a round then has few packets, and losses of a full queue would pass for
// chance.
double Bbr::usually_lost(double all) const {
  const double usual = all * lasting_share_;
  if (knows_of_others() || lasting_share_ > kMuchLost) return usual;
  return usual + 3 * std::sqrt(usual * sizes_.packet);
}

// Whether the round's losses come from a full queue. Yes if there are some while the RTT is longer. Also yes
// if there are many for seconds: a queue that others keep full has always had the same RTT. (This flow may
// then be one of very many. With other senders reported, the wait is shorter.) `all`: bytes sent in the
// round.
bool Bbr::has_overflowed(double all) const {
  const auto some = static_cast<uint64_t>(all * kSomeLost);
  if (takes_longer()) {
    // With many senders, each has few packets in a round.
    const uint64_t few = 2 / incast_.senders * uint64_t{sizes_.packet};
    return round_lost_ > std::max(some + static_cast<uint64_t>(usually_lost(all)), few);
  }
  const bool loses_much =
      lasting_share_ > kMuchLost || (knows_of_others() && lost_share_ > lasting_share_ + kToldLost);
  // Earlier losses do not count once they have stopped.
  return loses_much && round_lost_ > some;
}

void Bbr::note_overflow(uint64_t in_flight, double all, double seconds) {
  if (!has_overflowed(all))
    return inflight_cap_.on_quiet_round(sizes_.packet, max_in_flight(), incast_.senders);
  const uint64_t before = std::min(allowance_.window, in_flight + round_lost_);
  const uint64_t path = held(knows_of_others() ? 4 : 5);
  inflight_cap_.on_overflow(before, takes_longer() ? path + usual_aggregation() / 5 : held(2));
  const double arriving = static_cast<double>(round_arrived_) / std::max(seconds, 1e-9);
  bandwidth_.cut(std::max(static_cast<uint64_t>(arriving), hundredths(bandwidth_.get(), 90)));
}

// In startup, a path that loses a part of what is sent is full, whatever arrives.
void Bbr::note_losses(const Sample& sample) {
  if (!round_began_ || round_arrived_ == 0) return;
  const auto all = static_cast<double>(round_lost_ + round_arrived_);
  const double share = static_cast<double>(round_lost_) / all;
  lost_share_ += (share - lost_share_) / 16;
  const double seconds = std::chrono::duration<double>(sample.now - round_since_).count();
  lasting_share_ += (share - lasting_share_) * std::min(seconds / kLasting, 1.0);
  if (round_lost_ > 8 * uint64_t{sizes_.packet} && round_lost_ * kOverflow > round_arrived_) is_full_ = true;
  note_overflow(sample.in_flight, all, seconds);
  round_since_ = sample.now;
  round_lost_ = round_arrived_ = 0;
}

void Bbr::step(const Sample& sample) {
  const TimePoint now = sample.now;
  switch (phase_) {
    case Phase::kStartup:
      if (is_full_) phase_ = Phase::kDrain;
      [[fallthrough]];
    case Phase::kDrain:
      if (phase_ == Phase::kDrain && sample.in_flight <= held(4)) {
        phase_ = Phase::kCruise;
        turn_ = 2 + static_cast<uint32_t>(now.time_since_epoch().count() / 1000 % (kTurn.size() - 2));
        turn_began_ = now;
      }
      return;
    case Phase::kCruise: {
      // By the latest RTT: a shorter step would not see the effect of its own gain.
      const bool is_long = now - turn_began_ > std::max(round_trip_.get(), round_trip_.latest());
      // The fast step lasts until the extra data is in flight, the slow step until it has drained.
      const bool is_over = turn_ == 0   ? is_long && (lost_ > 0 || sample.in_flight >= held(5))
                           : turn_ == 1 ? is_long || sample.in_flight <= held(4)
                                        : is_long;
      if (!is_over) return;
      return next_of_turn(now);
    }
    case Phase::kDip:
      if (dip_ends_ == kNever && sample.in_flight <= std::max(held(2), least())) {
        // A process that was stalled sees an RTT that is not the path's, so the dip's length is limited.
        const Duration most = kLongestQueue * round_trip_.before_dip();
        dip_ends_ = now + std::max(MinRtt::kDip, std::min(sample.round_trip, most));
      }
      if (now >= dip_ends_) end_dip(now);
      return;
  }
}

void Bbr::next_of_turn(TimePoint now) {
  turn_ = (turn_ + 1) % kTurn.size();
  turn_began_ = now;
  lost_ = 0;
}

void Bbr::decide() {
  follow_model();
  const uint64_t limit = marks_.limit();
  if (limit == 0 || allowance_.rate <= limit) return;  // or the window alone decides
  allowance_.rate = limit;
  // Twice the bytes that this rate has in flight: acknowledgements come in bursts.
  const double seconds = std::chrono::duration<double>(round_trip_.get()).count();
  const auto on_the_way = static_cast<uint64_t>(2 * static_cast<double>(limit) * seconds);
  allowance_.window = std::clamp(on_the_way, least(), std::max(allowance_.window, least()));
}

void Bbr::follow_model() {
  const uint64_t bandwidth = bandwidth_.get();
  const bool is_known = bandwidth != 0 && round_trip_.get().count() != 0;
  if (!is_known) {
    allowance_ = {.window = first_};
    return;
  }
  if (round_trip_.get() < kNear && lasting_share_ < kNearLost) {
    allowance_ = {.window = std::max<uint64_t>(near_.usable(), held(8))};
    return;
  }
  if (phase_ == Phase::kDip) {
    allowance_ = {.window = std::max(held(2), least()), .rate = bandwidth};
    return;
  }
  allowance_.window = std::max(std::min(max_in_flight(), inflight_cap_.get()), least());
  const bool starts = phase_ == Phase::kStartup;
  const uint32_t part = starts ? kDouble : phase_ == Phase::kDrain ? kDrain : kTurn[turn_];
  // 1 % below the delivery rate, so that no queue remains.
  allowance_.rate = static_cast<uint64_t>(static_cast<double>(hundredths(hundredths(bandwidth, part), 99)) /
                                          (1 - std::min(lost_share_, kMaxLost)));
  // At least the least window per round trip, whatever rates are measured: after a stall they show only how
  // slowly the sender sent.
  const double seconds = std::chrono::duration<double>(round_trip_.get()).count();
  allowance_.rate = std::max(allowance_.rate, static_cast<uint64_t>(static_cast<double>(least()) / seconds));
  // In startup, allows at least first_: a program that has sent little so far has not shown how slow the path
  // is.
  if (!starts) return;
  const auto first = static_cast<uint64_t>(static_cast<double>(first_) / seconds);
  allowance_.rate = std::max(allowance_.rate, hundredths(first, kDouble));
  allowance_.window = std::max<uint64_t>(allowance_.window, first_);
}

void Bbr::on_loss(uint64_t bytes) {
  near_.on_loss();
  lost_ += bytes;
  round_lost_ += bytes;
}

// Nothing is known to get through: sends one packet. Its acknowledgement shows whether the path is unchanged.
void Bbr::on_timeout() {
  near_.on_timeout();
  allowance_.window = sizes_.packet;
}

void Bbr::on_incast(const Incast& incast) {
  const uint8_t before = std::exchange(incast_, incast).dip;
  if (incast.senders > 1 && incast.dip != before && phase_ == Phase::kCruise) begin_dip();
  decide();
}

void Bbr::on_mark() {
  near_.on_loss();
  marks_.on_mark(allowance_.rate);
  decide();
}

}  // namespace verbena::congestion
