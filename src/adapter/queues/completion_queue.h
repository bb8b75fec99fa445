// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include <infiniband/verbs.h>

#include "adapter/queues/completion.h"
#include "adapter/queues/mapped_array.h"
#include "base/cache_line.h"
#include "base/result.h"
#include "base/spin_lock.h"

namespace verbena::queues {

// Hears what a completion queue has to tell besides its entries. Called without the queue's locks held, by
// whichever thread pushed.
class CompletionListener {
 public:
  virtual ~CompletionListener() = default;
  // The armed queue got an entry that counts; the queue is disarmed.
  virtual void on_completion_event() = 0;
  // An entry did not fit: the queue is in error from now on (IBTA volume 1, 11.2.9 "CQ overrun").
  virtual void on_overflow() = 0;
  // A moderated queue holds its event back from now on: release_event() is to be called a period later.
  virtual void on_event_held() {}
};

// A ring of completions. Thread-safe: shards push, any thread polls.
//
// Those who push and those who poll have a lock each and share only head and tail. So a batch of extended
// polling may stay open for as long as the application likes, and the application may post meanwhile.
class CompletionQueue {
 public:
  struct Options {
    // Where the ring comes from, when resized too, if not from the system. It must outlive the queue.
    RingMemory* memory = nullptr;
    // Reading a clock costs as much as the rest of an entry: only where it is asked for.
    bool device_clock = false;
    bool wall_clock = false;
    bool single_threaded = false;  // one thread does all the polling
    bool ignore_overrun = false;   // what does not fit is lost, and that is no error
  };

  // An event that is due: to be raised now, or held back from now on.
  enum class Event : uint8_t { kNone, kNow, kHeld };

  static constexpr uint32_t kMaxEntries = 1u << 22;

  // Room for the least power of two above `entries`. WorkQueue rounds up to a power of two, too, so a queue
  // of requests that was created with the same number never holds more. REQUIRES: 0 < entries <= kMaxEntries
  static Result<std::unique_ptr<CompletionQueue>> create(uint32_t entries, CompletionListener* listener,
                                                         const Options& options);
  static Result<std::unique_ptr<CompletionQueue>> create(uint32_t entries, CompletionListener* listener) {
    return create(entries, listener, Options{});
  }

  uint32_t capacity() const { return mask_ + 1; }

  // Adds an entry; its timestamps are set here. `solicited`: it counts for a queue armed for solicited events
  // only, as errors always do. False: the queue is in error and the entry is lost.
  bool push(const Completion& entry, bool solicited);
  bool push(const ibv_wc& wc, bool solicited);
  // What most entries say.
  struct Plain {
    uint64_t wr_id = 0;
    uint32_t byte_len = 0;
    uint32_t qp_num = 0;
    uint32_t src_qp = 0;
    ibv_wc_status status = IBV_WC_SUCCESS;
    ibv_wc_opcode opcode = IBV_WC_SEND;

    void write_to(Completion& place) const;
  };
  bool push(const Plain& entry, bool solicited);
  // Several entries, as if pushed one by one, unsolicited, that differ from `common` in these.
  struct Differing {
    uint64_t wr_id;
    uint32_t byte_len;
  };
  bool push_all(const Completion& common, std::span<const Differing> entries);

  // Takes up to `count` entries, oldest first; returns how many. -1 when the queue is in error and drained.
  int poll(int count, ibv_wc* out);

  // Takes entries one by one, in place. A batch begins with an entry, or not at all (nullptr); each entry
  // stays valid until the next call. Other pollers wait until the batch has ended.
  const Completion* begin_batch();
  // REQUIRES: a batch is open. nullptr when there is no further entry now; the batch stays open.
  const Completion* next_in_batch();
  // REQUIRES: a batch is open
  void end_batch();

  bool empty() const {
    return tail_.load(std::memory_order_acquire) == head_.load(std::memory_order_relaxed);
  }
  bool in_error() const { return overflowed_.load(std::memory_order_acquire); }

  // Asks for one event at the next entry (or the next solicited one). A request for any entry outweighs one
  // for solicited entries. If such an entry waits that came after the last event, the event is due now, and
  // the caller does for it what the listener would. The specification does not ask for this (IBTA volume 1,
  // 11.4.2.2), but mlx5's adapters do it, and programs rely on it that arm and sleep without another poll
  // (UCX). What the last event told of is not told again: on that, too, programs rely (perftest's latencies
  // with -e poll once for each event).
  [[nodiscard]] Event arm(bool solicited_only);

  // From now on an event is held back until so many entries that count have come or release_event() is
  // called; errors do not wait. 0 and 1: events are not held back. An event held back now is released.
  void moderate(uint32_t entries_per_event);
  // Lets go the event that is held back, if there is one.
  void release_event();

  // As large as create() makes it. EINVAL when the entries there would not fit, EBUSY when a batch stays
  // open. REQUIRES: 0 < entries <= kMaxEntries
  Result<void> resize(uint32_t entries);

  // Drops the entries of a QP that is being destroyed: its number may be used again.
  void remove_entries_of(uint32_t qp_num);

 private:
  enum class Armed : uint8_t { kNo, kSolicited, kAny };

  CompletionQueue(MappedArray ring, uint32_t slots, CompletionListener* listener, const Options& options)
      : ring_(std::move(ring)), mask_(slots - 1), options_(options), listener_(listener) {}

  Completion& at(uint32_t index) { return reinterpret_cast<Completion*>(ring_.data())[index & mask_]; }
  bool has_room(uint32_t tail);
  // What the listener is to hear.
  struct News {
    bool is_event = false;
    bool is_held = false;
    bool is_overflow = false;
    bool is_lost = false;  // the entry
    void note(Event event) {
      is_event |= event == Event::kNow;
      is_held |= event == Event::kHeld;
    }
  };
  Completion* place_of_next(News& news);
  void add(Completion& place, bool solicited, News& news);
  template <class Entry>
  bool push_one(const Entry& entry, bool solicited);
  bool pass_on(const News& news);
  Event event_of(bool error, bool solicited);
  int32_t untold(uint32_t until) const;
  void catch_up(uint32_t head);
  void tell();
  const Completion* take_place(uint32_t index);
  void begin_polling();
  bool begin_polling_within(Duration patience);
  void end_polling();
  void compact_without(uint32_t qp_num);
  void blank_entries_of(uint32_t qp_num);

  // Who needs both locks takes the pollers' first. Ring and mask change under both only.
  MappedArray ring_;
  uint32_t mask_;
  const Options options_;
  CompletionListener* const listener_;

  // The pollers'
  alignas(kCacheLine) SpinLock poll_lock_;
  bool polling_ = false;               // instead of the lock, where one thread does all the polling
  std::atomic<bool> on_entry_{false};  // in a batch: the entry at head_ is the application's
  std::atomic<uint32_t> head_{0};      // next to poll

  // The pushers'
  alignas(kCacheLine) SpinLock push_lock_;
  Armed armed_ = Armed::kNo;
  std::atomic<bool> overflowed_{false};
  std::atomic<uint32_t> tail_{0};   // next to fill
  uint32_t known_head_ = 0;         // what head_ was when it was last looked at
  uint32_t entries_per_event_ = 0;  // by moderate()
  uint32_t held_ = 0;               // entries that the event held back stands for
  uint32_t notable_until_ = 0;      // up to here lies an entry that is solicited, or an error
  uint32_t told_until_ = 0;         // up to here the last event told of
};

}  // namespace verbena::queues
