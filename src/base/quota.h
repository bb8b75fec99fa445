// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>

#include <sys/types.h>

namespace verbena {

// Shares a fixed number of items (slots, connections, descriptors) among users.
//
// Root and the agent's own user are trusted; all other users are called strangers. Trusted users may take all
// items except Size::kept_for_strangers. A reserve is for trusted users alone, and strangers share the rest.
//
// A stranger has no fixed share. A stranger may take more items if it then has at most twice the number that
// is still free for strangers. So a single stranger gets at most two thirds of the rest. Two get two fifths
// each, and a fifth stays free. Exception: a stranger without items may take all that are free for strangers
// in one call.
//
// One thread at a time. Pure: no clock, no system calls.
class Quota {
 public:
  struct Size {
    // Returns the size for `all` items of which an eighth is the reserve, as for nearly all quotas.
    static constexpr Size of(size_t all) { return {.all = all, .reserve = all / 8}; }

    size_t all;
    size_t reserve;  // items that only trusted users may take
    // Items that trusted users must leave. Used where a stranger can make a service that runs as root take
    // items.
    size_t kept_for_strangers = 0;
  };
  Quota(Size size, uid_t own) : size_(size), own_(own) {}
  // Changes the number of items. A user above the new limit keeps its items.
  void resize(Size size) { size_ = size; }

  // Whether `user` may take `more` items now.
  bool allows(uid_t user, size_t more = 1) const;
  // Counts items as the user's. Does not check allows(): the count may exceed the limit, for items that exist
  // already.
  void take(uid_t user, size_t count = 1);
  // Returns items of the user. REQUIRES: the user has at least `count`
  void give_back(uid_t user, size_t count = 1);

  // Whether the user is root or the agent's own user.
  bool is_trusted(uid_t user) const { return user == 0 || user == own_; }
  // Returns the number of items that the user has, and the number that all users have.
  size_t of(uid_t user) const {
    const auto found = held_.find(user);
    return found != held_.end() ? found->second : 0;
  }
  size_t of_all() const { return trusted_ + strangers_; }
  bool is_used_up() const { return of_all() >= size_.all; }

 private:
  // The number of free items outside the reserve.
  size_t left_for_strangers() const {
    const size_t gone = std::max(size_.reserve, trusted_) + strangers_;
    return gone < size_.all ? size_.all - gone : 0;
  }

  Size size_;
  const uid_t own_;
  std::map<uid_t, size_t> held_;  // no zeros
  size_t trusted_ = 0;
  size_t strangers_ = 0;
};

// Items that a user has taken from a quota. They count until the last copy of this pointer is destroyed.
// REQUIRES: the last copy is destroyed on the thread that uses the quota
using QuotaShare = std::shared_ptr<void>;

// Counts items as the user's until the last copy of the result is destroyed. The result may outlive the
// quota. Does not check allows().
QuotaShare take_share(const std::shared_ptr<Quota>& quota, uid_t user, size_t count = 1);

}  // namespace verbena
