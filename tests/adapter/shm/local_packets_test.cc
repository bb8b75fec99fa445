// SPDX-License-Identifier: Apache-2.0
// Packets through a lane: what goes in comes out, and what is no packet is refused.
#include "adapter/shm/local_packets.h"

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/memory/guarded.h"

namespace verbena::engine {
namespace {

using roce::Operation;
using roce::Service;
using testing::ElementsAre;
using transport::IncomingPacket;
using transport::PlainSend;
using transport::SendStatus;

class LocalPackets : public testing::Test {
 protected:
  LocalPackets() {
    memory::install_fault_guard();
    path.source.bytes[15] = 1;
    path.destination.bytes[15] = 2;
    path.traffic_class = 7;
    path.flow_label = 0x12345;
  }

  struct Arrived {
    roce::Headers headers;
    std::vector<std::byte> payload;
    uint32_t count;
    roce::Path path;
    uint32_t udp_bytes;
    std::vector<uint8_t> messages;
  };

  SendStatus send(Operation operation, size_t bytes, uint32_t count = 1, Service service = Service::kRc) {
    payload.assign(bytes, std::byte{0x5a});
    headers.opcode = roce::make_opcode(service, operation);
    headers.pad = roce::padding_of(static_cast<uint32_t>(bytes));
    const ConstBytes piece = payload;
    return writer.send({path, headers, {&piece, 1}, static_cast<uint32_t>(bytes), count});
  }

  uint32_t receive(uint32_t budget = 1000) {
    return reader
        .receive(
            budget,
            [this](const IncomingPacket& incoming) {
              if (incoming.acknowledgement != nullptr) {
                const roce::Qpn to = incoming.packet.headers.destination;
                arrived.push_back({headers_of(*incoming.acknowledgement, to), {}, 1, incoming.path, 0, {}});
              }
              arrived.push_back({incoming.packet.headers,
                                 {incoming.packet.payload.begin(), incoming.packet.payload.end()},
                                 incoming.packet.count,
                                 incoming.path,
                                 incoming.udp_bytes,
                                 {incoming.messages.begin(), incoming.messages.end()}});
            },
            [this](const PlainSend& message, const roce::Path& from) {
              if (!takes_plain) return false;
              if (message.acknowledgement != nullptr)
                arrived.push_back(
                    {headers_of(*message.acknowledgement, message.headers.destination), {}, 1, from, 0, {}});
              plain.push_back(arrived.size());
              arrived.push_back({headers_of(message.headers),
                                 {message.payload.begin(), message.payload.end()},
                                 message.count,
                                 from,
                                 0,
                                 {}});
              return true;
            },
            [this](roce::ParseError error) { refused.push_back(error); })
        .packets;
  }

  // Messages of these lengths, each full of its number, as one.
  SendStatus send_together(const std::vector<uint8_t>& lengths,
                           const transport::Acknowledgement* acknowledgement = nullptr) {
    std::vector<std::vector<std::byte>> data;
    std::vector<ConstBytes> pieces;
    uint32_t bytes = 0;
    for (const uint8_t length : lengths) {
      data.emplace_back(length, static_cast<std::byte>(data.size() + 1));
      bytes += length;
    }
    for (const auto& one : data) pieces.emplace_back(one);
    headers.opcode = roce::make_opcode(Service::kRc, Operation::kSendOnly);
    headers.pad = 0;
    return writer.send({.path = path,
                        .headers = headers,
                        .payload = pieces,
                        .payload_bytes = bytes,
                        .count = static_cast<uint32_t>(lengths.size()),
                        .acknowledgement = acknowledgement,
                        .messages = lengths});
  }

  // An entry as somebody would write it who does not keep to the rules.
  void put(std::vector<uint8_t> head, size_t payload_bytes = 0,
           shm::EntryKind kind = shm::EntryKind::kPacket) {
    payload.assign(payload_bytes, std::byte{});
    const ConstBytes piece = payload;
    ASSERT_EQ(writer.lane().put(kind, std::as_bytes(std::span(head)), {&piece, 1},
                                static_cast<uint32_t>(payload_bytes)),
              shm::Put::kDone);
  }

  std::unique_ptr<shm::ChannelMemory> memory = std::make_unique<shm::ChannelMemory>();
  PacketWriter writer{memory->lanes[0]};
  PacketReader reader{memory->lanes[0]};
  roce::Path path;
  roce::Headers headers;
  std::vector<std::byte> payload;
  std::vector<Arrived> arrived;
  std::vector<roce::ParseError> refused;
  bool takes_plain = false;
  std::vector<size_t> plain;  // which of those that arrived came as such
};

TEST_F(LocalPackets, ArriveWithHeadersPayloadAndPath) {
  headers.destination = roce::Qpn(0x1234);
  headers.psn = roce::Psn(77);
  headers.address = 0x1122334455667788;
  headers.rkey = 9;
  headers.dma_length = 5;
  headers.ack_request = true;
  ASSERT_EQ(send(Operation::kWriteOnly, 5), SendStatus::kSent);
  ASSERT_EQ(receive(), 1u);
  const Arrived& packet = arrived.front();
  EXPECT_EQ(packet.headers.destination, headers.destination);
  EXPECT_EQ(packet.headers.psn, headers.psn);
  EXPECT_EQ(packet.headers.address, headers.address);
  EXPECT_TRUE(packet.headers.ack_request);
  EXPECT_EQ(packet.payload, payload);
  EXPECT_EQ(packet.path, path);
  EXPECT_EQ(packet.udp_bytes, 12u + 16 + 5 + 3 + 4) << "as on a network: headers, payload, padding, ICRC";
}

TEST_F(LocalPackets, EveryOpcodeFitsAnEntry) {
  for (uint32_t opcode = 0; opcode < 256; ++opcode) {
    if (!roce::kOpcodes[opcode].exists()) continue;
    headers.opcode = static_cast<uint8_t>(opcode);
    headers.pad = 0;
    ASSERT_EQ(writer.send({path, headers, {}, 0}), SendStatus::kSent);
    ASSERT_TRUE(writer.flush());
    ASSERT_EQ(receive(), 1u);
    EXPECT_EQ(arrived.back().headers.opcode, opcode);
  }
  EXPECT_TRUE(refused.empty());
}

TEST_F(LocalPackets, JoinedPacketsArriveAsOne) {
  ASSERT_EQ(send(Operation::kSendFirst, 8192, 8), SendStatus::kSent);
  ASSERT_EQ(receive(), 1u);
  EXPECT_EQ(arrived.front().count, 8u);
  EXPECT_EQ(arrived.front().payload.size(), 8192u);
}

TEST_F(LocalPackets, MessagesArriveAsOne) {
  headers.psn = roce::Psn(5);
  headers.ack_request = true;
  const std::vector<uint8_t> lengths = {8, 0, 128, 1};
  ASSERT_EQ(send_together(lengths), SendStatus::kSent);
  ASSERT_EQ(receive(), 4u) << "each counts";
  ASSERT_EQ(arrived.size(), 1u);
  const Arrived& all = arrived.front();
  EXPECT_EQ(all.messages, lengths);
  EXPECT_EQ(all.headers.psn, headers.psn);
  EXPECT_TRUE(all.headers.ack_request);
  ASSERT_EQ(all.payload.size(), 137u);
  EXPECT_EQ(all.payload[7], std::byte{1});
  EXPECT_EQ(all.payload[8], std::byte{3});
  EXPECT_EQ(all.payload[136], std::byte{4});
}

TEST_F(LocalPackets, AsManyMessagesAsGoTogetherFitAnEntryWithAnAcknowledgement) {
  const transport::Acknowledgement acknowledgement{roce::Psn(9), 7, 0x1f};
  const std::vector<uint8_t> lengths(transport::kMaxJoinedMessages, transport::kLongestJoinedMessage);
  ASSERT_EQ(send_together(lengths, &acknowledgement), SendStatus::kSent);
  EXPECT_EQ(receive(), lengths.size());
  ASSERT_EQ(arrived.size(), 2u);
  EXPECT_EQ(arrived[0].headers.psn, roce::Psn(9));
  EXPECT_EQ(arrived[1].messages, lengths);
}

TEST_F(LocalPackets, AnAcknowledgementThatWaitsGoesWithMessages) {
  headers.opcode = roce::make_opcode(Service::kRc, Operation::kAcknowledge);
  headers.pad = 0;
  ASSERT_EQ(writer.send({path, headers, {}, 0}), SendStatus::kSent);
  ASSERT_EQ(send_together({8, 8}), SendStatus::kSent);
  receive();
  ASSERT_EQ(arrived.size(), 2u);
  EXPECT_EQ(arrived[0].headers.operation(), Operation::kAcknowledge);
  EXPECT_EQ(arrived[1].messages.size(), 2u);
}

TEST_F(LocalPackets, APacketBehindMessagesIsAPacket) {
  send_together({8, 8});
  send(Operation::kSendOnly, 8);
  receive();
  ASSERT_EQ(arrived.size(), 2u);
  EXPECT_TRUE(arrived[1].messages.empty());
}

TEST_F(LocalPackets, MessagesThatAreNotWhatTheySayAreRefused) {
  constexpr auto kMessages = shm::EntryKind::kMessages;
  const auto head = [](uint8_t count, Service service, Operation operation, std::vector<uint8_t> lengths) {
    std::vector<uint8_t> all = {
        count, roce::make_opcode(service, operation), 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0};
    all.insert(all.end(), lengths.begin(), lengths.end());
    return all;
  };
  put(head(2, Service::kRc, Operation::kSendOnly, {8, 8}), 15, kMessages);  // a byte short
  put(head(2, Service::kRc, Operation::kSendOnly, {8, 8}), 17, kMessages);  // one too many
  put(head(3, Service::kRc, Operation::kSendOnly, {8, 8}), 16, kMessages);  // a length short
  put(head(1, Service::kRc, Operation::kSendOnly, {8, 8}), 16, kMessages);  // one too many
  put(head(0, Service::kRc, Operation::kSendOnly, {}), 0, kMessages);
  put(head(17, Service::kRc, Operation::kSendOnly, std::vector<uint8_t>(17, 1)), 17, kMessages);
  put(head(2, Service::kRc, Operation::kSendFirst, {8, 8}), 16, kMessages);
  put(head(2, Service::kUc, Operation::kSendOnly, {8, 8}), 16, kMessages);
  std::vector<uint8_t> solicited = head(2, Service::kRc, Operation::kSendOnly, {8, 8});
  solicited[2] = 0x80;
  put(solicited, 16, kMessages);
  put({}, 0, kMessages);
  put({16}, 0, kMessages);
  put({16, 0, 0}, 0, kMessages);
  receive();
  EXPECT_TRUE(arrived.empty());
  EXPECT_EQ(refused.size(), 12u);
  put(head(2, Service::kRc, Operation::kSendOnly, {8, 8}), 16, kMessages);
  EXPECT_EQ(receive(), 2u);
  EXPECT_EQ(arrived.size(), 1u);
}

TEST_F(LocalPackets, MessagesWhoseMemoryIsGoneAreAFault) {
  headers.opcode = roce::make_opcode(Service::kRc, Operation::kSendOnly);
  const std::vector<std::byte> good(8);
  const ConstBytes pieces[] = {good, {reinterpret_cast<const std::byte*>(16), 8}};
  const uint8_t lengths[] = {8, 8};
  EXPECT_EQ(writer.send({path, headers, pieces, 16, 2, nullptr, lengths}), SendStatus::kFault);
  EXPECT_EQ(send(Operation::kSendOnly, 8), SendStatus::kSent);
  EXPECT_EQ(receive(), 1u);
}

TEST_F(LocalPackets, EachHasThePathItWasSentBy) {
  send(Operation::kSendOnly, 1);
  path.traffic_class = 9;
  send(Operation::kSendOnly, 1);
  send(Operation::kSendOnly, 1);
  ASSERT_EQ(receive(), 3u);
  EXPECT_EQ(arrived[0].path.traffic_class, 7);
  EXPECT_EQ(arrived[1].path.traffic_class, 9);
  EXPECT_EQ(arrived[2].path, arrived[1].path);
}

TEST_F(LocalPackets, TheInterfaceIsNotTheSendersToSay) {
  path.interface_index = 5;
  send(Operation::kSendOnly, 1);
  ASSERT_EQ(receive(), 1u);
  EXPECT_EQ(arrived.front().path.interface_index, 0u);
}

// ---- acknowledgements

TEST_F(LocalPackets, AnAcknowledgementWaitsForThePacketBehindIt) {
  headers.destination = roce::Qpn(7);
  headers.psn = roce::Psn(100);
  headers.msn = 5;
  headers.syndrome = 0x1f;
  ASSERT_EQ(send(Operation::kAcknowledge, 0), SendStatus::kSent);
  EXPECT_EQ(receive(), 0u);
  headers.psn = roce::Psn(3);
  ASSERT_EQ(send(Operation::kSendOnly, 8), SendStatus::kSent);
  EXPECT_EQ(receive(), 1u) << "one entry";
  ASSERT_EQ(arrived.size(), 2u);
  EXPECT_EQ(arrived[0].headers.operation(), Operation::kAcknowledge);
  EXPECT_EQ(arrived[0].headers.destination, roce::Qpn(7));
  EXPECT_EQ(arrived[0].headers.psn, roce::Psn(100));
  EXPECT_EQ(arrived[0].headers.msn, 5u);
  EXPECT_EQ(arrived[0].headers.syndrome, 0x1f);
  EXPECT_EQ(arrived[1].headers.psn, roce::Psn(3));
  EXPECT_EQ(arrived[1].payload.size(), 8u);
}

TEST_F(LocalPackets, AnAcknowledgementMayBeHandedOverWithThePacket) {
  headers.destination = roce::Qpn(7);
  headers.psn = roce::Psn(90);
  send(Operation::kAcknowledge, 0);
  headers.opcode = roce::make_opcode(Service::kRc, Operation::kSendOnly);
  headers.psn = roce::Psn(3);
  const transport::Acknowledgement later{roce::Psn(100), 5, 0x1f};
  ASSERT_EQ(writer.send({path, headers, {}, 0, 1, &later}), SendStatus::kSent);
  EXPECT_EQ(receive(), 2u) << "one that waited goes ahead";
  ASSERT_EQ(arrived.size(), 3u);
  EXPECT_EQ(arrived[0].headers.psn, roce::Psn(90));
  EXPECT_EQ(arrived[1].headers.psn, roce::Psn(100));
  EXPECT_EQ(arrived[1].headers.msn, 5u);
  EXPECT_EQ(arrived[2].headers.psn, roce::Psn(3));
}

TEST_F(LocalPackets, AnAcknowledgementThatNothingFollowsGoesWithTheFlush) {
  send(Operation::kAcknowledge, 0);
  EXPECT_TRUE(writer.flush());
  EXPECT_EQ(receive(), 1u);
  EXPECT_TRUE(writer.flush());
  EXPECT_EQ(receive(), 0u);
}

TEST_F(LocalPackets, AnAcknowledgementGoesAheadOfAPacketToAnotherQp) {
  headers.destination = roce::Qpn(7);
  send(Operation::kAcknowledge, 0);
  headers.destination = roce::Qpn(8);
  send(Operation::kSendOnly, 8);
  EXPECT_EQ(receive(), 2u);
  EXPECT_EQ(arrived[0].headers.destination, roce::Qpn(7));
}

TEST_F(LocalPackets, TheLongestHeadersLeaveRoomForAnAcknowledgement) {
  send(Operation::kAcknowledge, 0);
  ASSERT_EQ(send(Operation::kCompareSwap, 0), SendStatus::kSent);
  EXPECT_EQ(receive(), 1u);
  EXPECT_EQ(arrived.size(), 2u);
}

TEST_F(LocalPackets, AFullLaneIsBusyAndLosesNothing) {
  uint32_t sent = 0;
  while (send(Operation::kSendOnly, 4096) == SendStatus::kSent) ++sent;
  EXPECT_GT(sent, 10u);
  EXPECT_EQ(receive(), sent);
  EXPECT_EQ(send(Operation::kSendOnly, 4096), SendStatus::kSent);
}

TEST_F(LocalPackets, NoMoreAreTakenThanTheBudgetSays) {
  for (int i = 0; i < 5; ++i) send(Operation::kSendOnly, 1);
  EXPECT_EQ(receive(3), 3u);
  EXPECT_EQ(receive(), 2u);
}

// One who goes on with it holds up nobody but its own messages.
TEST_F(LocalPackets, PathsWithoutPacketsAreReadLittleByLittle) {
  for (int i = 0; i < 100; ++i) {
    const std::vector<std::byte> head(40);
    ASSERT_EQ(writer.lane().put(shm::EntryKind::kPath, head), shm::Put::kDone);
  }
  EXPECT_EQ(receive(8), 0u);
  EXPECT_TRUE(reader.has_work()) << "not all of them at once";
  for (int i = 0; i < 10; ++i) EXPECT_EQ(receive(8), 0u);
  EXPECT_FALSE(reader.has_work());
}

TEST_F(LocalPackets, MemoryThatIsGoneIsAFault) {
  headers.opcode = roce::make_opcode(Service::kRc, Operation::kSendOnly);
  const ConstBytes nowhere(reinterpret_cast<const std::byte*>(16), 8);
  EXPECT_EQ(writer.send({path, headers, {&nowhere, 1}, 8}), SendStatus::kFault);
  EXPECT_EQ(send(Operation::kSendOnly, 8), SendStatus::kSent);
  EXPECT_EQ(receive(), 1u);
}

TEST_F(LocalPackets, WhatIsNoPacketIsRefusedAndTheNextTaken) {
  using roce::ParseError;
  const uint8_t send_only = roce::make_opcode(Service::kRc, Operation::kSendOnly);
  put({});
  put({1});
  put({1, send_only, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0});        // a byte short
  put({1, send_only, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0});  // one too many
  put({1, 0xff, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0});          // no opcode
  put({1, send_only, 0x0f, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0});  // header version
  put({0, send_only, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0});     // no packet at all
  put({200, send_only, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0});   // more than ever are joined
  put({1,    roce::make_opcode(Service::kRc, Operation::kReadRequest),
       0,    0xff,
       0xff, 0,
       0,    0,
       0,    0,
       0,    0,
       0,    0,
       0,    0,
       0,    0,
       0,    0,
       0,    0,
       0,    0,
       0,    0,
       0,    0,
       0},
      4);  // a payload where there is none
  EXPECT_EQ(receive(), 9u);
  EXPECT_TRUE(arrived.empty());
  EXPECT_THAT(refused,
              ElementsAre(ParseError::kTruncated, ParseError::kTruncated, ParseError::kTruncated,
                          ParseError::kTruncated, ParseError::kUnknownOpcode, ParseError::kBadVersion,
                          ParseError::kTruncated, ParseError::kTruncated, ParseError::kUnexpectedPayload));
  send(Operation::kSendOnly, 1);
  EXPECT_EQ(receive(), 1u);
  EXPECT_EQ(arrived.size(), 1u);
}

// ---- payloads that stay with their sender

TEST_F(LocalPackets, SayWhereALentPayloadLies) {
  std::vector<std::byte> data(3 * 4096);
  const std::array<ConstBytes, 3> pieces{ConstBytes(data).first(4096), ConstBytes(),
                                         ConstBytes(data).subspan(4096)};
  headers.opcode = roce::make_opcode(Service::kRc, Operation::kWriteFirst);
  headers.pad = 0;
  headers.dma_length = 1 << 20;
  const transport::Acknowledgement acknowledgement{roce::Psn(5), 6, 7};
  ASSERT_EQ(writer.send({.path = path,
                         .headers = headers,
                         .payload = pieces,
                         .payload_bytes = 3 * 4096,
                         .count = 3,
                         .acknowledgement = &acknowledgement,
                         .lent = true}),
            SendStatus::kSent);
  uint32_t taken = 0;
  reader.receive(
      10,
      [&](const IncomingPacket& incoming) {
        ++taken;
        ASSERT_NE(incoming.lent, nullptr);
        EXPECT_EQ(incoming.payload_bytes(), 3u * 4096);
        EXPECT_TRUE(incoming.packet.payload.empty());
        EXPECT_EQ(incoming.packet.count, 3u);
        EXPECT_EQ(incoming.packet.headers.dma_length, 1u << 20);
        ASSERT_NE(incoming.acknowledgement, nullptr);
        EXPECT_EQ(incoming.acknowledgement->msn, 6u);
        EXPECT_FALSE(incoming.lent->fetch({}, {})) << "from no memory";
      },
      [](const PlainSend&, const roce::Path&) { return true; }, [](roce::ParseError) { FAIL(); });
  EXPECT_EQ(taken, 1u);
  EXPECT_FALSE(writer.lane().may_lend()) << "who cannot fetch says so";
  ASSERT_EQ(send(Operation::kSendOnly, 8), SendStatus::kSent);
  reader.receive(
      10, [&](const IncomingPacket& incoming) { EXPECT_EQ(incoming.lent, nullptr); },
      [](const PlainSend&, const roce::Path&) { return false; }, [](roce::ParseError) { FAIL(); });
}

TEST_F(LocalPackets, LentPayloadsThatCannotBeAreRefused) {
  const auto put_lent = [this](std::vector<shm::LentPiece> list, Operation operation = Operation::kSendFirst,
                               Service service = Service::kRc, uint8_t count = 1, size_t cut = 0) {
    const std::vector<uint8_t> head{
        count, roce::make_opcode(service, operation), 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0};
    const ConstBytes piece = std::as_bytes(std::span(list)).first(list.size() * sizeof list[0] - cut);
    ASSERT_EQ(writer.lane().put(shm::EntryKind::kLentPacket, std::as_bytes(std::span(head)), {&piece, 1},
                                static_cast<uint32_t>(piece.size())),
              shm::Put::kDone);
  };
  put_lent({});
  put_lent({{0, 0}});
  put_lent({{0, 1}}, Operation::kSendFirst, Service::kRc, 1, 1);  // a byte of the list short
  put_lent({{0, kMaxLentBytes + 1}});
  put_lent({{0, kMaxLentBytes}, {0, 1}});
  put_lent({{0, 1}, {0, UINT64_MAX}});  // which is nothing together, modulo 2^64
  put_lent(std::vector<shm::LentPiece>(queues::kMaxSge + 1, {0, 1}));
  put_lent({{0, 1}}, Operation::kSendOnly);
  put_lent({{0, 1}}, Operation::kSendLast);
  put_lent({{0, 1}}, Operation::kReadResponseMiddle);
  put_lent({{0, 1}}, Operation::kSendFirst, Service::kUc);
  put_lent({{0, 1}}, Operation::kSendFirst, Service::kUd);
  put_lent({{0, 1}}, Operation::kSendFirst, Service::kRc, 0);
  receive();
  EXPECT_TRUE(arrived.empty());
  EXPECT_EQ(refused.size(), 13u);
  put_lent(std::vector<shm::LentPiece>(queues::kMaxSge, {0, 1}), Operation::kSendMiddle, Service::kRc,
           kMaxLentPackets);
  receive();
  EXPECT_EQ(arrived.size(), 1u);
}

TEST_F(LocalPackets, ALongLentPayloadTakesMoreOfATurn) {
  std::vector<std::byte> data(kMaxLentBytes);
  const ConstBytes piece = data;
  headers.opcode = roce::make_opcode(Service::kRc, Operation::kSendMiddle);
  headers.pad = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(writer.send({.path = path,
                           .headers = headers,
                           .payload = {&piece, 1},
                           .payload_bytes = kMaxLentBytes,
                           .count = 64,
                           .lent = true}),
              SendStatus::kSent);
  }
  receive(2);
  EXPECT_EQ(arrived.size(), 1u);
}

TEST_F(LocalPackets, OnlyThoseOfRcAreJoined) {
  ASSERT_EQ(send(Operation::kSendOnly, 2048, 2, Service::kUd), SendStatus::kSent);
  receive();
  EXPECT_TRUE(arrived.empty());
}

// ---- SENDs with nothing but their data

TEST_F(LocalPackets, APlainSendIsThePacketOfItsHeaders) {
  const transport::Acknowledgement acknowledgement{roce::Psn(5), 6, 7};
  payload.assign(9, std::byte{0x5a});
  PlainSend message{.headers = {.opcode = PlainSend::kOpcode,
                                .pad = 3,
                                .solicited = true,
                                .ack_request = true,
                                .destination = roce::Qpn(0x123456),
                                .psn = roce::Psn(0xfedcba)},
                    .payload = payload};
  ASSERT_EQ(writer.send_plain(path, message), SendStatus::kSent);
  message.acknowledgement = &acknowledgement;
  ASSERT_EQ(writer.send_plain(path, message), SendStatus::kSent);
  for (const bool plainly : {false, true}) {
    takes_plain = plainly;
    if (plainly) {
      ASSERT_EQ(writer.send_plain(path, message), SendStatus::kSent);
    }
    ASSERT_EQ(receive(), plainly ? 1u : 2u);
    const Arrived& last = arrived.back();
    EXPECT_EQ(last.headers.opcode, PlainSend::kOpcode);
    EXPECT_EQ(last.headers.pad, 3);
    EXPECT_TRUE(last.headers.solicited && last.headers.ack_request && !last.headers.migrated);
    EXPECT_EQ(last.headers.pkey, roce::kDefaultPkey);
    EXPECT_EQ(last.headers.destination, roce::Qpn(0x123456));
    EXPECT_EQ(last.headers.psn, roce::Psn(0xfedcba));
    EXPECT_EQ(last.payload, payload);
    EXPECT_EQ(last.path, path);
    const Arrived& before = arrived[arrived.size() - 2];
    EXPECT_EQ(before.headers.psn, roce::Psn(5));
    EXPECT_EQ(before.headers.msn, 6u);
    EXPECT_EQ(before.headers.syndrome, 7);
  }
  EXPECT_EQ(arrived.size(), 5u);
  EXPECT_EQ(plain, std::vector<size_t>{4});
}

TEST_F(LocalPackets, APlainSendSaysHowManyPacketsItIs) {
  payload.assign(600, std::byte{0x5a});
  PlainSend message{
      .headers = {.opcode = PlainSend::kOpcode, .destination = headers.destination, .psn = roce::Psn(9)},
      .payload = payload,
      .count = 3};
  for (const bool plainly : {false, true}) {
    takes_plain = plainly;
    ASSERT_EQ(writer.send_plain(path, message), SendStatus::kSent);
    ASSERT_EQ(receive(), 1u);
    EXPECT_EQ(arrived.back().count, 3u);
    EXPECT_EQ(arrived.back().payload, payload);
  }
  EXPECT_EQ(plain, std::vector<size_t>{1});
  // More than an entry takes, as a peer may say that follows no rule.
  takes_plain = true;
  message.count = 127;
  ASSERT_EQ(writer.send_plain(path, message), SendStatus::kSent);
  receive();
  EXPECT_EQ(arrived.size(), 2u);
  EXPECT_EQ(refused.size(), 1u);
}

TEST_F(LocalPackets, WhatIsAnythingElseIsNoPlainSend) {
  takes_plain = true;
  ASSERT_EQ(send(Operation::kSendOnlyImmediate, 8), SendStatus::kSent);
  ASSERT_EQ(send(Operation::kSendFirst, 256), SendStatus::kSent);
  ASSERT_EQ(send(Operation::kWriteOnly, 8), SendStatus::kSent);
  ASSERT_EQ(send(Operation::kSendOnly, 8, 1, Service::kUc), SendStatus::kSent);
  send_together({8, 8});
  for (const auto change :
       {+[](roce::Headers& h) { h.fecn = true; }, +[](roce::Headers& h) { h.becn = true; },
        +[](roce::Headers& h) { h.migrated = true; }, +[](roce::Headers& h) { h.pkey = 0x7fff; }}) {
    const roce::Headers as_ever = headers;
    change(headers);
    ASSERT_EQ(send(Operation::kSendOnly, 8), SendStatus::kSent);
    headers = as_ever;
  }
  receive();
  EXPECT_TRUE(plain.empty());
  EXPECT_EQ(arrived.size(), 9u);
  EXPECT_TRUE(refused.empty());
}

TEST_F(LocalPackets, APlainSendTakesTheAcknowledgementThatWaits) {
  headers.psn = roce::Psn(77);
  headers.syndrome = 1;
  headers.msn = 3;
  ASSERT_EQ(send(Operation::kAcknowledge, 0), SendStatus::kSent);
  const PlainSend message{
      .headers = {.opcode = PlainSend::kOpcode, .destination = headers.destination, .psn = roce::Psn(9)},
      .payload = {}};
  ASSERT_EQ(writer.send_plain(path, message), SendStatus::kSent);
  takes_plain = true;
  EXPECT_EQ(receive(), 1u);
  ASSERT_EQ(arrived.size(), 2u);
  EXPECT_EQ(arrived[0].headers.psn, roce::Psn(77));
  EXPECT_EQ(arrived[1].headers.psn, roce::Psn(9));
}

}  // namespace
}  // namespace verbena::engine
