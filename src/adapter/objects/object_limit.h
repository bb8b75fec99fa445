// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/failed_call.h"
#include "base/result.h"

namespace verbena::adapter {

// Limits the number of objects of one kind, such as QPs, in the process. Thread-safe.
class ObjectLimit {
 public:
  explicit ObjectLimit(uint32_t most) : max_(most) {}

  // Counts one object against the limit until destroyed. A default-constructed Place counts nothing.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(of_, other.of_);
      return *this;
    }
    ~Place() {
      if (of_ != nullptr) of_->taken_.fetch_sub(1, std::memory_order_relaxed);
    }

   private:
    friend class ObjectLimit;
    explicit Place(ObjectLimit* of) : of_(of) {}

    ObjectLimit* of_ = nullptr;
  };

  uint32_t most() const { return max_; }

  // Counts one more object. Returns ENOMEM if the limit is reached, as the kernel's drivers do.
  Result<Place> take() {
    if (taken_.fetch_add(1, std::memory_order_relaxed) < max_) return Place(this);
    taken_.fetch_sub(1, std::memory_order_relaxed);
    return fail(because(ENOMEM, "the process has as many of these as it may have: {}", max_));
  }

 private:
  const uint32_t max_;
  std::atomic<uint32_t> taken_{0};
};

}  // namespace verbena::adapter
