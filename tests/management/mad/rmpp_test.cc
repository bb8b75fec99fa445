// SPDX-License-Identifier: Apache-2.0
#include "management/mad/rmpp.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace verbena::mad {
namespace {

using namespace std::chrono_literals;

using Message = std::vector<std::byte>;
using State = RmppSender::State;

constexpr TimePoint kStart{1000s};
constexpr uint8_t kVendorClass = 0x32;
constexpr uint64_t kOwner = 7;

roce::Address address(uint8_t last) {
  const uint8_t bytes[4] = {10, 0, 0, last};
  return roce::Address::from_ipv4(bytes);
}

Message message_of(size_t bytes, uint8_t management_class = kVendorClass, uint64_t transaction = 5) {
  Message message(bytes);
  for (size_t i = 0; i < bytes; ++i) message[i] = static_cast<std::byte>(i * 7 + i / 251);
  message[kBaseVersionAt] = std::byte{roce::kMadBaseVersion};
  message[kClassAt] = static_cast<std::byte>(management_class);
  message[kMethodAt] = std::byte{kMethodSend};
  store_be(&message[kTransactionAt], transaction);
  return message;
}

// The message without the RMPP header, which differs between segments.
Message without_rmpp(const Message& message) {
  Message rest = message;
  std::fill(rest.begin() + kRmppVersionAt, rest.begin() + kRmppDataAt, std::byte{});
  return rest;
}

// A wire between a sender and a receiver, with a clock of its own. Datagrams of both directions may be lost,
// duplicated, or delayed.
class Wire {
 public:
  struct Badness {
    uint32_t lost = 0, doubled = 0, late = 0;  // percent
  };
  Wire(Message message, Badness badness, uint32_t retries, uint64_t seed = 1)
      : sender(std::move(message), 100ms, retries, kStart), badness_(badness), random_(seed) {}

  // Runs until the sender has ended.
  void run() {
    while (sender.state() == State::kGoing) {
      while (const auto segment = sender.next()) put(there_, *segment);
      if (there_.empty() && back_.empty()) {
        now = sender.deadline();
        sender.on_deadline(now);
        continue;
      }
      now += 10us;
      if (const auto segment = take(there_)) {
        auto outcome = receiver.on_data(kOwner, address(1), *segment, now);
        if (outcome.reply) put(back_, *outcome.reply);
        if (!outcome.message.empty()) received.push_back(std::move(outcome.message));
      }
      if (const auto control = take(back_)) sender.on_control(*control, now);
    }
  }

  RmppSender sender;
  RmppReceiver receiver;
  std::vector<Message> received;
  TimePoint now = kStart;

 private:
  void put(std::deque<Mad>& queue, const Mad& mad) {
    if (random_.below(100) < badness_.lost) return;
    const bool is_late = random_.below(100) < badness_.late && !queue.empty();
    const auto place = is_late ? static_cast<ptrdiff_t>(random_.below(queue.size())) : 0;
    queue.insert(queue.end() - place, mad);
    if (random_.below(100) < badness_.doubled) queue.push_back(mad);
  }
  static std::optional<Mad> take(std::deque<Mad>& queue) {
    if (queue.empty()) return std::nullopt;
    const Mad mad = queue.front();
    queue.pop_front();
    return mad;
  }

  const Badness badness_;
  Random random_;
  std::deque<Mad> there_, back_;
};

TEST(Rmpp, CarriesMessagesOfAnyLength) {
  for (const uint8_t each : {kVendorClass, kClassSubnAdministration, kClassDeviceManagement}) {
    const size_t data = kMadBytes - rmpp_data_offset(each);
    for (const size_t bytes :
         {rmpp_data_offset(each), rmpp_data_offset(each) + 1, kMadBytes - 1, kMadBytes, kMadBytes + 1,
          kMadBytes + data, kMadBytes + data + 1, size_t{10'000}, size_t{1} << 20, kMaxRmppBytes}) {
      const Message message = message_of(bytes, each);
      Wire wire(message, {}, 0);
      wire.run();
      EXPECT_EQ(wire.sender.state(), State::kDone) << bytes;
      ASSERT_EQ(wire.received.size(), 1U) << bytes;
      EXPECT_EQ(without_rmpp(wire.received[0]), without_rmpp(message)) << bytes;
      EXPECT_EQ(wire.receiver.bytes(), 0U);
    }
  }
}

TEST(Rmpp, CarriesAMessageOnceOverABadWire) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Message message = message_of(50'000);
    Wire wire(message, {.lost = 5, .doubled = 10, .late = 20}, 50, seed);
    wire.run();
    EXPECT_EQ(wire.sender.state(), State::kDone) << seed;
    ASSERT_EQ(wire.received.size(), 1U) << seed;
    EXPECT_EQ(without_rmpp(wire.received[0]), without_rmpp(message)) << seed;
  }
}

TEST(Rmpp, RepairsASingleLossWithoutWaitingForItsTime) {
  int waits = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Wire wire(message_of(50'000), {.lost = 1}, 50, seed);
    wire.run();
    ASSERT_EQ(wire.received.size(), 1U) << seed;
    waits += static_cast<int>((wire.now - kStart) / 100ms);
  }
  // No segment follows the last one, so its loss shows only by the timeout.
  EXPECT_LE(waits, 5);
}

TEST(Rmpp, GivesUpAfterTheRetriesAndTheirTime) {
  Wire wire(message_of(1000), {.lost = 100}, 3);
  wire.run();
  EXPECT_EQ(wire.sender.state(), State::kGivenUp);
  EXPECT_EQ(wire.now - kStart, 400ms);
}

TEST(RmppSender, SaysInItsFirstSegmentHowLongTheWholeIs) {
  RmppSender sender(message_of(40 + 216 + 100), 0s, 0, kStart);
  const auto first = sender.next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->u8(kRmppFlagsAt), kRmppActive | kRmppFirst);
  EXPECT_EQ(first->get<uint32_t>(kRmppSegmentAt), 1U);
  EXPECT_EQ(first->get<uint32_t>(kRmppLengthAt), 4U + 216 + 4 + 100);
  EXPECT_FALSE(sender.next().has_value());  // the window is one segment
  sender.on_control(rmpp_ack(*first, 1, 65), kStart);
  const auto last = sender.next();
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->u8(kRmppFlagsAt), kRmppActive | kRmppLast);
  EXPECT_EQ(last->get<uint32_t>(kRmppLengthAt), 4U + 100);
  EXPECT_EQ(sender.state(), State::kGoing);
  sender.on_control(rmpp_ack(*last, 2, 65), kStart);
  EXPECT_EQ(sender.state(), State::kDone);
}

TEST(RmppSender, WaitsNoLongerThanTwoSecondsForAnAcknowledgement) {
  EXPECT_EQ(RmppSender(message_of(1000), 0s, 0, kStart).deadline(), kStart + 2s);
  EXPECT_EQ(RmppSender(message_of(1000), 10s, 0, kStart).deadline(), kStart + 2s);
  EXPECT_EQ(RmppSender(message_of(1000), 1s, 0, kStart).deadline(), kStart + 1s);
}

TEST(RmppSender, RefusesWhatCannotBe) {
  const Mad first = *RmppSender(message_of(1000), 0s, 0, kStart).next();
  Mad wrong_type = rmpp_ack(first, 1, 65);
  wrong_type.set_u8(kRmppTypeAt, 9);
  Mad wrong_version = rmpp_ack(first, 1, 65);
  wrong_version.set_u8(kRmppVersionAt, 2);
  Mad with_status = rmpp_ack(first, 1, 65);
  with_status.set_u8(kRmppStatusAt, 1);
  const std::pair<Mad, RmppStatus> cases[] = {
      {rmpp_ack(first, 1, 0), RmppStatus::kWindowTooSmall},
      {rmpp_ack(first, 2, 65), RmppStatus::kSegmentTooBig},
      {wrong_type, RmppStatus::kBadType},
      {wrong_version, RmppStatus::kBadVersion},
      {with_status, RmppStatus::kIllegalStatus},
      {rmpp_refusal(first, RmppType::kStop, RmppStatus::kTooLong), RmppStatus::kIllegalStatus},
      {rmpp_refusal(first, RmppType::kAbort, RmppStatus::kNormal), RmppStatus::kIllegalStatus},
  };
  for (const auto& [control, status] : cases) {
    RmppSender sender(message_of(1000), 0s, 0, kStart);
    sender.next();
    const auto reply = sender.on_control(control, kStart);
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(rmpp_type(*reply), RmppType::kAbort);
    EXPECT_EQ(reply->u8(kRmppStatusAt), static_cast<uint8_t>(status));
    EXPECT_EQ(sender.state(), State::kRefused);
  }
}

TEST(RmppSender, IsStoppedAndAborted) {
  const Mad first = *RmppSender(message_of(1000), 0s, 0, kStart).next();
  for (const Mad& control : {rmpp_refusal(first, RmppType::kStop, RmppStatus::kNoResources),
                             rmpp_refusal(first, RmppType::kAbort, RmppStatus::kTooLong)}) {
    RmppSender sender(message_of(1000), 0s, 0, kStart);
    EXPECT_FALSE(sender.on_control(control, kStart).has_value());
    EXPECT_EQ(sender.state(), State::kRefused);
    EXPECT_EQ(sender.deadline(), kNever);
  }
}

// Sends all segments up to number `window`, after acknowledging the first one. Returns the first segment.
Mad send_all_up_to(uint32_t window, RmppSender& sender) {
  const Mad first = *sender.next();
  sender.on_control(rmpp_ack(first, 1, window), kStart);
  while (sender.next()) continue;
  return first;
}

TEST(RmppSender, BeginsAgainOnceWhereASegmentLacks) {
  RmppSender sender(message_of(10'000), 0s, 0, kStart);
  const Mad first = send_all_up_to(30, sender);
  sender.on_control(rmpp_ack(first, 8, 30), kStart);
  EXPECT_EQ(sender.next()->get<uint32_t>(kRmppSegmentAt), 9U);
  while (sender.next()) continue;
  sender.on_control(rmpp_ack(first, 8, 30),
                    kStart);  // acknowledges a segment that had already been acknowledged
  EXPECT_FALSE(sender.next().has_value());
}

TEST(RmppSender, PassesOverOldAcknowledgements) {
  RmppSender sender(message_of(10'000), 0s, 0, kStart);
  const Mad first = send_all_up_to(10, sender);
  sender.on_control(rmpp_ack(first, 8, 20), kStart);
  sender.on_control(rmpp_ack(first, 1, 10), kStart + 1s);
  EXPECT_EQ(sender.state(), State::kGoing);
  EXPECT_EQ(sender.deadline(), kStart + 2s);
  EXPECT_EQ(sender.next()->get<uint32_t>(kRmppSegmentAt), 11U);
}

// ---- receiving side

Mad segment(uint32_t number, uint64_t transaction = 5, uint8_t flags = 0) {
  Mad mad;
  std::ranges::copy(message_of(kMadBytes, kVendorClass, transaction), mad.bytes.begin());
  mad.set_u8(kRmppVersionAt, kRmppVersion);
  mad.set_u8(kRmppTypeAt, static_cast<uint8_t>(RmppType::kData));
  mad.set_u8(kRmppFlagsAt, static_cast<uint8_t>(kRmppActive | flags | (number == 1 ? kRmppFirst : 0)));
  mad.set_u8(kRmppStatusAt, 0);
  mad.set(kRmppSegmentAt, number);
  mad.set(kRmppLengthAt, uint32_t{0});
  return mad;
}

RmppStatus refused(RmppReceiver& receiver, const Mad& mad, TimePoint now = kStart, uint8_t from = 1) {
  const auto outcome = receiver.on_data(kOwner, address(from), mad, now);
  const bool is_refusal = outcome.reply && (rmpp_type(*outcome.reply) == RmppType::kAbort ||
                                            rmpp_type(*outcome.reply) == RmppType::kStop);
  return is_refusal ? static_cast<RmppStatus>(outcome.reply->u8(kRmppStatusAt)) : RmppStatus::kNormal;
}

TEST(RmppReceiver, AcknowledgesWithTheOtherMethodAndAWindow) {
  RmppReceiver receiver;
  const auto outcome = receiver.on_data(kOwner, address(1), segment(1), kStart);
  ASSERT_TRUE(outcome.reply.has_value());
  EXPECT_EQ(rmpp_type(*outcome.reply), RmppType::kAck);
  EXPECT_EQ(outcome.reply->u8(kMethodAt), kMethodSend | kMethodResponse);
  EXPECT_EQ(outcome.reply->get<uint64_t>(kTransactionAt), 5U);
  EXPECT_EQ(outcome.reply->get<uint32_t>(kRmppSegmentAt), 1U);
  EXPECT_EQ(outcome.reply->get<uint32_t>(kRmppLengthAt), 1 + RmppReceiver::kWindow);
}

TEST(RmppReceiver, TellsOfAGapOnce) {
  RmppReceiver receiver;
  receiver.on_data(kOwner, address(1), segment(1), kStart);
  EXPECT_FALSE(receiver.on_data(kOwner, address(1), segment(2), kStart).reply.has_value());
  const auto told = receiver.on_data(kOwner, address(1), segment(4), kStart);
  ASSERT_TRUE(told.reply.has_value());
  EXPECT_EQ(told.reply->get<uint32_t>(kRmppSegmentAt), 2U);
  EXPECT_EQ(told.reply->get<uint32_t>(kRmppLengthAt), 1 + RmppReceiver::kWindow);
  EXPECT_FALSE(receiver.on_data(kOwner, address(1), segment(5), kStart).reply.has_value());
}

TEST(RmppReceiver, RefusesWhatCannotBe) {
  RmppReceiver receiver;
  Mad other_version = segment(1);
  other_version.set_u8(kRmppVersionAt, 2);
  Mad with_status = segment(1);
  with_status.set_u8(kRmppStatusAt, 3);
  Mad first_without_flag = segment(1);
  first_without_flag.set_u8(kRmppFlagsAt, kRmppActive);
  EXPECT_EQ(refused(receiver, other_version), RmppStatus::kBadVersion);
  EXPECT_EQ(refused(receiver, with_status), RmppStatus::kIllegalStatus);
  EXPECT_EQ(refused(receiver, first_without_flag), RmppStatus::kBadSegment);
  EXPECT_EQ(refused(receiver, segment(2, 5, kRmppFirst)), RmppStatus::kBadSegment);
  EXPECT_EQ(receiver.messages(), 0U);
}

TEST(RmppReceiver, TakesNothingOfAMessageWhoseBeginningItHasNotSeen) {
  RmppReceiver receiver;
  EXPECT_FALSE(receiver.on_data(kOwner, address(1), segment(2), kStart).reply.has_value());
  EXPECT_EQ(receiver.messages(), 0U);
  EXPECT_EQ(receiver.bytes(), 0U);
}

TEST(RmppReceiver, TakesNothingBeyondTheWindow) {
  RmppReceiver receiver;
  receiver.on_data(kOwner, address(1), segment(1), kStart);
  const size_t before = receiver.bytes();
  receiver.on_data(kOwner, address(1), segment(2 + RmppReceiver::kWindow), kStart);
  receiver.on_data(kOwner, address(1), segment(0xffffffff), kStart);
  EXPECT_EQ(receiver.bytes(), before);
}

TEST(RmppReceiver, KeepsSendersApart) {
  RmppReceiver receiver;
  receiver.on_data(kOwner, address(1), segment(1), kStart);
  EXPECT_FALSE(receiver.on_data(kOwner, address(2), segment(2), kStart).reply.has_value());
  EXPECT_FALSE(receiver.on_data(kOwner + 1, address(1), segment(2), kStart).reply.has_value());
  const auto whole = receiver.on_data(kOwner, address(1), segment(2, 5, kRmppLast), kStart);
  EXPECT_FALSE(whole.message.empty());
}

TEST(RmppReceiver, AcknowledgesAWholeMessageAgainForAWhile) {
  RmppReceiver receiver;
  EXPECT_FALSE(receiver.on_data(kOwner, address(1), segment(1, 5, kRmppLast), kStart).message.empty());
  const auto again = receiver.on_data(kOwner, address(1), segment(1, 5, kRmppLast), kStart + 1s);
  EXPECT_TRUE(again.message.empty());
  EXPECT_EQ(rmpp_type(*again.reply), RmppType::kAck);
  receiver.take_due(kStart + RmppReceiver::kRemembered);
  EXPECT_FALSE(receiver.on_data(kOwner, address(1), segment(1, 5, kRmppLast), kStart + 20s).message.empty());
}

TEST(RmppReceiver, AbortsWhatTakesTooLong) {
  RmppReceiver receiver;
  receiver.on_data(kOwner, address(1), segment(1), kStart);
  receiver.on_data(kOwner, address(1), segment(2), kStart + 39s);
  EXPECT_EQ(receiver.deadline(), kStart + RmppReceiver::kLongest);
  EXPECT_FALSE(receiver.take_due(kStart + 39s).has_value());
  const auto due = receiver.take_due(kStart + 40s);
  ASSERT_TRUE(due.has_value());
  EXPECT_EQ(due->key.other, address(1));
  EXPECT_EQ(due->reply.u8(kRmppStatusAt), static_cast<uint8_t>(RmppStatus::kTooLong));
  EXPECT_EQ(receiver.bytes(), 0U);
  EXPECT_EQ(receiver.deadline(), kNever);
}

TEST(RmppReceiver, StopsAMessageThatIsTooLong) {
  RmppReceiver receiver({.message = 1000});
  receiver.on_data(kOwner, address(1), segment(1), kStart);
  RmppStatus status{};
  for (uint32_t number = 2; number < 10 && status == RmppStatus::kNormal; ++number) {
    status = refused(receiver, segment(number));
  }
  EXPECT_EQ(status, RmppStatus::kNoResources);
  EXPECT_EQ(receiver.bytes(), 0U);
}

// A sender that begins messages and never ends them fills only its own share.
TEST(RmppReceiver, GivesOneSenderNoMoreThanItsShare) {
  RmppReceiver receiver({.messages_of_one = 10, .messages = 40});
  for (uint64_t i = 0; i < 100; ++i) {
    const RmppStatus status = refused(receiver, segment(1, i));
    EXPECT_EQ(status, i < 10 ? RmppStatus::kNormal : RmppStatus::kNoResources) << i;
  }
  EXPECT_EQ(receiver.messages(), 10U);
  EXPECT_EQ(refused(receiver, segment(1), kStart, 2), RmppStatus::kNormal);
}

TEST(RmppReceiver, CountsTheBytesOfOneSender) {
  RmppReceiver receiver({.bytes_of_one = 100'000});
  for (uint64_t i = 0; i < 64; ++i) {
    receiver.on_data(kOwner, address(1), segment(1, i), kStart);
    for (uint32_t number = 2 + RmppReceiver::kWindow; number > 2; --number) {
      receiver.on_data(kOwner, address(1), segment(number - 1, i), kStart);
    }
  }
  EXPECT_LE(receiver.bytes(), 100'000U);
  EXPECT_GT(receiver.bytes(), 50'000U);
}

TEST(RmppReceiver, GivesUpWhatHasStalledForWhatIsNew) {
  RmppReceiver receiver({.messages = 3});
  for (uint8_t from = 1; from <= 3; ++from) refused(receiver, segment(1), kStart, from);
  EXPECT_EQ(refused(receiver, segment(1), kStart + 1s, 4), RmppStatus::kNoResources);
  receiver.on_data(kOwner, address(1), segment(2), kStart + 4s);
  EXPECT_EQ(refused(receiver, segment(1), kStart + 6s, 4), RmppStatus::kNormal);
  EXPECT_EQ(receiver.messages(), 3U);
  EXPECT_TRUE(receiver.knows(rmpp_key(kOwner, address(1), segment(1))));
  EXPECT_FALSE(receiver.knows(rmpp_key(kOwner, address(2), segment(1))));
}

TEST(RmppReceiver, ForgetsWithTheOwner) {
  RmppReceiver receiver;
  receiver.on_data(kOwner, address(1), segment(1), kStart);
  receiver.on_data(kOwner + 1, address(1), segment(1), kStart);
  receiver.forget_owner(kOwner);
  EXPECT_EQ(receiver.messages(), 1U);
  receiver.forget(rmpp_key(kOwner + 1, address(1), segment(1)));
  EXPECT_EQ(receiver.messages(), 0U);
  EXPECT_EQ(receiver.bytes(), 0U);
}

}  // namespace
}  // namespace verbena::mad
