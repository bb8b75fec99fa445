// SPDX-License-Identifier: Apache-2.0
// Captures through the agent: capture programs and the processes that they capture.
#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"
#include "agent/sessions/other_users.h"
#include "control/client/client.h"
#include "control/client/command_client.h"
#include "observe/capture/ring_file.h"

namespace verbena {
namespace {

using control::CaptureClient;
using control::CaptureNews;
using control::Client;
using control::SlotCapture;
using protocol::CaptureNewsReply;
using test::AgentProcess;
using test::as_user;
using test::eventually;

const control::ConnectOptions kOnlyRunning{.start_agent = false, .agent_program = {}};
constexpr uint32_t kSnap = 96;

// A process with a slot, as an engine has one.
struct Member {
  Member() {
    auto connected = Client::connect(kOnlyRunning);
    EXPECT_TRUE(connected);
    if (!connected) return;
    client = std::move(*connected);
    slot = take_slot();
  }
  uint32_t take_slot() {
    const auto leased = client->take_slot();
    EXPECT_TRUE(leased);
    return leased ? leased->index : 0;
  }
  // Waits for the next event about a capture.
  SlotCapture hear() {
    const bool heard = eventually([&] {
      client->next_links();
      for (SlotCapture& each : client->next_captures()) waiting.push_back(std::move(each));
      return !waiting.empty();
    });
    EXPECT_TRUE(heard) << "no news";
    if (!heard) return {};
    SlotCapture first = std::move(waiting.front());
    waiting.erase(waiting.begin());
    return first;
  }
  bool hears_nothing() {
    // The reply comes after all earlier events.
    EXPECT_TRUE(client->links());
    client->next_links();
    for (SlotCapture& each : client->next_captures()) waiting.push_back(std::move(each));
    return waiting.empty();
  }

  std::unique_ptr<Client> client;
  uint32_t slot = 0;
  std::vector<SlotCapture> waiting;
};

std::unique_ptr<CaptureClient> connect() {
  auto connected = CaptureClient::connect(kOnlyRunning);
  EXPECT_TRUE(connected);
  return connected ? std::move(*connected) : nullptr;
}

std::unique_ptr<CaptureClient> start() {
  auto capturer = connect();
  EXPECT_TRUE(capturer->start(kSnap));
  return capturer;
}

CaptureNews next(CaptureClient& capturer) {
  auto news = capturer.next();
  EXPECT_TRUE(news);
  return news ? std::move(*news) : CaptureNews();
}

// Expects that both map the same memory.
void expect_same_ring(const UniqueFd& a, const UniqueFd& b) {
  const auto one = capture::RingMapping::map(a.get());
  const auto other = capture::RingMapping::map(b.get());
  ASSERT_TRUE(one);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->memory().snap_bytes, kSnap);
  one->memory().written = 4711;
  EXPECT_EQ(other->memory().written, 4711u);
}

class Captures : public test::NamespaceTest {};

TEST_F(Captures, ASlotThatIsLentAlreadyIsCaptured) {
  AgentProcess agent;
  Member a;
  const auto capturer = start();
  const CaptureNews news = next(*capturer);
  EXPECT_EQ(news.kind, CaptureNewsReply::kBegun);
  EXPECT_EQ(news.slot, a.slot);
  EXPECT_EQ(news.pid, ::getpid());
  EXPECT_EQ(news.uid, ::geteuid());
  EXPECT_FALSE(news.program.empty());
  EXPECT_TRUE(news.status_page);
  const SlotCapture told = a.hear();
  EXPECT_EQ(told.slot, a.slot);
  expect_same_ring(news.ring, told.ring);
  EXPECT_EQ(next(*capturer).kind, CaptureNewsReply::kNothing);
}

TEST_F(Captures, ASlotThatIsLentLaterIsCapturedFromTheStart) {
  AgentProcess agent;
  const auto capturer = start();
  EXPECT_EQ(next(*capturer).kind, CaptureNewsReply::kNothing);
  Member a;
  const CaptureNews news = next(*capturer);
  EXPECT_EQ(news.kind, CaptureNewsReply::kBegun);
  expect_same_ring(news.ring, a.hear().ring);
  const uint32_t second = a.take_slot();
  EXPECT_EQ(a.hear().slot, second);
  EXPECT_EQ(next(*capturer).slot, second);
}

// A process gets its capture ring before it gets a channel to any other process.
TEST_F(Captures, AProcessHearsOfItsRingBeforeItHearsOfAChannel) {
  AgentProcess agent;
  const auto capturer = start();
  Member a;
  Member b;
  ASSERT_TRUE(a.client->ask_for_channel(a.slot, b.slot));
  std::vector<control::SlotChannel> channels;
  std::vector<SlotCapture> captures;
  ASSERT_TRUE(eventually([&] {
    a.client->next_links();
    channels = a.client->next_channels();
    for (SlotCapture& each : a.client->next_captures()) captures.push_back(std::move(each));
    return !channels.empty();
  }));
  EXPECT_EQ(captures.size(), 1u);
}

TEST_F(Captures, TheEndOfAProcessIsNews) {
  AgentProcess agent;
  const auto capturer = start();
  auto a = std::make_unique<Member>();
  const uint32_t slot = a->slot;
  EXPECT_EQ(next(*capturer).kind, CaptureNewsReply::kBegun);
  a.reset();
  CaptureNews news;
  EXPECT_TRUE(eventually([&] {
    news = next(*capturer);
    return news.kind != CaptureNewsReply::kNothing;
  }));
  EXPECT_EQ(news.kind, CaptureNewsReply::kEnded);
  EXPECT_EQ(news.slot, slot);
}

TEST_F(Captures, AReturnedSlotIsNews) {
  AgentProcess agent;
  const auto capturer = start();
  Member a;
  const uint32_t first = a.take_slot();
  next(*capturer);
  next(*capturer);
  ASSERT_TRUE(a.client->return_slot(first));
  const CaptureNews news = next(*capturer);
  EXPECT_EQ(news.kind, CaptureNewsReply::kEnded);
  EXPECT_EQ(news.slot, first);
}

TEST_F(Captures, ProcessesAreToldThatNobodyCapturesAnyMore) {
  AgentProcess agent;
  Member a;
  auto capturer = start();
  EXPECT_TRUE(a.hear().ring);
  capturer.reset();
  const SlotCapture told = a.hear();
  EXPECT_EQ(told.slot, a.slot);
  EXPECT_FALSE(told.ring);
  EXPECT_TRUE(start()) << "another may";
}

TEST_F(Captures, TheDeathOfWhoCapturesEndsTheCapture) {
  AgentProcess agent;
  Member a;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto capturer = CaptureClient::connect(kOnlyRunning);
    const bool begun = capturer && (*capturer)->start(kSnap);
    (void)!::write(ready[1], begun ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char begun = 0;
  ASSERT_EQ(::read(ready[0], &begun, 1), 1);
  EXPECT_EQ(begun, 'y');
  EXPECT_TRUE(a.hear().ring);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(a.hear().ring);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(Captures, OnlyOneCapturesAtATime) {
  AgentProcess agent;
  const auto first = start();
  const auto second = connect();
  const auto refused = second->start(kSnap);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EBUSY);
  const auto news = second->next();
  ASSERT_FALSE(news);
  EXPECT_EQ(news.error().code, EINVAL);
  EXPECT_EQ(next(*first).kind, CaptureNewsReply::kNothing);
}

// A client that does not read its events is not captured, so that rings do not pile up for it.
TEST_F(Captures, AProcessThatDoesNotReadCostsABoundedNumberOfRings) {
  AgentProcess agent;
  Member a;
  for (uint32_t i = 0; i < protocol::kMaxCapturesUnseen + 10; ++i) {
    auto capturer = connect();
    ASSERT_TRUE(eventually([&] { return capturer->start(kSnap).has_value(); }));
  }
  auto capturer = connect();
  ASSERT_TRUE(eventually([&] { return capturer->start(kSnap).has_value(); }));
  const CaptureNews news = next(*capturer);
  EXPECT_EQ(news.kind, CaptureNewsReply::kRefused);
  EXPECT_EQ(news.error, EAGAIN);
  uint32_t begun = 0;
  while (!a.hears_nothing()) begun += a.hear().ring ? 1 : 0;
  EXPECT_LE(begun, protocol::kMaxCapturesUnseen);
  EXPECT_GT(begun, 0u);
}

// Otherwise any user's process could fill the agent's memory while root's capture program is stopped.
TEST_F(Captures, WhatComesAndGoesUnseenCostsABoundedNumberOfRings) {
  AgentProcess agent;
  Member a;
  const auto capturer = start();
  for (int i = 0; i < 600; ++i) {
    const uint32_t slot = a.take_slot();
    a.client->next_links();
    a.client->next_captures();
    ASSERT_TRUE(a.client->return_slot(slot));
  }
  const uint32_t last = a.take_slot();
  size_t begun = 0;
  bool seen = false;
  for (CaptureNews news = next(*capturer); news.kind != CaptureNewsReply::kNothing; news = next(*capturer)) {
    begun += news.ring ? 1 : 0;
    seen |= news.ring && news.slot == last;
  }
  EXPECT_LE(begun, 256u);
  EXPECT_GT(begun, 100u);
  EXPECT_TRUE(seen) << "what is there is not left out";
}

TEST_F(Captures, AfterAnAgentsDeathNothingIsCapturedUntilSomebodyAsksTheNext) {
  auto agent = std::make_unique<AgentProcess>();
  Member a;
  auto capturer = start();
  EXPECT_TRUE(a.hear().ring);
  agent->stop(SIGKILL);
  EXPECT_FALSE(capturer->next());
  agent = std::make_unique<AgentProcess>();
  EXPECT_TRUE(eventually([&] { return a.client->links().has_value(); }));
  const SlotCapture told = a.hear();
  EXPECT_EQ(told.slot, SlotCapture::kAllSlots);
  EXPECT_FALSE(told.ring);
  const auto next_one = start();
  const SlotCapture again = a.hear();
  EXPECT_EQ(again.slot, a.slot);
  EXPECT_TRUE(again.ring);
}

TEST_F(Captures, NobodyButRootCapturesWhatRootsAgentServes) {
  if (as_user(65534, [] { return 0; }) != 0) GTEST_SKIP() << "needs root";
  AgentProcess agent;
  Member a;
  EXPECT_EQ(as_user(65534,
                    [] {
                      auto capturer = CaptureClient::connect(kOnlyRunning);
                      if (!capturer) return 1;
                      const auto started = (*capturer)->start(kSnap);
                      if (started || started.error().code != EPERM) return 2;
                      const auto news = (*capturer)->next();
                      return news ? 3 : 0;
                    }),
            0);
  EXPECT_TRUE(a.hears_nothing());
}

}  // namespace
}  // namespace verbena
