// SPDX-License-Identifier: Apache-2.0
// An engine over a fake agent: what it asks of it, and what it does when the agent dies.
#include "engine/engine.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent_client/fake_host.h"

namespace verbena::engine {
namespace {

using agent_client::Client;
using agent_client::Link;
using agent_client::test::FakeAgent;
using agent_client::test::FakeHost;
using agent_client::test::lend_slots;
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
  EXPECT_EQ(engine->no_wire_reason(), agent_client::test::kNoWire);
  ASSERT_NE(engine->link(5), nullptr);
  EXPECT_EQ(engine->link(5)->name, "one");
  EXPECT_EQ(engine->link(6), nullptr);
  engine.reset();
  EXPECT_EQ(agent.count(MessageType::kTakeSlot), agent.count(MessageType::kReturnSlot))
      << "what was lent is given back";
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

// Nobody calls a verb: the engine thread notices.
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

}  // namespace
}  // namespace verbena::engine
