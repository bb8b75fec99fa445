// SPDX-License-Identifier: Apache-2.0
// Traces through the agent: programs that write them, and programs that read them.
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <utility>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"
#include "agent/sessions/other_users.h"
#include "agent/status/trace_sources.h"
#include "control/client/client.h"
#include "control/client/command_client.h"
#include "control/protocol/status_page.h"
#include "observe/trace/reader.h"
#include "observe/trace/recorder.h"

namespace verbena {
namespace {

using control::Client;
using control::TraceSource;
using test::AgentProcess;
using test::all_ended;
using test::all_living;
using test::as_user;
using test::eventually;
using test::trace_client;

const control::ConnectOptions kOnlyRunning{.start_agent = false, .agent_program = {}};

// A process with a slot that writes one event into its trace.
struct Member {
  Member() : client(std::move(*Client::connect(kOnlyRunning))), slot(*client->take_slot()) {
    auto* const page = static_cast<protocol::StatusPage*>(::mmap(nullptr, sizeof(protocol::StatusPage),
                                                                 PROT_READ | PROT_WRITE, MAP_SHARED,
                                                                 slot.status_page.get(), 0));
    trace::Recorder(page->traces).note(roce::Qpn(0x11), trace::Kind::kTimeout);
    ::munmap(page, sizeof(protocol::StatusPage));
  }
  // Waits for the next event about details.
  std::optional<bool> hear() {
    std::optional<bool> heard;
    eventually([&] {
      client->next_links();
      heard = client->next_trace_details();
      return heard.has_value();
    });
    return heard;
  }
  std::unique_ptr<Client> client;
  control::Slot slot;
};

size_t events_of(const TraceSource& source) {
  return trace::Reader(source.file.get(), source.offset).read().size();
}

class Traces : public test::NamespaceTest {};

TEST_F(Traces, OfAProcessThatRunsIsRead) {
  AgentProcess agent;
  const Member member;
  const auto living = all_living(*trace_client());
  ASSERT_EQ(living.size(), 1u);
  EXPECT_EQ(living[0].pid, ::getpid());
  EXPECT_EQ(events_of(living[0]), 1u);
  EXPECT_FALSE(living[0].end);
}

TEST_F(Traces, OfAProcessThatHasEndedIsKept) {
  AgentProcess agent;
  const auto client = trace_client();
  { const Member member; }
  ASSERT_TRUE(eventually([&] { return all_ended(*client).size() == 1; }));
  const auto ended = all_ended(*client);
  EXPECT_EQ(ended[0].pid, ::getpid());
  EXPECT_EQ(events_of(ended[0]), 1u);
  ASSERT_TRUE(ended[0].end);
  EXPECT_FALSE(ended[0].end->in_order);
  EXPECT_LE(ended[0].end->time, MonotonicClock::now());
}

TEST_F(Traces, OfASlotThatWasGivenBackSayThatAllWasInOrder) {
  AgentProcess agent;
  Member member;
  const auto client = trace_client();
  ASSERT_TRUE(member.client->return_slot(member.slot.index));
  // A thread copies the trace.
  ASSERT_TRUE(eventually([&] { return all_ended(*client).size() == 1; }));
  EXPECT_TRUE(all_ended(*client)[0].end->in_order);
}

TEST_F(Traces, ThatAnAgentKeepsTheNextHas) {
  {
    AgentProcess agent;
    const auto client = trace_client();
    { const Member member; }
    ASSERT_TRUE(eventually([&] { return all_ended(*client).size() == 1; }));
    EXPECT_EQ(agent.stop(SIGTERM), 0);
  }
  AgentProcess next;
  const auto ended = all_ended(*trace_client());
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].pid, ::getpid());
  EXPECT_EQ(events_of(ended[0]), 1u);
}

TEST_F(Traces, AreForTheirOwnUserAndTheAgents) {
  if (!test::may_become_others()) GTEST_SKIP() << "needs root";
  AgentProcess agent;
  Member first;
  ASSERT_TRUE(first.client->return_slot(first.slot.index));
  const Member second;
  const int status = as_user(65534, [] {
    const auto client = trace_client();
    if (client == nullptr) return 1;
    if (!all_living(*client).empty()) return 2;
    if (!all_ended(*client).empty()) return 3;
    const auto wanted = client->want_details(::getppid());
    return !wanted && wanted.error().code == ESRCH ? 0 : 4;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(Traces, OfAnotherUsersProcessRootReads) {
  if (!test::may_become_others()) GTEST_SKIP() << "needs root";
  AgentProcess agent;
  EXPECT_EQ(as_user(65534,
                    [] {
                      const Member member;
                      return 0;
                    }),
            0);
  const auto client = trace_client();
  ASSERT_TRUE(eventually([&] { return all_ended(*client).size() == 1; }));
  EXPECT_EQ(all_ended(*client)[0].uid, 65534u);
}

TEST_F(Traces, AProcessIsAskedForDetailsAsLongAsSomebodyWantsThem) {
  AgentProcess agent;
  Member member;
  auto first = trace_client();
  auto second = trace_client();
  ASSERT_TRUE(first->want_details(::getpid()));
  EXPECT_EQ(member.hear(), true);
  ASSERT_TRUE(second->want_details(::getpid()));
  first.reset();
  all_living(*trace_client());
  member.client->next_links();
  EXPECT_EQ(member.client->next_trace_details(), std::nullopt) << "the second wants them still";
  second.reset();
  EXPECT_EQ(member.hear(), false);
}

TEST_F(Traces, DetailsOfAProcessThatIsNotThereAreRefused) {
  AgentProcess agent;
  const auto client = trace_client();
  const auto refused = client->want_details(::getpid());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ESRCH);
  const auto nonsense = client->want_details(-1);
  ASSERT_FALSE(nonsense);
  EXPECT_EQ(nonsense.error().code, ESRCH);
}

}  // namespace
}  // namespace verbena
