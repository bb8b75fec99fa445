// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/async/loop.hpp>
#include <verbena/async/task.hpp>

namespace verbena::testing {

// Destroys the coroutine that `work` makes after each number of turns: wherever it is suspended. Then runs
// another one to its end.
template <class Work>
void destroy_at_each_suspension(loop& io, Work work) {
  bool has_ended = false;
  for (int turns = 0; !has_ended && turns < 500; ++turns) {
    task<> member = work();
    member.handle().resume();
    for (int i = 0; i < turns && !member.done(); ++i) io.turn();
    has_ended = member.done();
  }
  io.run(work());
}

}  // namespace verbena::testing
