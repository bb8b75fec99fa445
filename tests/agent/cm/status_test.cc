// SPDX-License-Identifier: Apache-2.0
// Connection management in `verbena status`: counters, and lists that are made in slices.
#include <cerrno>
#include <set>

#include <gtest/gtest.h>

#include "agent/cm/in_process.h"
#include "agent/cm/service.h"

namespace verbena::agent {
namespace {

constexpr uid_t kUser = 4242;
constexpr uid_t kOther = 4243;
constexpr uint16_t kPort = 7471;

class CmStatusTest : public CmInProcess {
 protected:
  // Returns the numbers of all identifiers in a listing that is made in slices of `most`.
  std::multiset<uint32_t> listed(std::optional<uid_t> user, size_t most = 7) {
    std::multiset<uint32_t> numbers;
    CmIdListing listing(service_, user);
    while (!listing.is_done()) {
      const auto records = listing.next(most);
      EXPECT_LE(records.size(), most);
      for (const auto& record : records) numbers.insert(record.number);
    }
    EXPECT_EQ(listing.listed(), numbers.size());
    return numbers;
  }
};

TEST_F(CmStatusTest, CountsFollowWhatProgramsDo) {
  Program one = program(kUser);
  Program other = program(kOther);
  one.create_many(10);
  const uint32_t listener = other.create();
  ASSERT_EQ(other.bind(listener, kPort), 0);
  ASSERT_EQ(other.listen(listener), 0);
  EXPECT_EQ(status_of(service_).identifiers, 11u);
  EXPECT_EQ(status_of(service_).listening, 1u);
  EXPECT_EQ(other.destroy(listener), 0);
  EXPECT_EQ(status_of(service_).identifiers, 10u);
  EXPECT_EQ(status_of(service_).listening, 0u);
  EXPECT_EQ(status_of(service_).resolving, 0u);
  one.end();
  EXPECT_EQ(status_of(service_).identifiers, 0u);
}

TEST_F(CmStatusTest, OneThatHasGoneWithManyListenersIsNotCounted) {
  Program server = program(kUser);
  constexpr uint32_t kMany = 2 * GoneClients::kAtOnce;
  for (uint16_t i = 0; i < kMany; ++i) {
    const uint32_t id = server.create();
    ASSERT_EQ(server.bind(id, static_cast<uint16_t>(kPort + i)), 0);
    ASSERT_EQ(server.listen(id), 0);
  }
  EXPECT_EQ(status_of(service_).listening, kMany);
  server.end();
  ASSERT_FALSE(service_.gone_clients().empty()) << "else nothing is tried";
  EXPECT_EQ(status_of(service_).listening, 0u);
  service_.gone_clients().clear_all();
  EXPECT_EQ(status_of(service_).identifiers, 0u);
  EXPECT_EQ(status_of(service_).listening, 0u) << "what was cleared away was not counted twice";
}

TEST_F(CmStatusTest, AListOfAUserHasItsOwnOnly) {
  Program one = program(kUser);
  Program second = program(kUser);
  Program other = program(kOther);
  one.create_many(20);
  second.create_many(3);
  other.create_many(30);
  EXPECT_EQ(listed(kUser).size(), 23u);
  EXPECT_EQ(listed(kOther).size(), 30u);
  EXPECT_EQ(listed(kOther + 1).size(), 0u);
  const auto all = listed(std::nullopt);
  EXPECT_EQ(all.size(), 53u);
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), 53u) << "each once";
}

TEST_F(CmStatusTest, WhatComesAndGoesMeanwhileHarmsNoList) {
  Program one = program(kUser);
  Program second = program(kUser);
  one.create_many(20);
  second.create_many(20);
  CmIdListing listing(service_, kUser);
  EXPECT_EQ(listing.next(10).size(), 10u);
  one.end();
  Program third = program(kUser);
  third.create_many(20);
  while (!listing.is_done()) listing.next(10);
  EXPECT_EQ(listing.listed(), 40u) << "no more than there were, and the memory was for";
  EXPECT_EQ(listing.there_are(), 40u);
}

}  // namespace
}  // namespace verbena::agent
