// SPDX-License-Identifier: Apache-2.0
#include "adapter/congestion/flow.h"

#include <new>
#include <utility>

#include "adapter/congestion/bbr.h"

namespace verbena::congestion {

namespace {

constexpr size_t kFirstSize = 64;

std::unique_ptr<Algorithm> make_algorithm(Kind kind, const Sizes& sizes) {
  if (kind == Kind::kBbr) return std::make_unique<Bbr>(sizes);
  return std::make_unique<FixedAlgorithm>(sizes);
}

}  // namespace

void PacketTrains::add(const PacketTrain& run) {
  if (count_ == ring_.size() && !grow()) {
    if (count_ == 0) return;  // out of memory: nothing is measured
    PacketTrain& last = back();
    last.packets += run.packets;
    last.repeated |= run.repeated;
    return;
  }
  at(count_++) = run;
}

// False: kMax is reached, or out of memory.
bool PacketTrains::grow() {
  if (ring_.size() >= kMax) return false;
  try {
    std::vector<PacketTrain> larger(std::max(ring_.size() * 2, kFirstSize));
    for (size_t i = 0; i < count_; ++i) larger[i] = at(i);
    ring_ = std::move(larger);
    first_ = 0;
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

const PacketTrain* PacketTrains::find(roce::Psn psn) const {
  size_t low = 0;
  size_t high = count_;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const PacketTrain& run = at(middle);
    if (run.has(psn)) return &run;
    if (psn.is_before(run.first)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return nullptr;
}

void PacketTrains::drop_before(roce::Psn limit) {
  while (count_ > 0 && !at(0).limit().is_after(limit)) {
    first_ = (first_ + 1) & (ring_.size() - 1);
    --count_;
  }
}

void PacketTrains::drop_from(roce::Psn from) {
  while (count_ > 0 && !back().first.is_before(from)) --count_;
  if (count_ > 0 && back().limit().is_after(from))
    back().packets = static_cast<uint32_t>(from - back().first);
}

std::unique_ptr<Flow> Flow::make(Kind kind, const Sizes& sizes) noexcept {
  try {
    return std::make_unique<Flow>(kind, sizes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

Flow::Flow(Kind kind, const Sizes& sizes)
    : sizes_(sizes), kind_(kind), algorithm_(make_algorithm(kind, sizes)) {
  obey();
}

void Flow::use(Kind kind) noexcept {
  if (kind == kind_) return;
  try {
    algorithm_ = make_algorithm(kind, sizes_);
  } catch (const std::bad_alloc&) {
    return;
  }
  kind_ = kind;
  obey();
}

void Flow::obey() {
  allowance_ = algorithm_->allowance();
  pacer_.set(allowance_.rate, 2 * sizes_.packet, sizes_.burst);
}

void Flow::sent(roce::Psn first, uint32_t packets, uint32_t bytes, bool repeated, uint64_t in_flight,
                TimePoint now) {
  pacer_.sent(bytes, now);
  if (run_is_open_ && !trains_.empty() && trains_.back().limit() == first &&
      trains_.back().repeated == repeated) {
    trains_.back().packets += packets;
    return;
  }
  if (in_flight == 0) delivered_at_ = delivered_sent_ = now;
  run_is_open_ = true;
  trains_.add({.first = first,
               .packets = packets,
               .repeated = repeated,
               .limited = delivered_ < limited_until_,
               .sent = now,
               .delivered = delivered_,
               .delivered_at = delivered_at_,
               .delivered_sent = delivered_sent_});
}

void Flow::took_time(roce::Psn first, roce::Psn limit) {
  const roce::Psn last = limit - 1;
  const PacketTrain* run = trains_.find(last);
  if (run == nullptr || run->repeated) return;
  const auto packets = static_cast<uint64_t>(limit - first);
  if (timed_.packets == 0) timed_.first_sent = run->sent;
  timed_.after += static_cast<int64_t>(packets) * (run->sent - timed_.first_sent);
  timed_.packets += packets;
  if (!timed_.latest || last.is_after(*timed_.latest)) timed_.latest = last;
}

// The rate is the bytes that arrived since the train left, divided by the longer of two times: the time until
// now, and the time it took to send them. So acknowledgements that come together do not make the path look
// faster.
void Flow::answered(uint64_t in_flight, TimePoint now) {
  Sample sample{
      .now = now, .arrived = delivered_ - answered_, .delivered = delivered_, .in_flight = in_flight};
  answered_ = delivered_;
  if (sample.arrived > 0) delivered_at_ = now;
  if (timed_.packets > 0) {
    sample.round_trip = std::max(now - timed_.sent_on_average(), Duration(1));
    round_trip_.on_sample(sample.round_trip);
  }
  if (const PacketTrain* run = timed_.latest ? trains_.find(*timed_.latest) : nullptr) {
    sample.sent_at = run->delivered;
    sample.limited = run->limited;
    delivered_sent_ = std::max(delivered_sent_, run->sent);
    const Duration interval = std::max(now - run->delivered_at, run->sent - run->delivered_sent);
    if (interval.count() > 0 && interval >= round_trip_.least() && delivered_ > run->delivered) {
      sample.rate = static_cast<uint64_t>(static_cast<double>(delivered_ - run->delivered) * 1e9 /
                                          static_cast<double>(interval.count()));
    }
  }
  timed_ = {};
  algorithm_->on_arrival(sample);
  obey();
}

void Flow::timed_out() {
  pacer_.forget();
  algorithm_->on_timeout();
  obey();
}

}  // namespace verbena::congestion
