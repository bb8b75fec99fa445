// SPDX-License-Identifier: Apache-2.0
// An engine with a fake agent: the requests that it makes, and its behavior after the agent's death.
#include "adapter/process/engine.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/client/fake_host.h"
#include "control/model/message_socket.h"
#include "observe/capture/ring_file.h"

namespace verbena::engine {
namespace {

using control::Client;
using control::Link;
using control::test::FakeAgent;
using control::test::FakeHost;
using control::test::lend_slots;
using protocol::MessageType;

Link link_named(std::string name, uint32_t device_index) {
  Link link;
  link.name = std::move(name);
  link.netdev = "eth0";
  link.device_index = device_index;
  return link;
}

std::shared_ptr<Engine> engine_over(FakeHost& host) {
  auto client = Client::connect(host.dialer());
  if (!client) return nullptr;
  auto engine = Engine::start_with(std::move(*client));
  return engine ? *engine : nullptr;
}

TEST(Engine, RunsOnASlotThatItsAgentLends) {
  FakeHost host;
  FakeAgent& agent = host.run(lend_slots({link_named("one", 5)}));
  auto engine = engine_over(host);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->home().slot(), 1u);
  EXPECT_EQ(engine->no_wire_reason(), control::test::kNoWire);
  ASSERT_NE(engine->link(5), nullptr);
  EXPECT_EQ(engine->link(5)->name, "one");
  EXPECT_EQ(engine->link(6), nullptr);
  engine.reset();
  EXPECT_EQ(agent.count(MessageType::kTakeSlot), agent.count(MessageType::kReturnSlot))
      << "every leased slot is returned";
}

TEST(Engine, DoesNotStartWhereTheAgentHasNoSlot) {
  FakeHost host;
  host.run([lend = lend_slots()](const FakeAgent::Request& request) {
    if (request.type() != MessageType::kTakeSlot) return lend(request);
    return FakeAgent::refuse(request, protocol::kProtocolVersion, ENOSPC, "all slots are lent");
  });
  auto client = Client::connect(host.dialer());
  ASSERT_TRUE(client);
  const auto engine = Engine::start_with(std::move(*client));
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ENOSPC);
}

class Watch final : public LinkListener {
 public:
  void on_links(const std::vector<Link>& before, const std::vector<Link>& now) override {
    const std::lock_guard lock(mutex_);
    change_ = before.at(0).name + " became " + now.at(0).name;
    changed_.notify_one();
  }
  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !change_.empty(); });
    return change_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string change_;
};

// The program calls no verb, so the engine thread must notice.
TEST(Engine, TellsOfTheLinksOfTheAgentThatFollowsADeadOne) {
  FakeHost host;
  host.run(lend_slots({link_named("one", 5)}));
  const auto engine = engine_over(host);
  ASSERT_NE(engine, nullptr);
  Watch watch;
  engine->subscribe(watch);
  host.let_start(lend_slots({link_named("another", 5)}));
  host.agent().die();
  EXPECT_EQ(watch.wait(), "one became another");
  EXPECT_EQ(engine->link(5)->name, "another");
  engine->unsubscribe(watch);
  EXPECT_EQ(host.started(), 1);
  EXPECT_EQ(host.agent().count(MessageType::kKeepSlot), 1u) << "and keeps its slot";
}

// ---- captures

// Returns the number of capture rings that this process has mapped.
int rings() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    found += line.find("verbena-capture") != std::string::npos ? 1 : 0;
  }
  return found;
}

bool eventually_has_rings(int wanted) {
  const TimePoint deadline = MonotonicClock::now() + std::chrono::seconds(10);
  while (rings() != wanted && MonotonicClock::now() < deadline) std::this_thread::yield();
  return rings() == wanted;
}

protocol::CaptureMessage capture_of(uint32_t slot) {
  return {protocol::request_header(MessageType::kCapture, 0), slot, 0};
}

// An agent that captures each slot, and says so before it answers the request for the slot.
FakeAgent::Script capture_slots() {
  return [lend = lend_slots(), events = std::make_shared<UniqueFd>(),
          next = uint32_t{1}](const FakeAgent::Request& request) mutable {
    auto answer = lend(request);
    if (answer.events) events->reset(::fcntl(answer.events.get(), F_DUPFD_CLOEXEC, 0));
    if (request.type() == MessageType::kTakeSlot) {
      const auto ring = capture::make_ring_file(64);
      const int fd = ring ? ring->get() : -1;
      EXPECT_TRUE(control::send_message(events->get(), protocol::bytes_of(capture_of(next++)), {&fd, 1}));
    }
    return answer;
  };
}

TEST(Engine, EachShardIsCapturedFromItsStartUntilItIsSaidToEnd) {
  ::setenv("VERBENA_SHARDS", "2", 1);  // NOLINT(concurrency-mt-unsafe): one thread
  FakeHost host;
  host.run(capture_slots());
  const auto engine = engine_over(host);
  ::unsetenv("VERBENA_SHARDS");  // NOLINT(concurrency-mt-unsafe): no other thread reads it
  ASSERT_NE(engine, nullptr);
  EXPECT_TRUE(eventually_has_rings(1));
  std::thread([&] { engine->shard_for_new_qp(); }).join();
  std::thread([&] { engine->shard_for_new_qp(); }).join();
  EXPECT_EQ(host.agent().count(MessageType::kTakeSlot), 2u);
  EXPECT_TRUE(eventually_has_rings(2));
  host.agent().send_event(protocol::bytes_of(capture_of(1)));
  EXPECT_TRUE(eventually_has_rings(1));
}

TEST(Engine, WhatADeadAgentHadCapturedEndsWithTheNextOne) {
  FakeHost host;
  host.run(capture_slots());
  const auto engine = engine_over(host);
  ASSERT_NE(engine, nullptr);
  EXPECT_TRUE(eventually_has_rings(1));
  host.let_start(lend_slots());
  host.agent().die();
  EXPECT_TRUE(eventually_has_rings(0));
}

}  // namespace
}  // namespace verbena::engine
