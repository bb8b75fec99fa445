// SPDX-License-Identifier: Apache-2.0
#include "adapter/queues/completion_queue.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <type_traits>

#include "base/device_clock.h"
#include "base/probes.h"

namespace verbena::queues {
namespace {

// Longer than any poll takes: a lock held longer belongs to a batch that stays open.
constexpr Duration kPollPatience = std::chrono::microseconds(100);
// How long resizing waits for a batch, which may be the caller's own.
constexpr Duration kBatchPatience = std::chrono::milliseconds(100);
constexpr uint32_t kMinSlotsResized = 4096 / sizeof(Completion);

// 2^n - 1 entries give 2^n slots: many programs ask for that, whose requests fill a queue of 2^n. 2^n entries
// give twice that, as with rxe and mlx5, and programs may count on it.
uint32_t slots_for(uint32_t entries) {
  return std::min(std::bit_ceil(entries + 1), CompletionQueue::kMaxEntries);
}

Result<MappedArray> make_ring(uint32_t slots, RingMemory* memory) {
  return MappedArray::create(size_t{slots} * sizeof(Completion), {memory, RingKind::kCompletion});
}

}  // namespace

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create(uint32_t entries,
                                                                 CompletionListener* listener,
                                                                 const Options& options) {
  const uint32_t slots = slots_for(entries);
  auto ring = make_ring(slots, options.memory);
  if (!ring) return tl::unexpected(ring.error());
  return std::unique_ptr<CompletionQueue>(new CompletionQueue(std::move(*ring), slots, listener, options));
}

// ---- pushing

// Reads head_, which the pollers' processor keeps writing, only when the ring looks full.
bool CompletionQueue::has_room(uint32_t tail) {
  if (tail - known_head_ <= mask_) [[likely]]
    return true;
  known_head_ = head_.load(std::memory_order_acquire);
  catch_up(known_head_);
  return tail - known_head_ <= mask_;
}

CompletionQueue::Event CompletionQueue::event_of(bool error, bool solicited) {
  if (armed_ == Armed::kNo) [[likely]]
    return Event::kNone;
  if (armed_ == Armed::kSolicited && !solicited && !error) return Event::kNone;
  ++held_;
  if (held_ < entries_per_event_ && !error) return held_ == 1 ? Event::kHeld : Event::kNone;
  tell();
  return Event::kNow;
}

// nullptr: no room, or the queue is in error. REQUIRES: the pushers' lock
inline Completion* CompletionQueue::place_of_next(News& news) {
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  if (overflowed_.load(std::memory_order_relaxed)) [[unlikely]] {
    news.is_lost = true;
    return nullptr;
  }
  if (has_room(tail)) [[likely]]
    return &at(tail);
  if (!options_.ignore_overrun) {
    overflowed_.store(true, std::memory_order_release);
    news.is_overflow = news.is_lost = true;
  }
  return nullptr;
}

// REQUIRES: the pushers' lock; the entry is written in its place
inline void CompletionQueue::add(Completion& place, bool solicited, News& news) {
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  const bool is_error = place.status != IBV_WC_SUCCESS;
  if (options_.device_clock) place.timestamp = device_clock();
  if (options_.wall_clock) place.wallclock = wall_clock();
  if (solicited || is_error) notable_until_ = tail + 1;
  tail_.store(tail + 1, std::memory_order_release);
  news.note(event_of(is_error, solicited));
}

inline bool CompletionQueue::pass_on(const News& news) {
  if (news.is_held) listener_->on_event_held();
  if (news.is_event) listener_->on_completion_event();
  if (news.is_overflow) listener_->on_overflow();
  return !news.is_lost;
}

// Writes each entry field by field from the caller's data: a copy in between would wait for its own stores.
template <class Entry>
inline bool CompletionQueue::push_one(const Entry& entry, bool solicited) {
  News news;
  {
    const std::lock_guard guard(push_lock_);
    if (Completion* const place = place_of_next(news)) [[likely]] {
      if constexpr (std::is_same_v<Entry, Plain>) {
        entry.write_to(*place);
      } else {
        *place = Completion(entry);
      }
      add(*place, solicited, news);
    }
  }
  return pass_on(news);
}

bool CompletionQueue::push(const Completion& entry, bool solicited) {
  VERBENA_PROBE(completion, entry.qp_num, entry.wr_id, entry.status, entry.byte_len);
  return push_one(entry, solicited);
}

bool CompletionQueue::push(const ibv_wc& wc, bool solicited) {
  VERBENA_PROBE(completion, wc.qp_num, wc.wr_id, wc.status, wc.byte_len);
  return push_one(wc, solicited);
}

bool CompletionQueue::push(const Plain& entry, bool solicited) {
  VERBENA_PROBE(completion, entry.qp_num, entry.wr_id, entry.status, entry.byte_len);
  return push_one(entry, solicited);
}

inline void CompletionQueue::Plain::write_to(Completion& place) const {
  place = Completion();
  place.wr_id = wr_id;
  place.byte_len = byte_len;
  place.qp_num = qp_num;
  place.src_qp = src_qp;
  place.status = static_cast<uint8_t>(status);
  place.opcode = static_cast<uint8_t>(opcode);
}

bool CompletionQueue::push_all(const Completion& common, std::span<const Differing> entries) {
  News news;
  {
    const std::lock_guard guard(push_lock_);
    for (const Differing& entry : entries) {
      VERBENA_PROBE(completion, common.qp_num, entry.wr_id, common.status, entry.byte_len);
      Completion* const place = place_of_next(news);
      if (place == nullptr) break;
      *place = common;
      place->wr_id = entry.wr_id;
      place->byte_len = entry.byte_len;
      add(*place, false, news);
    }
  }
  return pass_on(news);
}

// ---- polling

void CompletionQueue::begin_polling() {
  if (options_.single_threaded) [[unlikely]] {
    polling_ = true;
  } else {
    poll_lock_.lock();
  }
}

bool CompletionQueue::begin_polling_within(Duration patience) {
  if (!options_.single_threaded) return poll_lock_.try_lock() || poll_lock_.try_lock_for(patience);
  return !std::exchange(polling_, true);
}

void CompletionQueue::end_polling() {
  if (options_.single_threaded) [[unlikely]] {
    polling_ = false;
  } else {
    poll_lock_.unlock();
  }
}

int CompletionQueue::poll(int count, ibv_wc* out) {
  if (empty() && !in_error()) return 0;
  begin_polling();
  uint32_t head = head_.load(std::memory_order_relaxed);
  const uint32_t tail = tail_.load(std::memory_order_acquire);
  int taken = 0;
  while (taken < count && head != tail) {
    at(head++).copy_to(out[taken]);
    if (out[taken].opcode != static_cast<ibv_wc_opcode>(Completion::kBlank)) ++taken;
  }
  head_.store(head, std::memory_order_release);
  end_polling();
  return taken == 0 && count > 0 && head == tail && in_error() ? -1 : taken;
}

// Gives the application the first entry from `index` on, if there is one, and frees those before it.
const Completion* CompletionQueue::take_place(uint32_t index) {
  const uint32_t tail = tail_.load(std::memory_order_acquire);
  while (index != tail && at(index).read_opcode() == Completion::kBlank) ++index;
  const bool found = index != tail;
  on_entry_.store(found, std::memory_order_relaxed);
  head_.store(index, std::memory_order_release);
  return found ? &at(index) : nullptr;
}

const Completion* CompletionQueue::begin_batch() {
  if (empty()) return nullptr;
  begin_polling();
  const Completion* first = take_place(head_.load(std::memory_order_relaxed));
  if (first == nullptr) end_polling();
  return first;
}

const Completion* CompletionQueue::next_in_batch() {
  return take_place(head_.load(std::memory_order_relaxed) +
                    (on_entry_.load(std::memory_order_relaxed) ? 1 : 0));
}

void CompletionQueue::end_batch() {
  if (on_entry_.load(std::memory_order_relaxed)) {
    on_entry_.store(false, std::memory_order_relaxed);
    head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  end_polling();
}

// ---- events

// Number of entries before `until` that no event has reported; none if it is not positive. The entry that an
// open batch has reached counts as taken.
int32_t CompletionQueue::untold(uint32_t until) const {
  const uint32_t head = head_.load(std::memory_order_acquire);
  const uint32_t taken = head + (on_entry_.load(std::memory_order_relaxed) ? 1 : 0);
  return std::min(static_cast<int32_t>(until - taken), static_cast<int32_t>(until - told_until_));
}

// Moves indexes forward that fell behind, so that comparing them never wraps.
void CompletionQueue::catch_up(uint32_t head) {
  for (uint32_t* index : {&notable_until_, &told_until_}) {
    if (static_cast<int32_t>(*index - head) < 0) *index = head;
  }
}

// An event is raised now, for all entries that are there.
void CompletionQueue::tell() {
  held_ = 0;
  armed_ = Armed::kNo;
  told_until_ = tail_.load(std::memory_order_relaxed);
}

CompletionQueue::Event CompletionQueue::arm(bool solicited_only) {
  const std::lock_guard guard(push_lock_);
  if (!solicited_only) {
    armed_ = Armed::kAny;
  } else if (armed_ == Armed::kNo) {
    armed_ = Armed::kSolicited;
  }
  catch_up(head_.load(std::memory_order_relaxed));
  const bool any = armed_ == Armed::kAny;
  const int32_t count = untold(any ? tail_.load(std::memory_order_relaxed) : notable_until_);
  if (count <= 0) return Event::kNone;
  const bool is_held = held_ != 0;
  held_ = std::max(held_, static_cast<uint32_t>(any ? count : 1));
  if (held_ < entries_per_event_) return is_held ? Event::kNone : Event::kHeld;
  tell();
  return Event::kNow;
}

void CompletionQueue::moderate(uint32_t entries_per_event) {
  {
    const std::lock_guard guard(push_lock_);
    entries_per_event_ = entries_per_event;
  }
  release_event();
}

void CompletionQueue::release_event() {
  {
    const std::lock_guard guard(push_lock_);
    if (held_ == 0) return;
    tell();
  }
  listener_->on_completion_event();
}

// ---- resizing and removing

Result<void> CompletionQueue::resize(uint32_t entries) {
  const uint32_t slots = std::max(slots_for(entries), kMinSlotsResized);
  auto ring = make_ring(slots, options_.memory);
  if (!ring) return tl::unexpected(ring.error());
  if (!begin_polling_within(kBatchPatience)) return fail(EBUSY);
  bool fits;
  {
    const std::lock_guard guard(push_lock_);
    const uint32_t head = head_.load(std::memory_order_relaxed);
    const uint32_t used = tail_.load(std::memory_order_relaxed) - head;
    fits = used <= entries;
    if (fits) {
      // Head and tail keep their values, so that empty() is right at any moment.
      auto* entries_of_new = reinterpret_cast<Completion*>(ring->data());
      for (uint32_t i = head; i != head + used; ++i) entries_of_new[i & (slots - 1)] = at(i);
      std::swap(ring_, *ring);
      mask_ = slots - 1;
      capacity_ = slots_for(entries);
      known_head_ = head;
    }
  }
  end_polling();
  if (!fits) return fail(EINVAL);
  return {};
}

void CompletionQueue::remove_entries_of(uint32_t qp_num) {
  const bool alone = begin_polling_within(kPollPatience);
  {
    const std::lock_guard guard(push_lock_);
    if (alone) {
      compact_without(qp_num);
    } else {
      blank_entries_of(qp_num);
    }
  }
  if (alone) end_polling();
}

// REQUIRES: both locks
void CompletionQueue::compact_without(uint32_t qp_num) {
  const uint32_t head = head_.load(std::memory_order_relaxed);
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  uint32_t kept = head;
  for (uint32_t i = head; i != tail; ++i) {
    if (at(i).qp_num == qp_num) continue;
    if (kept != i) at(kept) = at(i);
    ++kept;
  }
  tail_.store(kept, std::memory_order_release);
  for (uint32_t* index : {&notable_until_, &told_until_}) {
    if (static_cast<int32_t>(*index - kept) > 0) *index = kept;
  }
}

// A batch is open, perhaps on the thread that destroys the QP: no entry may move. Blank entries keep their
// places until the batch passes them. REQUIRES: the pushers' lock
void CompletionQueue::blank_entries_of(uint32_t qp_num) {
  const uint32_t tail = tail_.load(std::memory_order_relaxed);
  uint32_t from = head_.load(std::memory_order_acquire);
  if (on_entry_.load(std::memory_order_relaxed)) ++from;
  for (uint32_t i = from; static_cast<int32_t>(tail - i) > 0; ++i) {
    if (at(i).qp_num == qp_num) at(i).blank();
  }
}

}  // namespace verbena::queues
