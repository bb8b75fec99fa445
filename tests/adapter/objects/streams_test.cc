// SPDX-License-Identifier: Apache-2.0
// Long messages in sequence from one process to another: each arrives whole and exactly once, by whichever
// means (adapter/shm/stream_ways.h tries all of them in a stream of this length).
#include <cstdint>
#include <span>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/helper.h"
#include "adapter/objects/support/route.h"

namespace verbena::adapter::testing {
namespace {

constexpr uint32_t kMessage = 256 * 1024;
constexpr uint32_t kSlots = 4;
constexpr uint32_t kCredit = 64;  // bytes at the end of the buffer, for the credits
constexpr Options kOptions{.bytes = kSlots * kMessage + kCredit, .mtu = IBV_MTU_4096};

struct Order {
  ibv_wr_opcode opcode;
  uint32_t messages;
};

std::span<uint64_t> slot(Endpoint& endpoint, uint32_t number) {
  auto* const words = reinterpret_cast<uint64_t*>(endpoint.buffer() + size_t{number % kSlots} * kMessage);
  return {words, kMessage / sizeof(uint64_t)};
}
ibv_sge piece(const Endpoint& endpoint, uint32_t number) {
  return endpoint.piece(size_t{number % kSlots} * kMessage, kMessage);
}
ibv_sge credit(const Endpoint& endpoint) {
  return endpoint.piece(size_t{kSlots} * kMessage, kCredit);
}

void write_pattern(std::span<uint64_t> words, uint64_t number) {
  for (uint64_t i = 0; i < words.size(); ++i) words[i] = number * 0x9e3779b97f4a7c15 + i;
}
uint64_t wrong_words(std::span<const uint64_t> words, uint64_t number) {
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < words.size(); ++i) wrong += words[i] != number * 0x9e3779b97f4a7c15 + i ? 1 : 0;
  return wrong;
}

// Checks each message, and returns a credit for it.
void receive_stream(Line& line) {
  const auto order = line.hear<Order>();
  Endpoint endpoint(kOptions);
  line.tell(endpoint.address());
  endpoint.connect(line.hear<Address>());
  for (uint32_t i = 0; i < kSlots; ++i) ASSERT_EQ(endpoint.post_receive(i, piece(endpoint, i)), 0);
  line.tell(true);
  for (uint32_t i = 0; i < order.messages; ++i) {
    ibv_wc wc = endpoint.completion();
    while (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND) wc = endpoint.completion();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << i;
    ASSERT_EQ(wc.wr_id, i % kSlots);
    ASSERT_EQ(wc.byte_len, kMessage);
    ASSERT_EQ(wrong_words(slot(endpoint, i), i), 0u) << "of message " << i;
    ASSERT_EQ(endpoint.post_receive(i % kSlots, piece(endpoint, i)), 0);
    const ibv_sge back = credit(endpoint);
    ASSERT_EQ(endpoint.post_send(send_request(0), {&back, 1}), 0);
  }
  line.await_end();
}
const HelperBody kReceiver("stream receiver", receive_stream);

class Streams : public ::testing::TestWithParam<ibv_wr_opcode> {};

TEST_P(Streams, OfLongMessagesArriveWhole) {
  constexpr uint32_t kMessages = 1200;
  use_route(usual_route());
  Helper helper = Helper::start("stream receiver");
  Line& line = helper.line();
  line.tell(Order{GetParam(), kMessages});
  Endpoint endpoint(kOptions);
  const ibv_sge back = credit(endpoint);
  line.tell(endpoint.address());
  endpoint.connect(line.hear<Address>());
  for (uint32_t i = 0; i < 2 * kSlots; ++i) ASSERT_EQ(endpoint.post_receive(i, back), 0);
  ASSERT_TRUE(line.hear<bool>());

  uint32_t credits = kSlots;
  uint32_t sent = 0;
  for (uint32_t done = 0, returned = 0; done < kMessages || returned < kMessages;) {
    if (sent < kMessages && credits > 0 && sent - done < kSlots) {
      write_pattern(slot(endpoint, sent), sent);
      const ibv_sge list = piece(endpoint, sent);
      ibv_send_wr request = remote_request(GetParam(), sent, endpoint.peer, size_t{sent % kSlots} * kMessage);
      ASSERT_EQ(endpoint.post_send(request, {&list, 1}), 0);
      --credits;
      ++sent;
      continue;
    }
    const ibv_wc wc = endpoint.completion();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    if (wc.opcode == IBV_WC_RECV) {
      ASSERT_EQ(endpoint.post_receive(wc.wr_id, back), 0);
      ++credits;
      ++returned;
    } else {
      ++done;
    }
  }
  EXPECT_TRUE(endpoint.quiet());
}

INSTANTIATE_TEST_SUITE_P(, Streams, ::testing::Values(IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM),
                         [](const auto& test) { return test.param == IBV_WR_SEND ? "Sends" : "Writes"; });

}  // namespace
}  // namespace verbena::adapter::testing
