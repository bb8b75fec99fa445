// SPDX-License-Identifier: Apache-2.0
#include "base/at_exit.h"

#include "base/forked_children.h"

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
