// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include <gtest/gtest.h>

#include "agent/cm/cleanup.h"
#include "base/time.h"

namespace verbena::agent {
namespace {

constexpr TimePoint kStart{std::chrono::hours(1)};
constexpr Duration kLittle = std::chrono::milliseconds(1);

// Addresses that are compared but never dereferenced.
const std::max_align_t kClients[2] = {};
const CmClient& client(int index) {
  return reinterpret_cast<const CmClient&>(kClients[index]);
}

TEST(EndedListeners, AreKnownForAMoment) {
  EndedListeners listeners;
  listeners.add(client(0), 7471, kStart);
  EXPECT_TRUE(listeners.has(7471, kStart + EndedListeners::kRemembered - kLittle));
  EXPECT_FALSE(listeners.has(7471, kStart + EndedListeners::kRemembered));
}

TEST(EndedListeners, AreOfOnePort) {
  EndedListeners listeners;
  listeners.add(client(0), 7471, kStart);
  EXPECT_FALSE(listeners.has(7472, kStart));
}

TEST(EndedListeners, AreForgottenWithTheirProgram) {
  EndedListeners listeners;
  listeners.add(client(0), 1, kStart);
  listeners.add(client(1), 2, kStart);
  listeners.forget(client(0));
  EXPECT_FALSE(listeners.has(1, kStart));
  EXPECT_TRUE(listeners.has(2, kStart));
}

TEST(EndedListeners, OfTooManyTheOldestIsForgotten) {
  EndedListeners listeners;
  for (uint16_t port = 0; port <= EndedListeners::kMax; ++port) {
    listeners.add(client(0), port, kStart);
  }
  EXPECT_FALSE(listeners.has(0, kStart));
  EXPECT_TRUE(listeners.has(1, kStart));
}

}  // namespace
}  // namespace verbena::agent
