// SPDX-License-Identifier: Apache-2.0
// Who drives, played out: applications of each kind and their engine threads on a machine of a few
// processors, in virtual time. The bounds are what a user is to get.
#include <gtest/gtest.h>

#include "adapter/engine/support/driving_models.h"

namespace verbena::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// What part of so much time a thread ran.
double share(Duration used, Duration of) {
  return static_cast<double>(used.count()) / static_cast<double>(of.count());
}

struct TwoProcesses {
  explicit TwoProcesses(int processors) : machine(processors) {}

  Machine machine;
  ModelProcess requester{machine};
  ModelProcess target{machine};
};

TEST(Driving, ProgramsThatPollAnswerEachOtherWithoutTheirEngineThreads) {
  TwoProcesses two(2);
  PollingRequester client(two.machine, two.requester, two.target);
  PollingResponder server(two.machine, two.target, two.requester);
  two.machine.run_for(milliseconds(10));  // they take over
  client.latencies = {};
  const Duration before = two.requester.engine_used() + two.target.engine_used();
  two.machine.run_for(milliseconds(100));
  EXPECT_TRUE(two.requester.policy().application_drives());
  EXPECT_TRUE(two.target.policy().application_drives());
  EXPECT_LE(client.latencies.percentile(50), microseconds(15));
  EXPECT_LE(client.latencies.percentile(98), microseconds(40));
  EXPECT_LE(share(two.requester.engine_used() + two.target.engine_used() - before, milliseconds(100)), 0.02);
}

TEST(Driving, EngineThreadDrivesForAProgramThatWatchesItsMemory) {
  TwoProcesses two(3);
  PollingRequester client(two.machine, two.requester, two.target);
  MemoryWatchingResponder server(two.machine, two.target, two.requester);
  two.machine.run_for(milliseconds(100));
  EXPECT_TRUE(two.target.policy().engine_drives());
  EXPECT_LE(client.latencies.percentile(50), microseconds(30));
  EXPECT_LE(client.latencies.percentile(99), microseconds(30));
}

// Posting and polling once does not make it one that polls.
TEST(Driving, ProgramThatWatchesItsMemoryBesideOthersIsDrivenForToo) {
  TwoProcesses two(2);
  MemoryWatchingResponder client(two.machine, two.requester, two.target);
  MemoryWatchingResponder server(two.machine, two.target, two.requester);
  two.target.send_to(two.machine.now());
  two.machine.run_for(milliseconds(100));
  EXPECT_TRUE(two.requester.policy().engine_drives());
  EXPECT_TRUE(two.target.policy().engine_drives());
  EXPECT_GE(two.requester.received(), 100 * 1000u / 30) << "messages in 100 ms";
}

TEST(Driving, SleeperIsWokenForEachMessage) {
  TwoProcesses two(2);
  PollingRequester client(two.machine, two.requester, two.target);
  client.burst = 1;
  client.pause = milliseconds(1);
  SleepingResponder server(two.machine, two.target, two.requester);
  two.machine.run_for(milliseconds(100));
  EXPECT_TRUE(two.target.policy().engine_drives());
  EXPECT_LE(client.latencies.percentile(99), microseconds(50));
  EXPECT_LE(share(two.target.engine_used() + server.used(), milliseconds(100)), 0.05);
}

TEST(Driving, IdleProcessesUseNoProcessor) {
  TwoProcesses two(2);
  two.machine.run_for(milliseconds(1));
  const uint64_t visits = two.target.engine_visits();
  two.machine.run_for(milliseconds(200));
  EXPECT_EQ(two.target.engine_visits(), visits);
}

// The engine threads do not add to what is too much already: two that answer each other beside one that
// computes get as many turns as they would without engine threads.
TEST(Driving, ThreeSpinnersOnTwoProcessorsAreLeftAlone) {
  TwoProcesses two(2);
  Spinner other(two.machine);
  PollingRequester client(two.machine, two.requester, two.target);
  PollingResponder server(two.machine, two.target, two.requester);
  two.machine.run_for(milliseconds(300));
  EXPECT_LE(share(two.requester.engine_used() + two.target.engine_used(), milliseconds(300)), 0.03);
  EXPECT_GE(share(other.used(), milliseconds(300)), 0.3);
  EXPECT_GE(client.latencies.count(), 3000u);
}

// The way there and back takes 11 us here when both poll; woken for each the target would take 12 more.
TEST(Driving, TargetThatCallsNoVerbAnswersAtOnceWhereAProcessorIsFree) {
  TwoProcesses two(2);
  two.target.answers_to(two.requester);
  PollingRequester client(two.machine, two.requester, two.target);
  two.machine.run_for(milliseconds(100));
  EXPECT_TRUE(two.target.policy().engine_drives());
  EXPECT_LE(client.latencies.percentile(50), microseconds(13));
  EXPECT_LE(client.latencies.percentile(90), microseconds(16));
}

TEST(Driving, TargetOfBurstsAsksDuringThemOnly) {
  TwoProcesses two(2);
  two.target.answers_to(two.requester);
  PollingRequester client(two.machine, two.requester, two.target);
  client.burst = 50;
  client.pause = milliseconds(10);
  two.machine.run_for(milliseconds(200));
  EXPECT_GE(client.latencies.count(), 500u);
  EXPECT_LE(client.latencies.percentile(50), microseconds(16))
      << "except for the time until the client takes over";
  const Duration bursts = client.latencies.count() * client.latencies.percentile(50);
  EXPECT_LE(share(two.target.engine_used(), milliseconds(200)), share(bursts, milliseconds(200)) + 0.02);
}

// Requests so far apart that nothing is to be gained.
TEST(Driving, TargetOfRareRequestsSleepsBetweenThem) {
  TwoProcesses two(2);
  two.target.answers_to(two.requester);
  PollingRequester client(two.machine, two.requester, two.target);
  client.burst = 1;
  client.pause = microseconds(500);
  two.machine.run_for(milliseconds(200));
  EXPECT_GE(client.latencies.count(), 300u);
  EXPECT_LE(share(two.target.engine_used(), milliseconds(200)), 0.05);
}

// Its engine thread is woken for each request as ever, and takes nothing from those who compute.
TEST(Driving, TargetThatCallsNoVerbAsksNobodyWhereAllProcessorsAreWanted) {
  TwoProcesses two(2);
  Spinner first(two.machine);
  Spinner second(two.machine);
  two.target.answers_to(two.requester);
  PollingRequester client(two.machine, two.requester, two.target);
  client.burst = 10;
  client.pause = microseconds(300);
  two.machine.run_for(milliseconds(300));
  EXPECT_GE(client.latencies.count(), 150u);
  EXPECT_LE(share(two.target.engine_used(), milliseconds(300)),
            share(client.latencies.count() * microseconds(6), milliseconds(300)) + 0.01)
      << "for each request the waking, the work, and no more";
}

// A source without a descriptor is asked at intervals, short after a packet and long after none.
TEST(Driving, SourceWithoutADescriptorIsAsked) {
  DrivingPolicy policy;
  policy.set_engine(true);
  policy.set_must_be_asked(true);
  TimePoint now{std::chrono::hours(1)};
  const auto visit = [&](uint32_t received) {
    EXPECT_FALSE(policy.comes(now));
    policy.served(now, received);
    return policy.rests(now, {}).comes_at - now;
  };
  for (const int interval : {50, 100, 200, 400, 800, 1000, 1000}) {
    EXPECT_EQ(visit(0), microseconds(interval));
    now += microseconds(interval);
  }
  EXPECT_EQ(visit(1), microseconds(50));
}

}  // namespace
}  // namespace verbena::engine
