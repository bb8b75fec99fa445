// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "adapter/engine/shown_objects.h"

namespace verbena::adapter {

// Counts the objects that use another one, which cannot be destroyed before them. The count can be shown in
// `rdma resource`. Thread-safe.
class UserCount {
 public:
  // Also counts in this value of the entry. REQUIRES: there are no users yet; the entry lives as long
  void show_in(engine::ShownObjects::Entry& entry, size_t value) {
    entry_ = &entry;
    value_ = value;
  }

  uint32_t load() const { return count_.load(); }
  UserCount& operator++() { return *this += 1; }
  UserCount& operator--() { return *this += uint32_t(-1); }
  // noinline: otherwise GCC 12 takes the C struct of a Cq for the whole object, and warns of a store beyond
  // it.
  [[gnu::noinline]] UserCount& operator+=(uint32_t by) {
    count_ += by;
    if (entry_ != nullptr) entry_->add(value_, static_cast<int>(by));
    return *this;
  }

 private:
  std::atomic<uint32_t> count_{0};
  engine::ShownObjects::Entry* entry_ = nullptr;
  size_t value_ = 0;
};

// Like UserCount, for an object whose users may outlive it when its context is closed: each user keeps a Use
// until it ends. Thread-safe.
class Uses {
 public:
  using Use = std::shared_ptr<const void>;

  Use add() const { return token_; }
  long count() const { return token_.use_count() - 1; }

 private:
  const std::shared_ptr<const int> token_ = std::make_shared<int>();
};

}  // namespace verbena::adapter
