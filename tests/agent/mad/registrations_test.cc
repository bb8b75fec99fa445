// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "agent/mad/agents.h"
#include "control/protocol/mad_messages.h"

namespace verbena::agent {
namespace {

constexpr uint32_t kDevice = 3;
constexpr uint8_t kPing = 0x32;  // a vendor class in range 2
constexpr uint32_t kOpenIb = 0x001405;

MadAgent agent(uint8_t management_class, uint64_t port = 1) {
  MadAgent one;
  one.port = port;
  one.device_index = kDevice;
  one.management_class = management_class;
  one.class_version = 1;
  one.queue_pair = mad::is_subnet_management(management_class) ? 0 : 1;
  one.oui = kOpenIb;
  return one;
}

MadAgent server(uint8_t management_class, uint64_t port = 1) {
  MadAgent one = agent(management_class, port);
  one.methods.set(mad::kMethodGet);
  return one;
}

mad::MadHeader get(uint8_t management_class) {
  mad::MadHeader header;
  header.management_class = management_class;
  header.method = mad::kMethodGet;
  if (mad::is_vendor_with_oui(management_class)) header.oui = kOpenIb;
  return header;
}

TEST(Registrations, GiveRequestsToWhoHasRegisteredForThem) {
  Registrations all;
  ASSERT_TRUE(all.add(server(kPing)).has_value());
  ASSERT_NE(all.for_request(kDevice, get(kPing)), nullptr);
  EXPECT_EQ(all.for_request(kDevice + 1, get(kPing)), nullptr);
  EXPECT_EQ(all.for_request(kDevice, get(kPing + 1)), nullptr);
  mad::MadHeader other = get(kPing);
  other.method = mad::kMethodSet;
  EXPECT_EQ(all.for_request(kDevice, other), nullptr);
  other = get(kPing);
  other.oui = 1;
  EXPECT_EQ(all.for_request(kDevice, other), nullptr);
  other = get(kPing);
  other.class_version = 2;
  EXPECT_EQ(all.for_request(kDevice, other), nullptr);
}

TEST(Registrations, GiveNoMethodTwice) {
  Registrations all;
  ASSERT_TRUE(all.add(server(kPing)).has_value());
  EXPECT_EQ(all.add(server(kPing, 2)).error().code, EINVAL);
  MadAgent other = server(kPing, 2);
  other.oui = 2;
  EXPECT_TRUE(all.add(other).has_value());
  other = server(kPing, 2);
  other.device_index = kDevice + 1;
  EXPECT_TRUE(all.add(other).has_value());
  EXPECT_TRUE(all.add(agent(kPing, 2)).has_value());  // an agent that only sends requests
}

TEST(Registrations, FindWhoHasAskedByTheUpperHalfOfTheTransaction) {
  Registrations all;
  const auto first = all.add(agent(0x04));
  const auto second = all.add(agent(0x04, 2));
  ASSERT_TRUE(first && second);
  const MadAgent* one = all.find(1, *first);
  const MadAgent* other = all.find(2, *second);
  EXPECT_NE(one->transaction, other->transaction);
  EXPECT_EQ(all.for_answer(uint64_t{one->transaction} << 32 | 5), one);
  EXPECT_EQ(all.for_answer(5), nullptr);
}

// The checks of the kernel's ib_register_mad_agent().
TEST(Registrations, RefuseWhatTheKernelRefuses) {
  Registrations all;
  const auto refused = [&](MadAgent one) {
    const auto added = all.add(one);
    return !added && added.error().code == EINVAL;
  };
  EXPECT_TRUE(refused(agent(0x50)));
  EXPECT_TRUE(refused(agent(0x82)));
  MadAgent one = agent(kPing);
  one.oui = 0;
  EXPECT_TRUE(refused(one));
  one = agent(0x04);
  one.rmpp_version = 1;  // performance management has no RMPP
  EXPECT_TRUE(refused(one));
  one = agent(0x81);
  one.queue_pair = 1;
  EXPECT_TRUE(refused(one));
  one = agent(0x04);
  one.class_version = 0x83;
  EXPECT_TRUE(refused(one));
}

TEST(Registrations, AreBoundedForEachPort) {
  Registrations all;
  for (uint32_t i = 0; i < protocol::kMaxMadAgents; ++i) EXPECT_EQ(all.add(agent(0x04)), i);
  EXPECT_EQ(all.add(agent(0x04)).error().code, ENOMEM);
  EXPECT_TRUE(all.remove(1, 7).has_value());
  EXPECT_EQ(all.add(agent(0x04)), 7U);
  all.remove_port(1);
  EXPECT_EQ(all.size(), 0U);
  EXPECT_EQ(all.remove(1, 7).error().code, ENOENT);
}

TEST(Registrations, KeepANumberThatWasGivenBefore) {
  Registrations all;
  EXPECT_EQ(all.add(agent(kPing), 4).value(), 4U);
  EXPECT_EQ(all.add(agent(kPing), 4).error().code, EEXIST);
  EXPECT_EQ(all.add(agent(kPing)).value(), 0U);
  EXPECT_EQ(all.add(agent(kPing), protocol::kMaxMadAgents).error().code, EINVAL);
}

TEST(Registrations, DrawTransactionsThatDoNotRevealTheNext) {
  Registrations some(100), others(101);
  for (uint32_t id = 0; id < 2; ++id) {
    some.add(agent(kPing));
    others.add(agent(kPing));
  }
  const uint32_t first = some.find(1, 0)->transaction;
  const uint32_t second = some.find(1, 1)->transaction;
  EXPECT_GT(std::max(first, second) - std::min(first, second), 1U << 16);
  EXPECT_NE(first, others.find(1, 0)->transaction);
  EXPECT_NE(second - first, others.find(1, 1)->transaction - others.find(1, 0)->transaction);
  EXPECT_EQ(some.remove_port(1), (std::vector<uint32_t>{first, second}));
}

TEST(Registrations, PutMessagesTogetherForThoseThatDoNotDoItThemselves) {
  MadAgent one = agent(kPing);
  EXPECT_FALSE(one.has_whole_messages());
  one.rmpp_version = 1;
  EXPECT_TRUE(one.has_whole_messages());
  one.user_rmpp = true;
  EXPECT_FALSE(one.has_whole_messages());
}

}  // namespace
}  // namespace verbena::agent
