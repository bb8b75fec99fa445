// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include <poll.h>

#include "adapter/objects/support/endpoint.h"

// Helpers for tests that wait for completion events instead of polling.
namespace verbena::adapter::testing {

inline constexpr int kPatienceMs = 10'000;

inline bool readable(int fd, int timeout_ms = 0) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1 && (entry.revents & POLLIN) != 0;
}

inline void send(Endpoint& from, Endpoint& to, unsigned flags = IBV_SEND_SIGNALED) {
  ASSERT_EQ(to.post_receive(1, to.piece(0, 64)), 0);
  const ibv_sge piece = from.piece(0, 64);
  ASSERT_EQ(from.post_send(send_request(2, flags), {&piece, 1}), 0);
}

// Takes one event, checks that it is of the endpoint's CQ, and acknowledges it. Returns 0 or the errno value.
inline int get_event(Endpoint& endpoint) {
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  if (ibv_get_cq_event(endpoint.channel.get(), &cq, &cq_context) != 0) return errno;
  EXPECT_EQ(cq, endpoint.cq.get());
  EXPECT_EQ(cq_context, &endpoint);
  ibv_ack_cq_events(cq, 1);
  return 0;
}

// Exchanges messages until `rounds` have arrived: replies to each, and sends the first one if `begins`.
// Sleeps until each event. `heard`, if set, counts the messages, for an observing thread.
inline void play(Endpoint& player, bool begins, int rounds, std::atomic<int>* heard = nullptr) {
  const ibv_sge piece = player.piece(0, 32);
  int received = 0;
  int sent = 0;
  ASSERT_EQ(ibv_req_notify_cq(player.cq.get(), 0), 0);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(player.post_receive(0, piece), 0);
  if (begins) {
    ASSERT_EQ(player.post_send(send_request(1), {&piece, 1}), 0);
  }
  while (received < rounds || sent < rounds) {
    ASSERT_EQ(get_event(player), 0);
    ASSERT_EQ(ibv_req_notify_cq(player.cq.get(), 0), 0);
    std::array<ibv_wc, 8> completions;
    for (int found; (found = ibv_poll_cq(player.cq.get(), 8, completions.data())) != 0;) {
      ASSERT_GT(found, 0);
      for (int i = 0; i < found; ++i) {
        const ibv_wc& wc = completions[static_cast<size_t>(i)];
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        if (wc.wr_id == 1) {
          ++sent;
          continue;
        }
        ++received;
        if (heard != nullptr) ++*heard;
        ASSERT_EQ(player.post_receive(0, piece), 0);
        if (begins && received == rounds) continue;
        ASSERT_EQ(player.post_send(send_request(1), {&piece, 1}), 0);
      }
    }
  }
}

// Runs both players, each in a thread of its own.
inline void play(Endpoint& a, Endpoint& b, int rounds) {
  std::thread other([&] { play(b, false, rounds); });
  play(a, true, rounds);
  other.join();
}

}  // namespace verbena::adapter::testing
