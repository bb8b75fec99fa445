// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/sim/link_model.h"

#include <algorithm>
#include <utility>

namespace verbena::net {
namespace {

constexpr uint32_t kEthernetHeaderBytes = 14;
constexpr uint64_t kNanosecondsPerSecond = 1'000'000'000;
// Makes the second stream of random numbers differ from the first.
constexpr uint64_t kMomentSeed = 0x6d6f'6d65'6e74'0001;

}  // namespace

LinkModel::LinkModel(const LinkSettings& settings, uint64_t seed, TimePoint begin)
    : settings_(settings),
      begin_(begin),
      random_(seed),
      random_moment_(seed ^ kMomentSeed),
      free_at_(begin),
      latest_(begin),
      jitter_until_(begin) {}

uint64_t LinkModel::queue_bytes(TimePoint now) {
  while (count_ > 0 && queue_[first_].leaves <= now) {
    queue_bytes_ -= queue_[first_].bytes;
    first_ = (first_ + 1) & (queue_.size() - 1);
    --count_;
  }
  return queue_bytes_;
}

void LinkModel::enqueue(const Waiting& packet) {
  if (count_ == queue_.size()) {
    std::vector<Waiting> larger(queue_.size() * 2);
    for (size_t i = 0; i < count_; ++i) larger[i] = queue_[(first_ + i) & (queue_.size() - 1)];
    queue_ = std::move(larger);
    first_ = 0;
  }
  queue_[(first_ + count_++) & (queue_.size() - 1)] = packet;
  queue_bytes_ += packet.bytes;
  counters_.longest_queue_bytes = std::max(counters_.longest_queue_bytes, queue_bytes_);
}

Passage LinkModel::pass(TimePoint now, size_t bytes) {
  ++counters_.packets;
  counters_.bytes += bytes;
  const Lot lot = draw();
  if (settings_.mtu != 0 && bytes > settings_.mtu + kEthernetHeaderBytes) {
    ++counters_.too_large;
    return {.fate = LinkFate::kTooLarge};
  }

  const uint64_t before = queue_bytes(now);
  if (before != 0 && before + bytes > settings_.queue_bytes) {
    ++counters_.overflowed;
    return {.fate = LinkFate::kOverflowed};
  }
  TimePoint leaves = now;
  if (settings_.bytes_per_second != 0) {
    leaves = free_at_ = transmitted(std::max(free_at_, now), bytes + settings_.overhead_bytes);
    enqueue({leaves, bytes});
  }
  // Lost on the wire: the packet has taken its time of the transmitter.
  if (lot.lost || lost_in_burst(leaves)) {
    ++counters_.lost;
    return {.fate = LinkFate::kLost};
  }

  Passage passage = arrival(leaves, lot);
  passage.marked = settings_.mark_above_bytes != 0 && before > settings_.mark_above_bytes;
  if (passage.marked) ++counters_.marked;
  passage.corrupted = lot.corrupted;
  passage.damage = lot.damage;
  if (passage.corrupted) ++counters_.corrupted;
  return passage;
}

// Draws all random numbers of a packet whatever becomes of it, so that later packets' draws do not depend on
// its fate.
LinkModel::Lot LinkModel::draw() {
  Lot lot;
  lot.lost = chance(settings_.loss);
  lot.lost |= lost_in_bad_state();
  lot.early = chance(settings_.early);
  lot.late = chance(settings_.late);
  lot.duplicated = chance(settings_.duplication);
  lot.corrupted = chance(settings_.corruption);
  if (lot.late) lot.detour = random_.next();
  if (lot.duplicated) lot.copy_detour = random_.next();
  if (lot.corrupted) lot.damage = random_.next();
  return lot;
}

bool LinkModel::lost_in_bad_state() {
  if (settings_.bad_begins == 0) return false;
  if (chance(bad_ ? settings_.bad_ends : settings_.bad_begins)) bad_ = !bad_;
  return bad_ && chance(settings_.bad_loss);
}

bool LinkModel::lost_in_burst(TimePoint now) {
  if (settings_.burst_every.count() <= 0) return false;
  const Duration within = (now - begin_) % settings_.burst_every;
  if (within < settings_.burst_every - settings_.burst_length) return false;
  return random_moment_.below(1'000'000) < settings_.burst_loss;
}

// When the transmitter is done with this many bytes, through all turns of its rate.
TimePoint LinkModel::transmitted(TimePoint begin, uint64_t bytes) const {
  if (settings_.rate_turn.count() <= 0) {
    return begin + Duration(bytes * kNanosecondsPerSecond / settings_.bytes_per_second);
  }
  // In units of a billionth of a byte, so that nothing is rounded away at the turns.
  uint64_t left = bytes * kNanosecondsPerSecond;
  for (TimePoint at = begin;;) {
    const int64_t turn = (at - begin_) / settings_.rate_turn;
    const TimePoint end = begin_ + (turn + 1) * settings_.rate_turn;
    const uint64_t rate = turn % 2 == 0 ? settings_.bytes_per_second : settings_.other_bytes_per_second;
    const auto nanoseconds = static_cast<uint64_t>((end - at).count());
    if (rate != 0 && left / rate <= nanoseconds) return at + Duration(left / rate);
    left -= rate * nanoseconds;
    at = end;
  }
}

Duration LinkModel::up_to(Duration most, uint64_t draw) const {
  return Duration(draw % (static_cast<uint64_t>(most.count()) + 1));
}

Duration LinkModel::jitter(TimePoint now) {
  if (settings_.jitter.count() <= 0) return Duration{0};
  if (now >= jitter_until_) {
    jitter_now_ = up_to(settings_.jitter, random_moment_.next());
    jitter_until_ = now + settings_.jitter_every;
  }
  return jitter_now_;
}

Passage LinkModel::arrival(TimePoint leaves, const Lot& lot) {
  Passage passage;
  TimePoint at = leaves + settings_.delay + jitter(leaves);
  if (lot.early) {
    ++counters_.early;
    at = leaves;
  } else if (lot.late) {
    ++counters_.late;
    at += up_to(settings_.detour, lot.detour);
  } else {
    latest_ = at = std::max(at, latest_);
  }
  passage.arrives[0] = at;
  if (lot.duplicated) {
    ++counters_.duplicated;
    passage.copies = 2;
    passage.arrives[1] = at + up_to(settings_.detour, lot.copy_detour);
  }
  return passage;
}

}  // namespace verbena::net
