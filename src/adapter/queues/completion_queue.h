// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include <infiniband/verbs.h>

#include "adapter/queues/mapped_array.h"
#include "base/cache_line.h"
#include "base/result.h"
#include "base/spin_lock.h"

namespace verbena::queues {

// A completion as stored in the ring: one cache line. It has the fields of ibv_wc, except those that are
// always zero on Ethernet (slid, dlid_path_bits: a RoCE port has no LID). It also has the fields that only
// extended polling returns.
struct Completion {
  Completion() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): an ibv_wc is a completion without the additional fields
  Completion(const ibv_wc& wc)
      : wr_id(wc.wr_id),
        byte_len(wc.byte_len),
        imm_data(wc.imm_data),
        qp_num(wc.qp_num),
        src_qp(wc.src_qp),
        vendor_err(wc.vendor_err),
        status(static_cast<uint8_t>(wc.status)),
        opcode(static_cast<uint8_t>(wc.opcode)),
        wc_flags(static_cast<uint8_t>(wc.wc_flags)),
        sl(wc.sl),
        pkey_index(wc.pkey_index) {}

  void copy_to(ibv_wc& wc) const {
    wc.wr_id = wr_id;
    wc.status = static_cast<ibv_wc_status>(status);
    wc.opcode = static_cast<ibv_wc_opcode>(read_opcode());
    wc.vendor_err = vendor_err;
    wc.byte_len = byte_len;
    wc.imm_data = imm_data;
    wc.qp_num = qp_num;
    wc.src_qp = src_qp;
    wc.wc_flags = wc_flags;
    wc.pkey_index = pkey_index;
    wc.slid = 0;
    wc.sl = sl;
    wc.dlid_path_bits = 0;
  }

  // Opcode that marks an entry as removed: its QP was destroyed while a poller held the pollers' lock.
  // Polling skips such entries. The opcode may be written while the entry is being read.
  static constexpr uint8_t kBlank = 0xff;
  uint8_t read_opcode() const {
    return std::atomic_ref(const_cast<uint8_t&>(opcode)).load(std::memory_order_relaxed);
  }
  void blank() { std::atomic_ref(opcode).store(kBlank, std::memory_order_relaxed); }

  uint64_t wr_id = 0;
  uint64_t timestamp = 0;  // by device_clock(), if Options::device_clock is set
  uint64_t wallclock = 0;  // by wall_clock(), if Options::wall_clock is set
  uint64_t tag = 0;        // tag matching: the message's tag
  // Tag matching is for RC and XRC, flow rules are for raw packets: no entry has both.
  union {
    uint32_t tag_private = 0;  // added to the tag by the sender
    uint32_t flow_tag;         // of the rule that a raw packet matched
  };
  uint32_t byte_len = 0;
  uint32_t imm_data = 0;  // as received, in network order; or the R_Key that was invalidated
  uint32_t qp_num = 0;
  uint32_t src_qp = 0;
  uint32_t vendor_err = 0;
  uint8_t status = 0;    // enum ibv_wc_status
  uint8_t opcode = 0;    // enum ibv_wc_opcode
  uint8_t wc_flags = 0;  // enum ibv_wc_flags
  uint8_t sl = 0;
  uint16_t pkey_index = 0;
  uint16_t cvlan = 0;  // the VLAN tag stripped from a raw packet
};
static_assert(sizeof(Completion) == 64);
static_assert(IBV_WC_DRIVER3 < Completion::kBlank && IBV_WC_TM_DATA_VALID <= 0xff &&
              IBV_WC_TM_RNDV_INCOMPLETE <= 0xff);

// Receives the events of a completion queue. Called without the queue's locks held, by the thread that calls
// push(), push_all(), moderate() or release_event().
class CompletionListener {
 public:
  virtual ~CompletionListener() = default;
  // Reports an event: an entry came for which the queue was armed, or a held event was released. The queue is
  // now disarmed.
  virtual void on_completion_event() = 0;
  // Reports that an entry did not fit. The queue is in error from now on (IBTA volume 1, 11.2.9 "CQ
  // overrun").
  virtual void on_overflow() = 0;
  // Reports that a queue with moderate() has begun to hold an event back. The listener must arrange that
  // release_event() is called after the moderation period.
  virtual void on_event_held() {}
};

// A ring of completions. Thread-safe: shards push, any thread polls.
//
// Pushers and pollers have a lock each, and share only head and tail. So the application may keep a batch of
// extended polling open for as long as it likes, and post meanwhile.
class CompletionQueue {
 public:
  struct Options {
    // Allocator of the ring, also when it is resized; null: the system. It must outlive the queue.
    RingMemory* memory = nullptr;
    // Whether to set timestamps. Reading a clock costs as much as the rest of an entry.
    bool device_clock = false;
    bool wall_clock = false;
    bool single_threaded = false;  // only one thread polls
    bool ignore_overrun = false;   // entries that do not fit are dropped, and push() returns true
  };

  // The event that a call causes: none, an event to raise now, or an event that is held back from now on
  // (moderate()).
  enum class Event : uint8_t { kNone, kNow, kHeld };

  static constexpr uint32_t kMaxEntries = 1u << 22;

  // Makes a queue whose capacity is the least power of two greater than `entries`, up to kMaxEntries. So the
  // queue has room for all requests of a WorkQueue that was created for the same number: a WorkQueue rounds
  // up to a power of two, too. REQUIRES: 0 < entries <= kMaxEntries
  static Result<std::unique_ptr<CompletionQueue>> create(uint32_t entries, CompletionListener* listener,
                                                         const Options& options);
  static Result<std::unique_ptr<CompletionQueue>> create(uint32_t entries, CompletionListener* listener) {
    return create(entries, listener, Options{});
  }

  uint32_t capacity() const { return capacity_; }

  // Adds an entry and sets its timestamps. A `solicited` entry, or one with an error, also raises the event
  // of a queue that is armed for solicited entries only. Returns false if the entry is lost because the queue
  // is in error.
  bool push(const Completion& entry, bool solicited);
  bool push(const ibv_wc& wc, bool solicited);
  // The fields of an entry that most completions need.
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
  // Fields in which the entries of push_all() differ from `common`. push_all() adds them as if pushed one by
  // one, unsolicited. It returns false if an entry is lost.
  struct Differing {
    uint64_t wr_id;
    uint32_t byte_len;
  };
  bool push_all(const Completion& common, std::span<const Differing> entries);

  // Takes up to `count` entries, oldest first, and returns how many. Returns -1 if the queue is in error and
  // has no entries left.
  int poll(int count, ibv_wc* out);

  // Begins to take entries one by one, in place. Returns the first entry. Returns nullptr if there is none;
  // then no batch begins. Each entry stays valid until the next call. Other pollers wait until the batch has
  // ended.
  const Completion* begin_batch();
  // Returns the next entry of the batch; nullptr if there is none now. The batch stays open. REQUIRES: a
  // batch is open
  const Completion* next_in_batch();
  // Ends the batch and frees its entries. REQUIRES: a batch is open
  void end_batch();

  bool empty() const {
    return tail_.load(std::memory_order_acquire) == head_.load(std::memory_order_relaxed);
  }
  bool in_error() const { return overflowed_.load(std::memory_order_acquire); }

  // Arms the queue: requests one event for the next entry, or with `solicited_only` for the next solicited
  // entry or error. A request for any entry overrides one for solicited entries. If such an entry is already
  // waiting and no event has reported it, arm() returns kNow or kHeld. The listener is not called then: the
  // caller must act as on_completion_event() or on_event_held() would. Else, or if an event is already held
  // back, arm() returns kNone.
  //
  // The specification requires no event for entries that are already waiting (IBTA volume 1, 11.4.2.2). But
  // mlx5's adapters raise one, and programs that arm and sleep without another poll rely on it (UCX). Entries
  // that the last event reported cause no second event: programs rely on that, too (perftest's latencies with
  // -e poll once per event).
  [[nodiscard]] Event arm(bool solicited_only);

  // Moderates events: from now on, the queue holds an event back until `entries_per_event` entries have come
  // for which the queue is armed, or release_event() is called. An error raises the event at once. With 0 or
  // 1, no event is held back. If an event is held back now, moderate() raises it.
  void moderate(uint32_t entries_per_event);
  // Raises the event that is held back, if there is one.
  void release_event();

  // Resizes the queue to the size that create() would give it. A queue that was resized has room for 64
  // entries even if its capacity is less: requests in flight may complete later than the caller expects.
  // Errors: EINVAL if more than `entries` entries are waiting, EBUSY if a batch stays open for 100 ms,
  // ENOMEM. REQUIRES: 0 < entries <= kMaxEntries
  Result<void> resize(uint32_t entries);

  // Drops the entries of a QP that is being destroyed, because a new QP may get the same number.
  void remove_entries_of(uint32_t qp_num);

 private:
  enum class Armed : uint8_t { kNo, kSolicited, kAny };

  CompletionQueue(MappedArray ring, uint32_t slots, CompletionListener* listener, const Options& options)
      : ring_(std::move(ring)), mask_(slots - 1), capacity_(slots), options_(options), listener_(listener) {}

  Completion& at(uint32_t index) { return reinterpret_cast<Completion*>(ring_.data())[index & mask_]; }
  bool has_room(uint32_t tail);
  // The outcome of adding entries: which functions of the listener to call once the lock is released, and
  // whether an entry is lost.
  struct News {
    bool is_event = false;
    bool is_held = false;
    bool is_overflow = false;
    bool is_lost = false;
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

  // Lock order: the pollers' lock before the pushers'. Ring and mask change under both only.
  MappedArray ring_;
  uint32_t mask_;
  uint32_t capacity_;
  const Options options_;
  CompletionListener* const listener_;

  // ---- the pollers' side
  alignas(kCacheLine) SpinLock poll_lock_;
  bool polling_ = false;               // replaces the lock if only one thread polls
  std::atomic<bool> on_entry_{false};  // in a batch: the application uses the entry at head_
  std::atomic<uint32_t> head_{0};      // next to poll

  // ---- the pushers' side
  alignas(kCacheLine) SpinLock push_lock_;
  Armed armed_ = Armed::kNo;
  std::atomic<bool> overflowed_{false};
  std::atomic<uint32_t> tail_{0};   // next to fill
  uint32_t known_head_ = 0;         // head_ when it was last read
  uint32_t entries_per_event_ = 0;  // set by moderate()
  uint32_t held_ = 0;               // entries that the event held back covers
  uint32_t notable_until_ = 0;      // index after the last entry that is solicited, or an error
  uint32_t told_until_ = 0;         // index after the last entry that an event reported
};

}  // namespace verbena::queues
