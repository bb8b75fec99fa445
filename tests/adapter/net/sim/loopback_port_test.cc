// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/sim/loopback_port.h"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "adapter/memory/guarded.h"

namespace verbena::net {
namespace {

using testing::ElementsAre;

class LoopbackPortTest : public testing::Test, public PacketHandler {
 protected:
  LoopbackPortTest() {
    memory::install_fault_guard();
    path.source.bytes[15] = 1;
    path.destination.bytes[15] = 2;
  }

  void on_packet(const transport::IncomingPacket& incoming) override {
    EXPECT_EQ(incoming.path, path);
    psns.push_back(incoming.packet.headers.psn.value());
    payloads.emplace_back(incoming.packet.payload.begin(), incoming.packet.payload.end());
  }

  transport::SendStatus send(uint32_t psn, ConstBytes payload) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);
    headers.psn = roce::Psn(psn);
    headers.pad = roce::padding_of(static_cast<uint32_t>(payload.size()));
    return port.send({path, headers, {&payload, 1}, static_cast<uint32_t>(payload.size())});
  }

  PortCounters counters;
  LoopbackPort port{counters};
  roce::Path path;
  std::vector<uint32_t> psns;
  std::vector<std::vector<std::byte>> payloads;
};

TEST_F(LoopbackPortTest, GivesBackWhatIsSentInOrder) {
  const std::vector<std::byte> five(5, std::byte{5});
  const std::vector<std::byte> large(roce::kMaxPathMtu, std::byte{7});
  EXPECT_EQ(send(1, five), transport::SendStatus::kSent);
  EXPECT_EQ(send(2, {}), transport::SendStatus::kSent);
  EXPECT_EQ(send(3, large), transport::SendStatus::kSent);
  EXPECT_EQ(port.receive(*this, 2), 2u);
  EXPECT_THAT(psns, ElementsAre(1, 2));
  EXPECT_EQ(port.receive(*this, 2), 1u);
  EXPECT_EQ(port.receive(*this, 2), 0u);
  EXPECT_THAT(payloads, ElementsAre(five, std::vector<std::byte>{}, large));
  EXPECT_EQ(counters.sent_packets, 3u);
  EXPECT_EQ(counters.received_packets, 3u);
  EXPECT_EQ(counters.sent_bytes, counters.received_bytes);
}

TEST_F(LoopbackPortTest, LosesNothingWhenItIsFull) {
  const std::vector<std::byte> payload(roce::kMaxPathMtu);
  uint32_t sent = 0;
  while (send(sent, payload) == transport::SendStatus::kSent) ++sent;
  EXPECT_FALSE(port.flush());
  uint32_t received = 0;
  while (const uint32_t count = port.receive(*this, 16)) received += count;
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(port.flush());
  EXPECT_EQ(send(sent, payload), transport::SendStatus::kSent);
}

TEST_F(LoopbackPortTest, SendsNothingOfMemoryThatIsGone) {
  void* page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_EQ(send(1, {static_cast<std::byte*>(page), 100}), transport::SendStatus::kFault);
  EXPECT_EQ(port.receive(*this, 16), 0u);
  ::munmap(page, 4096);
}

}  // namespace
}  // namespace verbena::net
