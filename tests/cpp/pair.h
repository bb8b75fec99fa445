// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include <gtest/gtest.h>
#include <verbena/verbs.hpp>

namespace verbena::testing {

// Waits for the next completion of the queue, at most ten seconds. A later one is an error of the test.
inline ibv_wc next(const cq& queue) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < end) {
    for (const completion& one : queue.poll<1>()) return one.get();
  }
  ADD_FAILURE() << "no completion within ten seconds";
  return {};
}

inline void fill(const slice& to, std::string_view text) {
  std::memcpy(to.data(), text.data(), text.size());
}
inline std::string_view text_of(const slice& from) {
  return {reinterpret_cast<const char*>(from.data()), from.size()};
}

// Two queue pairs of this process that are connected to each other, each with a buffer.
struct Pair {
  struct Side {
    explicit Side(const pd& domain, const cq& queue, transport kind)
        : pair(domain
                   .make_qp(kind, {.send_cq = queue,
                                   .max_send_wr = 16,
                                   .max_recv_wr = 16,
                                   .max_send_sge = 2,
                                   .max_recv_sge = 2,
                                   .max_inline = 64})
                   .value()),
          buffer(domain
                     .allocate(4096, access::remote_read | access::remote_write | access::remote_atomic |
                                         access::bind_windows)
                     .value()) {}
    qp pair;
    region buffer;
  };

  explicit Pair(transport kind = rc) : near(domain, near_queue, kind), far(domain, far_queue, kind) {
    if (kind == ud) return;
    const endpoint here = near.pair.local_endpoint().value();
    const endpoint there = far.pair.local_endpoint().value();
    near.pair.connect(there).value();
    far.pair.connect(here).value();
  }

  context device = open().value();
  pd domain = device.make_pd().value();
  cq near_queue = device.make_cq(32).value();
  cq far_queue = device.make_cq(32).value();
  Side near, far;
};

}  // namespace verbena::testing
