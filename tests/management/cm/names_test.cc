// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "management/cm/messages.h"
#include "management/cm/parameters.h"

namespace verbena::cm {
namespace {

template <class Enum>
void expect_distinct(const char* (*name)(Enum), size_t count) {
  std::set<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(names.insert(name(static_cast<Enum>(i))).second) << i;
  }
}

TEST(Names, AreOneForEach) {
  expect_distinct(message_name, kMessageTypes);
  expect_distinct(state_name, kStates);
  expect_distinct(drop_reason_name, kDropReasons);
}

TEST(Names, FitWhatTheyName) {
  EXPECT_STREQ(message_name(MessageType::kReq), "REQ");
  EXPECT_STREQ(message_name(MessageType::kApr), "APR");
  EXPECT_STREQ(state_name(State::kIdle), "IDLE");
  EXPECT_STREQ(state_name(State::kEstablished), "ESTABLISHED");
  EXPECT_STREQ(state_name(State::kSidrReqReceived), "SIDR_REQ_RCVD");
  EXPECT_STREQ(drop_reason_name(DropReason::kNotWhole), "not whole");
  EXPECT_STREQ(drop_reason_name(DropReason::kPeerToPeerLost), "peer to peer");
}

TEST(Names, OfReasonsAreKnownAsFarAsTheSpecificationGoes) {
  EXPECT_STREQ(reason_name(static_cast<uint16_t>(RejReason::kInvalidServiceId)), "invalid service ID");
  EXPECT_STREQ(reason_name(static_cast<uint16_t>(RejReason::kConsumer)), "consumer reject");
  EXPECT_STREQ(reason_name(static_cast<uint16_t>(RejReason::kVendorOptionNotSupported)),
               "vendor option not supported");
  for (const int unknown : {0, 34, 36, 0xffff}) {
    EXPECT_STREQ(reason_name(static_cast<uint16_t>(unknown)), "unknown reason");
  }
}

}  // namespace
}  // namespace verbena::cm
