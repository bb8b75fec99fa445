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
// Root and the agent's own user may take all items but those kept for strangers. A reserve is set aside for
// those two, and the other users share the rest. There is no fixed share per user. A user may take another
// item if the user then has at most twice the number of items still free. So a single user gets at most two
// thirds; two users get two fifths each, and a fifth stays free. A user without items may take as many as are
// free in one call.
//
// One thread at a time. Pure: no clock, no system calls.
class Quota {
 public:
  struct Size {
    // Returns the size for `all` items of which an eighth is the reserve, as for nearly all quotas.
    static constexpr Size of(size_t all) { return {.all = all, .reserve = all / 8}; }

    size_t all;
    size_t reserve;  // items set aside for root and the agent's own user
    // Items set aside for the other users, where strangers can make a service of root's take items.
    size_t kept_for_strangers = 0;
  };
  Quota(Size size, uid_t own) : size_(size), own_(own) {}
  // Changes the number of items. A user above the new limit keeps its items.
  void resize(Size size) { size_ = size; }

  // Whether `user` may take `more` items now.
  bool allows(uid_t user, size_t more = 1) const;
  // Counts items as the user's. Does not check allows(): exceeding the limit is no error, since some items
  // exist regardless.
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

// Items of a quota that count until the last copy of this is destroyed, on the thread of the quota.
using QuotaShare = std::shared_ptr<void>;

// Counts items as the user's for as long as the result exists, or until the quota is destroyed.
QuotaShare take_share(const std::shared_ptr<Quota>& quota, uid_t user, size_t count = 1);

}  // namespace verbena
