// SPDX-License-Identifier: Apache-2.0
// The windows and grant tables of both sides, without a network between them. A stream of random pieces must
// arrive unchanged, and never stall.
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/seed.h"
#include "libraries/rsockets/flow_control.h"
#include "libraries/rsockets/stream_protocol.h"

namespace verbena::rsockets {
namespace {

struct Pair {
  explicit Pair(uint32_t messages, uint32_t half)
      : receive(messages, half), buffer(2 * half), half_bytes(half) {
    send.set_limit(static_cast<uint16_t>(messages));
    EXPECT_TRUE(send.grant({0, 0, half}));
  }

  void answer() {
    if (!receive.owes_buffer() && !receive.owes_credits()) return;
    if (receive.owes_buffer()) {
      const BufferAddress granted{receive.grant_buffer(), 0, half_bytes};
      std::memcpy(&memory[entry * BufferAddress::kBytes], granted.encode(kOwnOrder).data(),
                  BufferAddress::kBytes);
      entry = (entry + 1) % kTableEntries;
    }
    send.set_limit(receive.grant_credits());
    while (const auto granted = table.take()) ASSERT_TRUE(send.grant(*granted));
  }

  SendWindow send{8, 1 << 20};
  ReceiveWindow receive;
  std::vector<uint8_t> buffer;
  uint32_t half_bytes;
  alignas(16) std::array<std::byte, GrantTable::kBytes> memory{};
  GrantTable table{memory.data()};
  uint32_t entry = 1;
};

TEST(RsocketWindows, CarryAnyStreamWhole) {
  std::mt19937 generator(static_cast<uint32_t>(test::seed()));
  const auto random = [&] { return static_cast<uint32_t>(generator()); };
  for (int round = 0; round < 50; ++round) {
    Pair pair(2 + random() % 40, 1 + random() % 300);
    uint8_t next_sent = 0;
    uint8_t next_read = 0;
    uint64_t read = 0;
    for (int idle = 0; read < 5000; ++idle) {
      ASSERT_LT(idle, 1000) << "stands still after " << read << " bytes";
      if (random() % 2 && pair.send.may_send()) {
        const BufferAddress part = pair.send.take(1 + random() % 200);
        pair.send.post(part.length);
        for (uint32_t i = 0; i < part.length; ++i) pair.buffer[part.address + i] = next_sent++;
        ASSERT_TRUE(pair.receive.arrive(part.length));
        pair.send.complete(part.length);
      }
      if (random() % 2) {
        const auto piece = pair.receive.peek(1 + random() % 200);
        for (uint32_t i = 0; i < piece.length; ++i) ASSERT_EQ(pair.buffer[piece.offset + i], next_read++);
        pair.receive.consume(piece.length);
        read += piece.length;
        if (piece.length > 0) idle = 0;
      }
      if (random() % 3 == 0) pair.answer();
    }
  }
}

}  // namespace
}  // namespace verbena::rsockets
