// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include "adapter/transport/control_packets.h"
#include "adapter/transport/support/requester_test.h"

namespace verbena::transport {

// A requester that knows its path's round trip and whose peer sends SACKs. Its next PSN is 101.
class RequesterRepair : public RequesterTest {
 protected:
  // Exchanges one message with a round trip of 1 ms, so that the requester knows its path.
  void SetUp() override {
    RequesterTest::SetUp();
    post(IBV_WR_SEND, 10);
    e.transmitted();
    e.now += std::chrono::milliseconds(1);
    acknowledge(100);
    expect_sent(1);
  }
  // Delivers a SACK after one round trip: the peer expects `expected` and has received the ranges [first,
  // limit).
  void tell(uint32_t expected, std::initializer_list<std::pair<uint32_t, uint32_t>> ranges) {
    tell(expected, ranges, expected);
  }
  void tell(uint32_t expected, std::initializer_list<std::pair<uint32_t, uint32_t>> ranges, uint32_t psn) {
    e.now += std::chrono::milliseconds(1);
    Sack arrivals;
    arrivals.expected = roce::Psn(expected);
    for (const auto& [first, limit] : ranges) {
      arrivals.ranges[arrivals.count++] = {roce::Psn(first), limit - first};
    }
    std::array<std::byte, Sack::kMaxBytes> payload;
    const uint32_t bytes = arrivals.write(payload);
    roce::Headers headers;
    headers.opcode = roce::kSackOpcode;
    headers.destination = roce::Qpn(0x11);
    headers.psn = roce::Psn(psn) - Sack::kPast;
    e.receive(headers, {payload.data(), bytes});
  }
  // Returns the PSNs sent, without the confirmations of SACKs, which it counts in `heard`.
  std::vector<uint32_t> sent_again() {
    std::vector<uint32_t> all;
    for (const SentPacket& p : e.transmitted()) {
      if (p.headers.opcode == roce::kSackConfirmationOpcode) {
        ++heard;
      } else {
        all.push_back(p.psn());
      }
    }
    return all;
  }
  int heard = 0;
};

}  // namespace verbena::transport
