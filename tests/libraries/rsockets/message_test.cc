// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "libraries/rsockets/stream_protocol.h"

namespace verbena::rsockets {
namespace {

TEST(RsocketMessage, HasOperationInTopThreeBits) {
  EXPECT_EQ((Message{Operation::kData, 65536}.encode()), 0x00010000u);
  EXPECT_EQ((Message{Operation::kCredits, 384}.encode()), 0x80000180u);
  EXPECT_EQ((Message{Operation::kIomap, 3}.encode()), 0xc0000003u);
  EXPECT_EQ(Message::control(Control::kDisconnect).encode(), 0xe0000000u);
  EXPECT_EQ(Message::control(Control::kShutdown).encode(), 0xe0000002u);
}

TEST(RsocketMessage, DecodesWhatItEncodes) {
  for (const Message message :
       {Message{Operation::kData, 1}, Message{Operation::kCredits, 0xffff}, Message{Operation::kIomap, 0},
        Message{Operation::kData, kMaxMessageValue}, Message::control(Control::kShutdown)}) {
    EXPECT_EQ(Message::decode(message.encode()), message);
  }
}

TEST(RsocketMessage, ReservedOperationsAreNoMessages) {
  for (const uint32_t operation : {1u, 2u, 3u, 5u}) {
    EXPECT_EQ(Message::decode(operation << 29 | 7), std::nullopt) << operation;
  }
}

}  // namespace
}  // namespace verbena::rsockets
