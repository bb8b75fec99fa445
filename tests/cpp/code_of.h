// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <verbena/async/task.hpp>
#include <verbena/result.hpp>

namespace verbena::testing {

// Awaits an operation, and returns the errno of its failure, or 0.
template <class Awaited>
task<int> code_of(Awaited awaited) {
  try {
    co_await std::move(awaited);
  } catch (const exception& thrown) {
    co_return thrown.error().code();
  }
  co_return 0;
}

}  // namespace verbena::testing
