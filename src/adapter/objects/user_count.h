// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "adapter/engine/shown_objects.h"

namespace verbena::adapter {

// Counts the users of an object: other objects that refer to it. While the count is not 0, destroying the
// object fails with EBUSY. The count can be shown in `rdma resource`. Thread-safe.
class UserCount {
 public:
  // Also keeps the count in the value with this index of `entry`. REQUIRES: there are no users yet, and
  // `entry` lives as long as the UserCount
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

// Counts users like UserCount, for an object that may be destroyed before its users when its context is
// closed. Each user keeps a Use until the user is destroyed. Thread-safe.
class Uses {
 public:
  using Use = std::shared_ptr<const void>;

  Use add() const { return token_; }
  long count() const { return token_.use_count() - 1; }

 private:
  const std::shared_ptr<const int> token_ = std::make_shared<int>();
};

}  // namespace verbena::adapter
