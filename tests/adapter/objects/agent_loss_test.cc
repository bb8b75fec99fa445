// SPDX-License-Identifier: Apache-2.0
// Programs without an agent, and without UDP port 4791.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "agent/slots/taken_port.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "control/client/command_client.h"
#include "wire/roce/qpn.h"

namespace verbena::adapter::testing {
namespace {

void exchange(Pair& pair) {
  const ibv_sge piece = pair.a.piece(0, 3000);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, pair.b.address()), {&piece, 1}), 0);
  ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
}

TEST(AgentLoss, TrafficGoesOnAndANewOpenReachesTheNextAgent) {
  isolated([] {
    Pair pair;
    exchange(pair);
    Environment::kill_agent(SIGKILL);
    exchange(pair);
    Environment::start_agent();
    exchange(pair);
    Context context = open_device();
    EXPECT_NE(context, nullptr);
    Pair fresh;
    exchange(fresh);
    exchange(pair);
  });
}

// Returns the number of slots that the agent reports for this process; -1 if it does not answer.
int slots_of_this_process() {
  const auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
  if (!admin) return -1;
  const auto status = (*admin)->status();
  if (!status) return -1;
  return static_cast<int>(std::ranges::count(status->slots, ::getpid(), &control::SlotStatus::pid));
}

// A process with several shards has a slot for each. The next agent must learn of all of them.
TEST(AgentLoss, EverySlotOfAProcessIsKnownToTheNextAgent) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "the thread sanitizer knows 64 locks of a thread, and fork() takes more of so many contexts";
#endif
  isolated([] {
    ::setenv("VERBENA_SHARDS", "3", 1);  // NOLINT(concurrency-mt-unsafe): one thread
    std::vector<std::unique_ptr<Pair>> pairs(3);
    for (auto& pair : pairs) std::thread([&] { pair = std::make_unique<Pair>(); }).join();
    std::set<uint32_t> slots;
    for (const auto& pair : pairs) slots.insert(roce::Qpn(pair->a.qp->qp_num).slot());
    ASSERT_EQ(slots.size(), 3u);
    for (int restart = 0; restart < 2; ++restart) {
      Environment::kill_agent(SIGKILL);
      for (const auto& pair : pairs) exchange(*pair);
      Environment::start_agent();
      for (const auto& pair : pairs) exchange(*pair);
      EXPECT_TRUE(eventually([] { return slots_of_this_process() == 3; })) << slots_of_this_process();
    }
    // At its end the process returns the slots, and the agent takes them back.
    pairs.clear();
    EXPECT_TRUE(eventually([] { return slots_of_this_process() == 0; })) << slots_of_this_process();
  });
}

TEST(AgentLoss, PortEventsComeFromTheNextAgent) {
  isolated([] {
    Context context = open_device();
    Environment::kill_agent(SIGKILL);
    Environment::start_agent();
    ASSERT_TRUE(test::shell("ip addr add 10.99.0.3/32 dev lo"));
    for (;;) {  // other events may come first, for differences between the two agents
      ibv_async_event event{};
      ASSERT_EQ(ibv_get_async_event(context.get(), &event), 0);
      ibv_ack_async_event(&event);
      if (event.event_type == IBV_EVENT_GID_CHANGE) break;
    }
  });
}

TEST(AgentLoss, WithoutAnyThereIsAClearError) {
  isolated([] {
    Pair pair;
    Environment::kill_agent(SIGKILL);
    int count = -1;
    errno = 0;
    EXPECT_EQ(ibv_get_device_list(&count), nullptr);
    EXPECT_EQ(errno, ECONNREFUSED);
    EXPECT_EQ(count, 0);
    exchange(pair);
  });
}

TEST(NoWire, ThePortIsDownAndSaysWhyAndAllElseWorks) {
  UniqueFd taken;
  isolated(
      [] {
        set_log_level(LogLevel::kWarning);
        ::testing::internal::CaptureStderr();
        Context context = open_device();
        ASSERT_NE(context, nullptr);
        ibv_port_attr port{};
        ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
        EXPECT_EQ(port.state, IBV_PORT_DOWN);
        const std::string log = ::testing::internal::GetCapturedStderr();
        EXPECT_NE(log.find("UDP port 4791 is taken by"), std::string::npos) << log;
        EXPECT_NE(log.find("rxe_lo"), std::string::npos) << log;

        // The shared-memory route needs no socket.
        Pair pair({.timeout = 4, .retries = 1});
        const ibv_sge piece = pair.a.piece(0, 8);
        ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, pair.b.address()), {&piece, 1}), 0);
        EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
      },
      [&] { taken = test::take_roce_port(); });
}

TEST(NoWire, TheNextProcessHasOneWhenThePortIsFreeAgain) {
  UniqueFd taken;
  isolated(
      [&] {
        Context context = open_device();
        ibv_port_attr port{};
        ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
        EXPECT_EQ(port.state, IBV_PORT_DOWN);
        context.reset();  // destroys the engine, too: the next one starts as in a new process
        taken.reset();
        EXPECT_TRUE(eventually([&] {
          Context again = open_device();
          EXPECT_EQ(ibv_query_port(again.get(), 1, &port), 0);
          return port.state == IBV_PORT_ACTIVE;
        }));
      },
      [&] { taken = test::take_roce_port(); });
}

}  // namespace
}  // namespace verbena::adapter::testing
