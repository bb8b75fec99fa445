// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "agent/event_loop.h"
#include "agent/links/link_table.h"
#include "agent/sessions/client_files.h"
#include "agent/slots/slot_table.h"
#include "agent/status/state_tree.h"
#include "base/quota.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "control/model/agent_status.h"
#include "control/model/device_counters.h"

namespace verbena::agent {

using control::DeviceCounters;

// Sums the counters that processes publish for their QPs into device counters. Device counters never
// decrease, even when QPs and processes end.
//
// Ignores published counters of QPs outside the process's slot, and of unknown devices. Stores the latest
// values of each QP, to compute increases. A quota limits for how many QPs of a user values are stored;
// further QPs are not counted.
class CounterCollector {
 public:
  static constexpr Quota::Size kQps{.all = 512 * 1024, .reserve = 128 * 1024};

  explicit CounterCollector(uid_t own) : room_(kQps, own) {}

  // Sets the existing devices, by Link::device_index. Drops the counters of all others.
  void set_devices(const std::vector<uint32_t>& devices);
  // Adds to the device counters the increase of each QP's counters in `read` since they were last read. The
  // counters of a destroyed QP stay readable until its number is reused, which takes long.
  void collect(const LeasedSlot& slot, const control::QpsRead& read);
  // Drops the latest values of the slot's QPs. Called after the last reading of a slot whose lease has ended.
  void forget(const LeasedSlot& slot);
  void link_downed(uint32_t device_index);
  // Returns the counters by Link::device_index.
  const std::map<uint32_t, DeviceCounters>& devices() const { return devices_; }

 private:
  using Numbers = std::array<uint64_t, transport::kQpCounterCount>;
  using Seen = std::unordered_map<uint32_t, Numbers>;  // by the QP's index in the slot

  std::map<uint32_t, DeviceCounters> devices_;
  std::map<uint64_t, Seen> seen_;  // by LeasedSlot::lease
  Quota room_;
};

// Reads the QP counters in the status pages of all leased slots, in small steps, because reading all of them
// at once would keep clients waiting. Also reads the page of each returned slot a last time.
//
// Each user's pages are read on the user's own thread (ForeignCloser), one part of a page at a time. A
// process can make a reading of its page take as long as it likes. Then only the counters of its user become
// outdated.
//
// For the agent's thread.
class CounterSweep {
 public:
  // Called on the agent's thread after each part was read, with its QpsRead::work.
  using OnRead = std::function<void(size_t work)>;
  // REQUIRES: the references outlive this object; this object outlives the tasks of `closer`
  CounterSweep(const SlotTable& slots, CounterCollector& counters, ForeignCloser& closer, OnRead on_read)
      : slots_(slots), counters_(counters), closer_(closer), on_read_(std::move(on_read)) {}

  // Starts a sweep through the slots of each user for whom none is in progress.
  void begin();
  // Queues a last reading of a slot whose lease is about to end. Keeps the slot's page open until this
  // reading is complete.
  void finish(const LeasedSlot& slot);
  // Maximum work of a part, in units of QpsRead::work (about one for each QP).
  static constexpr size_t kMaxPart = 4096;
  // Starts to read a part of a page for each user that has unread pages and of whom no part is being read.
  // Takes the users in turn, and stops when the started parts may take `work`. Returns how much work the
  // started parts may take: kMaxPart each.
  size_t advance(size_t work);
  // Returns whether advance() would start to read something.
  bool may_advance() const {
    return std::ranges::any_of(users_, &OfUser::may_read, &Users::value_type::second);
  }
  // Returns whether there is more to read, or something is being read.
  bool has_work() const { return !users_.empty(); }
  // Returns the number of the user's returned slots that are still unread.
  size_t unfinished(uid_t user) const;

 private:
  struct Ended {
    LeasedSlot slot;
    UniqueFd page;  // counts in slot.descriptors
    uint32_t place = 0;
  };
  struct OfUser {
    bool may_read() const { return !is_reading && !is_refused; }

    bool is_reading = false;
    bool is_refused = false;         // no descriptor was left to read with: waits for begin()
    std::optional<uint32_t> next{};  // the slot that is read now or next
    uint64_t lease = 0;              // the lease of that slot when it was last read
    uint32_t place = 0;              // the next QP to read there
    std::deque<Ended> ended{};
  };
  using Users = std::map<uid_t, OfUser>;  // those with work

  // Starts to read the user's next part. Returns false if the user has no work left.
  bool read_next(uid_t user, OfUser& its);
  void read(uid_t user, OfUser& its, const LeasedSlot& slot, int page, uint32_t place);
  void take(const LeasedSlot& slot, bool is_last, const control::QpsRead& read);
  void take_ended(OfUser& its, const control::QpsRead& read);

  const SlotTable& slots_;
  CounterCollector& counters_;
  ForeignCloser& closer_;
  const OnRead on_read_;
  Users users_;
  uid_t last_ = 0;  // the user that advance() visited last
};

// Limits how much the agent reads, in units of QpsRead::work (about one for each QP). The allowance grows by
// 2,048 units in a millisecond, up to 16,384.
class SweepAllowance {
 public:
  static constexpr size_t kMax = 16 * 1024;
  static constexpr size_t kPerMillisecond = 2 * 1024;

  size_t at(TimePoint now) {
    const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(now - since_).count();
    if (passed <= 0) return left_;
    left_ = std::min<size_t>(kMax,
                             left_ + static_cast<size_t>(std::min<int64_t>(passed, 1000)) * kPerMillisecond);
    since_ = now;
    return left_;
  }
  void spend(size_t work) { left_ -= std::min(left_, work); }
  void give_back(size_t work) { left_ = std::min(kMax, left_ + work); }

 private:
  size_t left_ = kMax;
  TimePoint since_{};
};

// Sums the counters of the QPs in all leased slots into device counters, and writes these to the state
// directory. Does so every second while slots are leased, and every 10 ms while a program also has one of the
// counter files open. If the agent has no time to read all QPs at this rate, the values in the files are
// older.
class CounterPublisher {
 public:
  // REQUIRES: the references outlive this object; this object outlives the tasks of `closer`
  CounterPublisher(EventLoop& loop, const SlotTable& slots, const LinkTable& links, ForeignCloser& closer,
                   uid_t own)
      : loop_(loop),
        slots_(slots),
        links_(links),
        counters_(own),
        sweep_(slots, counters_, closer, [this](size_t work) { on_read(work); }) {}

  // Sets the writer of the state directory. Called once, when the directory has been created.
  void show_in(StateWriter& state);
  // Stops writing counters. Called before the state directory is removed.
  void hide() { state_ = nullptr; }

  // Starts to read all counters, and writes the sums of those read so far to the state directory. Does
  // nothing within 8 ms of the last call.
  void collect();
  // Calls collect(), and returns the device's counters as they were last read, or zeros if there is no such
  // device.
  DeviceCounters of(uint32_t device_index);
  // Starts to collect at regular intervals. Called when a slot is leased.
  void collect_regularly();
  // Queues a last reading of the slot's counters. Called before the slot's lease ends.
  void finish(const LeasedSlot& slot);
  // Returns whether 64 or more returned slots of the user are still unread. The user then gets no slot.
  bool is_behind(uid_t user) const;
  void show();
  // Adds and removes devices, and counts links that have gone down. `before` has the links before the change.
  void links_changed(const std::vector<control::Link>& before);

 private:
  void read();
  void read_later();
  void on_read(size_t work);

  EventLoop& loop_;
  const SlotTable& slots_;
  const LinkTable& links_;
  StateWriter* state_ = nullptr;
  CounterCollector counters_;
  CounterSweep sweep_;
  SweepAllowance allowance_;
  TimePoint collected_{};
  std::optional<EventLoop::TimerId> next_;
  std::optional<EventLoop::TimerId> rest_;  // pause between two readings
};

}  // namespace verbena::agent
