// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <verbena/cm/credits.hpp>

namespace verbena::detail {

// Divides the receives of a shared queue among connections. Knows nothing of verbs, so that a simulation can
// use it.
//
// Each connection always has credits::kLeast receives that no other connection can use. The others are spare.
// A connection may have an equal part of the spare ones, too. When the number of connections grows, a
// connection has too many, and gives some back as its receives become free. A receive counts as the
// connection's from the credit for it until the program has returned the message. So the sum of all credits
// and of all messages that the program has is at most capacity(), and no SEND meets a missing receive.
class receive_shares {
 public:
  // The receives of one connection.
  class share {
   public:
    std::uint32_t size() const { return size_; }

   private:
    friend class receive_shares;
    std::uint32_t max_ = 0;
    std::uint32_t size_ = 0;
  };

  receive_shares(std::uint32_t max_connections, std::uint32_t spare)
      : max_connections_(max_connections), spare_(spare), free_(spare) {}

  // Begins a share of at most `max` receives. Returns false if max_connections connections have a share.
  bool join(share& one, std::uint32_t max) {
    if (connections_ == max_connections_) return false;
    ++connections_;
    one.max_ = std::max(max, credits::kLeast);
    one.size_ = credits::kLeast;
    taken_ += credits::kLeast;
    grow(one);
    return true;
  }
  // Ends a share. REQUIRES: its receives have been posted again, and its connection takes no messages
  void leave(share& one) {
    free_ += one.size_ - credits::kLeast;
    taken_ -= one.size_;
    --connections_;
    one = share();
  }
  // Counts a receive of the share that has been posted again. Returns the number of credits that the peer
  // gets for it. The number is 0 if the share is larger than it should be now, and above 1 if the share
  // grows.
  std::uint32_t on_freed(share& one) {
    if (one.size_ <= fair(one)) return 1 + grow(one);
    --one.size_;
    --taken_;
    ++free_;
    return 0;
  }

  std::uint32_t connections() const { return connections_; }
  // The number of receives that all connections together have now, and the most that they can have.
  std::uint32_t taken() const { return taken_; }
  std::uint32_t capacity() const { return max_connections_ * credits::kLeast + spare_; }

 private:
  std::uint32_t fair(const share& one) const {
    return std::min(one.max_, credits::kLeast + spare_ / connections_);
  }
  std::uint32_t grow(share& one) {
    const std::uint32_t wanted = fair(one);
    if (wanted <= one.size_) return 0;
    const std::uint32_t added = std::min(wanted - one.size_, free_);
    one.size_ += added;
    taken_ += added;
    free_ -= added;
    return added;
  }

  const std::uint32_t max_connections_;
  const std::uint32_t spare_;
  std::uint32_t free_;  // of the spare ones
  std::uint32_t taken_ = 0;
  std::uint32_t connections_ = 0;
};

}  // namespace verbena::detail
