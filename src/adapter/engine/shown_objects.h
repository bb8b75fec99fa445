// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/mutex_at_fork.h"
#include "control/protocol/status_page.h"

namespace verbena::engine {

// The list of this process's objects that `rdma resource` shows: contexts, protection domains, completion
// queues, memory regions, shared receive queues. It is on the status page of the process's first shard
// (Engine::home()). Each shard lists its own QPs.
//
// Thread-safe. Lives as long as the page, and longer than its entries.
class ShownObjects {
 public:
  ShownObjects(uint32_t slot, protocol::StatusPage& page) : slot_(slot), page_(page) {}
  ShownObjects(const ShownObjects&) = delete;
  ShownObjects& operator=(const ShownObjects&) = delete;

  using Values = std::array<uint64_t, protocol::kObjectValues>;  // indices: protocol::MrValue and so on

  // One object, listed until the entry is destroyed. If the list is full, the object is only counted and its
  // calls do nothing, as those of an empty entry.
  class Entry {
   public:
    Entry() = default;
    Entry(Entry&& other) noexcept
        : of_(std::exchange(other.of_, nullptr)), kind_(other.kind_), place_(other.place_) {}
    Entry& operator=(Entry&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(kind_, other.kind_);
      std::swap(place_, other.place_);
      return *this;
    }
    ~Entry() {
      if (of_ != nullptr) of_->remove(kind_, place_);
    }

    // Returns the number by which other processes name the object; 0: it is not listed.
    uint32_t number() const { return is_listed() ? protocol::number_of(of_->slot_, place_) : 0; }
    void set(size_t which, uint64_t value) {
      if (is_listed()) this->value(which).store(value, std::memory_order_relaxed);
    }
    void set_all(const Values& values) {
      for (size_t i = 0; i < values.size(); ++i) set(i, values[i]);
    }
    // Adds to a value. Any thread may call this at any time.
    void add(size_t which, int by) {
      if (is_listed()) value(which).fetch_add(static_cast<uint64_t>(by), std::memory_order_relaxed);
    }

   private:
    friend class ShownObjects;
    Entry(ShownObjects& of, protocol::ObjectKind kind, uint32_t place)
        : of_(&of), kind_(kind), place_(place) {}
    bool is_listed() const { return of_ != nullptr && place_ != kNoPlace; }
    protocol::SharedNumber& value(size_t which) { return of_->page_.objects[place_].values[which]; }

    ShownObjects* of_ = nullptr;
    protocol::ObjectKind kind_ = protocol::ObjectKind::kNone;
    uint32_t place_ = kNoPlace;
  };

  Entry add(protocol::ObjectKind kind, uint32_t device_index, const Values& values);

 private:
  static constexpr uint32_t kNoPlace = UINT32_MAX;
  uint32_t take_place();
  bool make_room();
  void remove(protocol::ObjectKind kind, uint32_t place);
  protocol::SharedNumber& count_of(protocol::ObjectKind kind) {
    return page_.object_counts.of_kind[static_cast<size_t>(kind)];
  }

  const uint32_t slot_;
  protocol::StatusPage& page_;
  MutexAtFork mutex_;
  std::vector<uint32_t> free_;  // places that were used before; reserved for all places
  uint32_t unused_ = 0;         // the first place that was never used
};

}  // namespace verbena::engine
