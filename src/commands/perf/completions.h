// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <verbena/verbs.hpp>

namespace verbena::perf {

inline constexpr std::size_t kBatch = 16;  // completions per poll of a bandwidth test, as in perftest

// Polls a completion queue once, for up to N completions. Calls `take` with each of them, and returns their
// number. Throws verbena::exception if a request has failed or the queue is broken.
template <std::size_t N, class Take>
std::size_t take_completions(const verbena::cq& queue, const Take& take) {
  const auto found = queue.poll<N>();
  if (!found) [[unlikely]]
    throw verbena::exception(verbena::error("poll a completion queue", EIO));
  for (const verbena::completion& each : found) {
    if (!each) [[unlikely]]
      throw verbena::exception(each.error());
    take(each);
  }
  return found.size();
}

}  // namespace verbena::perf
