// SPDX-License-Identifier: Apache-2.0
#include "observe/trace/event_words.h"

#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "management/cm/messages.h"
#include "observe/trace/connection_note.h"
#include "wire/roce/aeth.h"
#include "wire/roce/path.h"

namespace verbena::trace {
namespace {

using testing::HasSubstr;

std::string words(Kind kind, const Recorder::Numbers& numbers) {
  return words_of({.time = {}, .qpn = 0x11, .kind = kind, .numbers = numbers});
}

TEST(EventWords, EachKindHasANameOfItsOwnAndFields) {
  std::set<std::string_view> names;
  size_t kinds = 0;
  for (int number = 1; number < 256; ++number) {
    const auto kind = static_cast<Kind>(number);
    const bool exists = kind < Kind::kRareEnd || (kind >= Kind::kPosted && kind < Kind::kDetailEnd);
    EXPECT_EQ(name_of(kind) != "unknown", exists) << number;
    if (!exists) continue;
    ++kinds;
    names.insert(name_of(kind));
    EXPECT_EQ(fields_of(kind).empty(), kind == Kind::kQpDestroyed) << name_of(kind);
  }
  EXPECT_EQ(names.size(), kinds);
}

TEST(EventWords, ATimeoutSaysFromWhereOnAndHowManyTriesAreLeft) {
  EXPECT_EQ(words(Kind::kTimeout, {0xa1b2, 0xa1b4, 6, 67'108'864}),
            "timeout: no acknowledgement from PSN 0x00a1b2 on (2 packets sent), 6 tries left");
  EXPECT_THAT(words(Kind::kTimeout, {0xffffff, 1, 1, 0}), HasSubstr("(2 packets sent), 1 try left"));
}

TEST(EventWords, StatesSayWhoHasChangedThem) {
  EXPECT_EQ(words(Kind::kState, {IBV_QPS_INIT, IBV_QPS_RTR, 0}), "INIT -> RTR by the program");
  EXPECT_EQ(words(Kind::kState, {IBV_QPS_RTS, IBV_QPS_ERR, 1}), "RTS -> ERR because of an error");
}

TEST(EventWords, APeerIsSaidWithItsAddress) {
  roce::Address address;
  address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1};
  Recorder::Numbers numbers{0, 0, 0x12 | uint64_t{1024} << 32, 0xabc};
  std::memcpy(numbers.data(), address.bytes.data(), sizeof address.bytes);
  EXPECT_EQ(words(Kind::kPeer, numbers),
            "peer: QP 0x000012 at 192.0.2.1, path MTU 1024; expects PSN 0x000abc");
}

std::string connection_words(Kind kind, ConnectionNote note) {
  note.id = 7;
  note.peer.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1};
  note.port = 7471;
  return words(kind, packed(note));
}

constexpr uint8_t number(cm::MessageType type) {
  return static_cast<uint8_t>(type);
}

TEST(EventWords, MessagesOfConnectionsSayTheirPeerItsQueuePairAndHowOftenTheyWereSent) {
  EXPECT_EQ(connection_words(Kind::kCmSent, {.what = number(cm::MessageType::kReq)}),
            "cm_id 7: sent REQ to 192.0.2.1 port 7471");
  EXPECT_EQ(connection_words(Kind::kCmSent, {.what = number(cm::MessageType::kReq), .repetitions = 2}),
            "cm_id 7: sent REQ to 192.0.2.1 port 7471, repetition 2");
  EXPECT_EQ(connection_words(Kind::kCmReceived, {.what = number(cm::MessageType::kRep), .remote_qpn = 0x12}),
            "cm_id 7: received REP from 192.0.2.1 port 7471, its QP 0x000012");
  EXPECT_EQ(connection_words(Kind::kCmReceived, {.what = number(cm::MessageType::kRej), .status = 8}),
            "cm_id 7: received REJ from 192.0.2.1 port 7471, reason 8 (invalid service ID)");
}

TEST(EventWords, EventsOfConnectionsSayTheirStatusAndItsCause) {
  EXPECT_EQ(connection_words(Kind::kCmEvent, {.what = RDMA_CM_EVENT_ESTABLISHED, .remote_qpn = 0x12}),
            "cm_id 7: RDMA_CM_EVENT_ESTABLISHED, peer 192.0.2.1 port 7471, its QP 0x000012");
  EXPECT_EQ(
      connection_words(Kind::kCmEvent, {.what = RDMA_CM_EVENT_REJECTED, .status = 8}),
      "cm_id 7: RDMA_CM_EVENT_REJECTED, peer 192.0.2.1 port 7471, status 8 (invalid service ID): nobody "
      "listens on this port there: start the server first, or correct the port");
  EXPECT_THAT(connection_words(Kind::kCmEvent, {.what = RDMA_CM_EVENT_ADDR_ERROR, .status = -ENODEV}),
              HasSubstr("status -ENODEV: no link has the address"));
}

TEST(EventWords, CallsSayWhetherTheyFailed) {
  const auto call = static_cast<uint8_t>(protocol::TraceCall::kConnect);
  EXPECT_EQ(connection_words(Kind::kCmCall, {.what = call}),
            "cm_id 7: rdma_connect, peer 192.0.2.1 port 7471");
  EXPECT_EQ(connection_words(Kind::kCmCall, {.what = call, .status = EINVAL}),
            "cm_id 7: rdma_connect failed: EINVAL");
}

TEST(EventWords, OnlyFailuresOfConnectionsAreTrouble) {
  const auto is_trouble_of = [](uint8_t what) {
    return is_trouble({.time = {}, .qpn = 0, .kind = Kind::kCmEvent, .numbers = packed({.what = what})});
  };
  EXPECT_TRUE(is_trouble_of(RDMA_CM_EVENT_UNREACHABLE));
  EXPECT_FALSE(is_trouble_of(RDMA_CM_EVENT_DISCONNECTED));
}

TEST(EventWords, ANoteOfAConnectionIsUnpackedAsItWasPacked) {
  ConnectionNote note;
  note.peer.bytes.fill(0x5a);
  note.port = 0xfedc;
  note.id = 0x80000001;
  note.what = 0xff;
  note.remote_qpn = 0xabcdef;
  note.repetitions = 0x1234;
  note.status = -110;
  EXPECT_EQ(unpacked(packed(note)), note);
}

TEST(EventWords, NaksSayTheirReason) {
  const uint64_t access = roce::nak_syndrome(roce::NakCode::kRemoteAccess);
  EXPECT_EQ(words(Kind::kNakSent, {7, access}), "sent: NAK (remote access error), PSN 0x000007");
  EXPECT_EQ(words(Kind::kNakReceived, {7, roce::rnr_syndrome(12), 2}),
            "received: RNR NAK (no receive request; wait 640 us), PSN 0x000007, 2 tries left");
}

TEST(EventWords, AFailedRequestSaysItsStatus) {
  EXPECT_EQ(words(Kind::kSendFailed, {IBV_WC_RETRY_EXC_ERR | uint64_t{IBV_WR_SEND} << 32, 0x77, 5, 4096}),
            "SEND of 4096 bytes failed: transport retry counter exceeded (wr_id 0x77, first PSN 0x000005)");
}

TEST(EventWords, ARefusalSaysTheKeyAndTheRange) {
  const Recorder::Numbers numbers{0x0au | uint64_t{2} << 8, 3, 0x1000, 0x1234 | uint64_t{8} << 32};
  EXPECT_THAT(words(Kind::kRefused, numbers), HasSubstr("(key 0x1234, address 0x1000, 8 bytes)"));
}

TEST(EventWords, RetransmissionsSayHowManyPacketsFromWhere) {
  EXPECT_EQ(words(Kind::kProbe, {0x10}), "tail-loss probe, PSN 0x000010");
  EXPECT_EQ(words(Kind::kLost, {0x10, 3}), "retransmits 3 packets from PSN 0x000010 (selective)");
  EXPECT_EQ(words(Kind::kGoesBack, {0x10, 0x11}), "retransmits 1 packet from PSN 0x000010 (go-back-N)");
}

TEST(EventWords, NumbersWithoutMeaningAreSaidAsNumbers) {
  EXPECT_EQ(words(Kind::kState, {77, 78, 79}), "state 77 -> state 78 cause 79");
}

TEST(EventWords, TroubleIsWhatAnErrorLeaves) {
  const auto is = [](Kind kind, const Recorder::Numbers& numbers) {
    return is_trouble({.time = {}, .qpn = 1, .kind = kind, .numbers = numbers});
  };
  EXPECT_TRUE(is(Kind::kTimeout, {}));
  EXPECT_TRUE(is(Kind::kState, {IBV_QPS_RTS, IBV_QPS_ERR, 1}));
  EXPECT_FALSE(is(Kind::kState, {IBV_QPS_RTS, IBV_QPS_ERR, 0}));
  EXPECT_TRUE(is(Kind::kNakSent, {0, roce::nak_syndrome(roce::NakCode::kRemoteAccess)}));
  EXPECT_FALSE(is(Kind::kNakSent, {0, roce::rnr_syndrome(1)})) << "no receive request is no error yet";
  EXPECT_FALSE(is(Kind::kPacketSent, {}));
}

}  // namespace
}  // namespace verbena::trace
