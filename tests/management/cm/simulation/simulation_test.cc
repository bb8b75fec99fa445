// SPDX-License-Identifier: Apache-2.0
#include <set>

#include <gtest/gtest.h>

#include "management/cm/simulation/host.h"

namespace verbena::cm {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;

struct Play {
  Play(uint64_t seed, const Weather& weather, const Habits& habits)
      : world(seed, weather),
        a(std::make_unique<Host>(1, world, habits, seed + 1)),
        b(std::make_unique<Host>(2, world, habits, seed + 2)) {}

  // Starts `connections` connections in both directions within one second.
  void begin(int connections) {
    for (int i = 0; i < connections; ++i) {
      world.after(milliseconds(world.random().below(1000)), [this, i] {
        const bool from_a = i % 3 != 0;
        Host& from = from_a ? *a : *b;
        Host& to = from_a ? *b : *a;
        if (i % 5 == 4) {
          from.resolve(to);
        } else {
          from.connect_to(to, 100 + static_cast<uint32_t>(i));
        }
      });
    }
  }

  World world;
  std::unique_ptr<Host> a;
  std::unique_ptr<Host> b;
};

// If one end considers its connection established, its peer does so too, under the same IDs.
void expect_both_or_neither(const Host& one, const Host& other) {
  for (const auto& [id, fate] : one.fates()) {
    if (!one.is_standing(id)) continue;
    const auto peer = other.fates().find(fate.remote_id);
    ASSERT_NE(peer, other.fates().end()) << "stands alone: " << id;
    EXPECT_EQ(peer->second.remote_id, id);
    EXPECT_TRUE(other.is_standing(fate.remote_id)) << "the peer of " << id << " has ended";
  }
}

// No connection is pending: each is established, or its owner got an event about its end.
void expect_all_decided(const Host& host) {
  for (const auto& [id, fate] : host.fates()) {
    EXPECT_TRUE(fate.established || fate.over) << "undecided: " << id;
  }
}

void expect_nothing_left(Play& play) {
  for (Host* host : {play.a.get(), play.b.get()}) {
    host->wind_up();
  }
  play.world.run(play.world.now() + hours(2));
  for (Host* host : {play.a.get(), play.b.get()}) {
    for (const auto& [id, fate] : host->fates()) EXPECT_TRUE(fate.over || fate.destroyed) << id;
    host->wind_up();  // connections whose end was reported only now
  }
  play.world.run(play.world.now() + hours(2));
  for (const Host* host : {play.a.get(), play.b.get()}) {
    EXPECT_EQ(host->manager.size(), 0u);
    EXPECT_EQ(host->manager.half_open(), 0u);
    EXPECT_EQ(host->manager.waiting(), 0u);
    EXPECT_EQ(host->manager.deadline(), kNever);
  }
}

class Simulation : public ::testing::TestWithParam<Weather> {};

constexpr Weather kFair{};
constexpr Weather kLossy{.loss = 200};
constexpr Weather kRepetitive{.duplication = 300};
constexpr Weather kLate{.lateness = 150};
constexpr Weather kFoul{.loss = 200, .duplication = 200, .lateness = 100};

TEST_P(Simulation, EndsWithBothSidesInAgreement) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Play play(seed, GetParam(), Habits{});
    play.begin(20);
    play.world.run(play.world.now() + hours(2));
    expect_all_decided(*play.a);
    expect_all_decided(*play.b);
    expect_both_or_neither(*play.a, *play.b);
    expect_both_or_neither(*play.b, *play.a);
    expect_nothing_left(play);
    if (HasFailure()) return;
  }
}

TEST_P(Simulation, ConnectsWheneverBothSidesWant) {
  Habits willing;
  willing.rejects = willing.loses_heart = willing.disconnects = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Play play(seed, GetParam(), willing);
    play.begin(20);
    play.world.run(play.world.now() + hours(2));
    int active = 0;
    for (const Host* host : {play.a.get(), play.b.get()}) {
      for (const auto& [id, fate] : host->fates()) active += fate.is_active && host->is_standing(id);
    }
    EXPECT_EQ(active, 16);  // the other four of the twenty are SIDR resolutions
    expect_both_or_neither(*play.a, *play.b);
    expect_both_or_neither(*play.b, *play.a);
    expect_nothing_left(play);
    if (HasFailure()) return;
  }
}

// Repeats the play and ends the application after step 0, 1, 2, ...
TEST_P(Simulation, SurvivesTheDeathOfAnApplicationAtEveryStep) {
  for (size_t step = 0; step < 150; ++step) {
    SCOPED_TRACE(step);
    Play play(1000 + step, GetParam(), Habits{});
    play.begin(4);
    play.world.run(play.world.now() + hours(2), step);
    play.b->kill_application();
    play.world.run(play.world.now() + hours(2));
    for (const auto& [id, fate] : play.b->fates()) {
      EXPECT_TRUE(fate.destroyed || fate.established || fate.over) << id;  // connections that came later
    }
    expect_all_decided(*play.a);
    expect_both_or_neither(*play.a, *play.b);
    expect_nothing_left(play);
    if (HasFailure()) return;
  }
}

// The host loses all state and restarts at once under the same address.
TEST_P(Simulation, SurvivesTheCrashOfAHostAtEveryStep) {
  for (size_t step = 0; step < 150; ++step) {
    SCOPED_TRACE(step);
    Play play(2000 + step, GetParam(), Habits{});
    play.begin(4);
    play.world.run(play.world.now() + hours(2), step);
    play.b.reset();
    play.b = std::make_unique<Host>(2, play.world, Habits{}, 5000 + step);
    play.world.run(play.world.now() + hours(2));
    expect_all_decided(*play.a);
    expect_nothing_left(play);
    if (HasFailure()) return;
  }
}

// A restarted agent knows only the established connections, which its clients report.
TEST_P(Simulation, KeepsEstablishedConnectionsWhenAnAgentRestartsAtEveryStep) {
  for (size_t step = 0; step < 150; ++step) {
    SCOPED_TRACE(step);
    Habits steady;
    steady.disconnects = 0;
    Play play(4000 + step, GetParam(), steady);
    play.begin(4);
    play.world.run(play.world.now() + hours(2), step);
    std::set<LocalId> stood;
    for (const auto& [id, fate] : play.b->fates()) {
      // Connections that the other side has ended, or does not know to be established yet, may end.
      if (play.b->is_standing(id) && play.a->is_standing(fate.remote_id)) stood.insert(id);
    }
    auto restarted = std::make_unique<Host>(2, play.world, steady, 6000 + step);
    restarted->take_up(*play.b);
    play.b = std::move(restarted);
    play.world.settle(2, play.b.get());
    play.world.run(play.world.now() + hours(2));
    for (const LocalId id : stood) EXPECT_TRUE(play.b->is_standing(id)) << id;
    expect_all_decided(*play.a);
    expect_nothing_left(play);
    if (HasFailure()) return;
  }
}

TEST_P(Simulation, SurvivesALinkThatIsCutAtEveryStep) {
  for (size_t step = 0; step < 150; ++step) {
    SCOPED_TRACE(step);
    Play play(3000 + step, GetParam(), Habits{});
    play.begin(4);
    play.world.run(play.world.now() + hours(2), step);
    play.world.set_weather({.loss = 1000});
    play.world.run(play.world.now() + hours(2));
    expect_all_decided(*play.a);
    expect_all_decided(*play.b);
    expect_nothing_left(play);
    if (HasFailure()) return;
  }
}

std::string weather_name(const ::testing::TestParamInfo<Weather>& weather) {
  static constexpr const char* kNames[] = {"Fair", "Lossy", "Repetitive", "Late", "Foul"};
  return kNames[weather.index];
}

INSTANTIATE_TEST_SUITE_P(In, Simulation, ::testing::Values(kFair, kLossy, kRepetitive, kLate, kFoul),
                         weather_name);

}  // namespace
}  // namespace verbena::cm
