// SPDX-License-Identifier: Apache-2.0
// How long the clients of a former agent are waited for, and requests that come before their listener.
#include <chrono>

#include <gtest/gtest.h>

#include "agent/cm/in_process.h"
#include "management/cm/parameters.h"

namespace verbena::agent {
namespace {

using std::chrono::seconds;
using CmReturns = CmInProcess;
using EarlyRequests = CmInProcess;

TEST_F(CmReturns, AreProlongedByOneThatComesBack) {
  const TimePoint now = MonotonicClock::now();
  service_.expect_returns(now + seconds(3));
  service_.expect_one_return(now + seconds(4));
  EXPECT_EQ(service_.returns_until(), now + seconds(4));
  service_.expect_one_return(now + seconds(1));
  EXPECT_EQ(service_.returns_until(), now + seconds(4));
}

// A user's processes may come back one by one, for as long as that user likes.
TEST_F(CmReturns, AreProlongedForAFewSecondsAtMost) {
  const TimePoint now = MonotonicClock::now();
  service_.expect_returns(now + seconds(3));
  for (int second = 1; second <= 1000; ++second) service_.expect_one_return(now + seconds(second));
  EXPECT_LE(service_.returns_until(), now + seconds(10));
}

TEST_F(CmReturns, AreNotExpectedWithoutAFormerAgent) {
  service_.expect_one_return(MonotonicClock::now() + seconds(1000));
  EXPECT_FALSE(service_.expects_returns());
}

// Anybody decides how many there are.
TEST_F(EarlyRequests, AreLookedAtInATurnOfTheListenersUser) {
  constexpr uid_t kServersUser = 1000;
  constexpr uint16_t kPort = 7471;
  constexpr uint8_t kAddress[] = {127, 0, 0, 1};
  cm::ConnectRequest request;
  request.path.source = request.path.destination = roce::Address::from_ipv4(kAddress);
  request.service_id = cm::service_id(cm::PortSpace::kTcp, kPort);
  request.parameters.qpn = 2;
  Program peer = program(kServersUser);
  CmIdentifier active;
  active.client = &peer.client();
  const auto connection =
      service_.manager().connect(request, reinterpret_cast<uint64_t>(&active), MonotonicClock::now());
  ASSERT_TRUE(connection);
  loop_.in_next_round([] {});
  loop_.run_round();
  Program server = program(kServersUser);
  const uint32_t listener = server.create();
  ASSERT_EQ(server.bind(listener, kPort), 0);
  ASSERT_FALSE(loop_.has_work_for(kServersUser));
  ASSERT_EQ(server.listen(listener), 0);
  EXPECT_TRUE(loop_.has_work_for(kServersUser));
  EXPECT_TRUE(service_.manager().forget(*connection));
}

}  // namespace
}  // namespace verbena::agent
