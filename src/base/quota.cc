// SPDX-License-Identifier: Apache-2.0
#include "base/quota.h"

namespace verbena {
namespace {

// The maximum ratio of a user's items to the free ones.
constexpr size_t kShare = 2;

}  // namespace

bool Quota::allows(uid_t user, size_t more) const {
  if (is_trusted(user)) {
    // The reserve is there even if strangers have more than they may.
    const size_t gone = std::min(strangers_, size_.all - size_.reserve);
    return trusted_ + std::max(size_.kept_for_strangers, gone) + more <= size_.all;
  }
  const size_t left = left_for_strangers();
  if (more > left) return false;
  const size_t held = of(user);
  return held == 0 || held + more <= kShare * (left - more);
}

void Quota::take(uid_t user, size_t count) {
  if (count == 0) return;
  held_[user] += count;
  (is_trusted(user) ? trusted_ : strangers_) += count;
}

void Quota::give_back(uid_t user, size_t count) {
  const auto found = held_.find(user);
  if (found == held_.end()) return;
  const size_t given = std::min(count, found->second);
  found->second -= given;
  if (found->second == 0) held_.erase(found);
  (is_trusted(user) ? trusted_ : strangers_) -= given;
}

QuotaShare take_share(const std::shared_ptr<Quota>& quota, uid_t user, size_t count) {
  quota->take(user, count);
  return {quota.get(), [known = std::weak_ptr(quota), user, count](void*) {
            if (const auto still_there = known.lock()) still_there->give_back(user, count);
          }};
}

}  // namespace verbena
