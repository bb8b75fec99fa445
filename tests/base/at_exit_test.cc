// SPDX-License-Identifier: Apache-2.0
#include "base/forked_children.h"
#include "base/mutex_at_fork.h"

namespace verbena {
namespace {

TEST(CallAtExit, WorksInAChildForkedWhileAnotherThreadIsInIt) {
  const auto call = [] { call_at_exit([] {}); };
  test::expect_in_children_forked_while(call, [&] {
    call();
    return true;
  });
}

}  // namespace
}  // namespace verbena
