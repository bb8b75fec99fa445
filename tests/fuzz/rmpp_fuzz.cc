// SPDX-License-Identifier: Apache-2.0
// Other hosts and programs that send arbitrary segments of messages, and arbitrary acknowledgements of ours.
// The memory for incomplete messages stays within its limits, from any number of senders. A complete message
// has a valid length, and a sender sends only existing segments.
#include <chrono>

#include "fuzz/choices.h"
#include "fuzz/require.h"
#include "management/mad/rmpp.h"

namespace verbena::mad {
namespace {

constexpr RmppReceiver::Limits kLimits{.message = 20'000,
                                       .bytes_of_one = 40'000,
                                       .bytes = 100'000,
                                       .messages_of_one = 4,
                                       .messages = 10,
                                       .remembered = 6};
constexpr uint8_t kClasses[] = {0x32, kClassSubnAdministration, kClassDeviceManagement, kClassBis};

roce::Address address(uint8_t last) {
  const uint8_t ipv4[4] = {10, 0, 0, last};
  return roce::Address::from_ipv4(ipv4);
}

// Returns a MAD that the other end expects, in most cases.
Mad any_mad(fuzz::Choices& choices, RmppType type, uint32_t segment, uint32_t length) {
  Mad mad;
  mad.set_u8(kBaseVersionAt, roce::kMadBaseVersion);
  mad.set_u8(kClassAt, kClasses[choices.below(std::size(kClasses))]);
  mad.set_u8(kMethodAt, choices.yes() ? kMethodSend : kMethodSend | kMethodResponse);
  mad.set(kTransactionAt, uint64_t{choices.below(4)});
  mad.set_u8(kRmppVersionAt, kRmppVersion);
  mad.set_u8(kRmppTypeAt, static_cast<uint8_t>(type));
  mad.set_u8(kRmppFlagsAt, static_cast<uint8_t>(kRmppActive | (segment == 1 ? kRmppFirst : 0) |
                                                (choices.below(32) == 0 ? kRmppLast : 0)));
  mad.set(kRmppSegmentAt, segment);
  mad.set(kRmppLengthAt, length);
  while (!choices.empty() && choices.below(8) == 0) {
    const size_t at = kRmppVersionAt + choices.below(kRmppDataAt - kRmppVersionAt);
    mad.set_u8(at, choices.byte());
  }
  return mad;
}

void check(const RmppReceiver& receiver) {
  VERBENA_REQUIRE(receiver.messages() <= kLimits.messages);
  VERBENA_REQUIRE(receiver.bytes() <= kLimits.bytes);
  VERBENA_REQUIRE((receiver.messages() == 0) == (receiver.bytes() == 0));
}

void receive(RmppReceiver& receiver, fuzz::Choices& choices, TimePoint now) {
  const uint8_t from = static_cast<uint8_t>(choices.below(4));
  const uint64_t owner = choices.below(2);
  const uint32_t first = choices.yes() ? 1 : choices.byte();
  const uint32_t count = 1 + choices.below(80);
  const Mad like = any_mad(choices, RmppType::kData, first, choices.byte());
  for (uint32_t i = 0; i < count; ++i) {
    Mad mad = like;
    mad.set(kRmppSegmentAt, first + i);
    if (i > 0) mad.set_u8(kRmppFlagsAt, mad.u8(kRmppFlagsAt) & static_cast<uint8_t>(~kRmppFirst));
    const auto outcome = receiver.on_data(owner, address(from), mad, now);
    VERBENA_REQUIRE(outcome.message.size() <= kLimits.message);
    VERBENA_REQUIRE(outcome.message.empty() || outcome.message.size() >= kRmppDataAt);
    VERBENA_REQUIRE(!outcome.reply || rmpp_type(*outcome.reply) != RmppType::kData);
    check(receiver);
  }
}

void send(RmppSender& sender, fuzz::Choices& choices, TimePoint now) {
  for (int i = 0; i < 100; ++i) {
    const auto segment = sender.next();
    if (!segment) break;
    const auto number = segment->get<uint32_t>(kRmppSegmentAt);
    VERBENA_REQUIRE(number >= 1 && number <= sender.segments());
  }
  const uint32_t segment = choices.number<uint16_t>() % (sender.segments() + 2);
  const auto type = static_cast<RmppType>(choices.below(16) != 0 ? 2 : choices.byte());
  const auto reply = sender.on_control(any_mad(choices, type, segment, segment + choices.below(100)), now);
  VERBENA_REQUIRE(!reply || sender.state() == RmppSender::State::kRefused);
}

void run(fuzz::Choices choices) {
  RmppReceiver receiver(kLimits);
  TimePoint now{std::chrono::hours(1)};
  std::vector<std::byte> message(kRmppDataAt + choices.number<uint16_t>());
  message[kClassAt] = std::byte{kClasses[choices.below(std::size(kClasses))]};
  RmppSender sender(std::move(message), std::chrono::milliseconds(choices.byte()), choices.below(3), now);
  while (!choices.empty()) {
    const uint32_t action = choices.below(8);
    if (action == 0) now += std::chrono::milliseconds(uint32_t{choices.byte()} * choices.byte());
    if (action == 1) receiver.forget_owner(choices.below(2));
    if (action == 2) {
      receiver.forget(rmpp_key(choices.below(2), address(static_cast<uint8_t>(choices.below(4))),
                               any_mad(choices, RmppType::kAbort, 0, 0)));
    }
    if (action > 4) receive(receiver, choices, now);
    if (action == 3 || action == 4) send(sender, choices, now);
    while (const auto due = receiver.take_due(now))
      VERBENA_REQUIRE(rmpp_type(due->reply) == RmppType::kAbort);
    VERBENA_REQUIRE(receiver.deadline() > now);
    if (sender.deadline() <= now) sender.on_deadline(now);
    check(receiver);
  }
}

}  // namespace
}  // namespace verbena::mad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  verbena::mad::run(verbena::fuzz::Choices(data, size));
  return 0;
}
