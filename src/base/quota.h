// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>

#include <sys/types.h>

namespace verbena {

// How many of a fixed number of things each user may have: slots, connections, descriptors.
//
// Root and the agent's own user may have all. The others share what is left of it when a reserve has been set
// aside for those two. There is no fixed share: a user may take another one as long as it then has at most
// twice what is still free. So one user alone gets two thirds, two get two fifths each, and a fifth is free;
// the next to come finds something, whatever all before have taken.
//
// One thread at a time; knows no clock and no kernel.
class Quota {
 public:
  struct Size {
    // With an eighth as the reserve, which nearly all have.
    static constexpr Size of(size_t all) { return {.all = all, .reserve = all / 8}; }

    size_t all;
    size_t reserve;  // for root and the agent's own user
  };
  Quota(Size size, uid_t own) : size_(size), own_(own) {}
  // There are more or fewer now. Who has more than its share keeps that.
  void resize(Size size) { size_ = size; }

  // Whether the user may take so many more now.
  bool allows(uid_t user, size_t more = 1) const;
  // What was allowed, or what there is anyhow: more than is allowed counts as well.
  void take(uid_t user, size_t count = 1);
  // REQUIRES: the user has as many
  void give_back(uid_t user, size_t count = 1);

  // Root, or the agent's own user.
  bool is_trusted(uid_t user) const { return user == 0 || user == own_; }
  size_t of(uid_t user) const;
  size_t of_all() const { return trusted_ + strangers_; }
  bool is_used_up() const { return of_all() >= size_.all; }

 private:
  // What nobody has, of the part that others than root and our own user may have.
  size_t left_for_strangers() const;

  Size size_;
  const uid_t own_;
  std::map<uid_t, size_t> held_;  // no zeros
  size_t trusted_ = 0;
  size_t strangers_ = 0;
};

}  // namespace verbena
