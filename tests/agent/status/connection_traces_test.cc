// SPDX-License-Identifier: Apache-2.0
// The agent's traces of programs' connections, and the users who may read them.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/cm/program.h"
#include "agent/network_namespace.h"
#include "agent/sessions/other_users.h"
#include "agent/status/trace_sources.h"
#include "control/client/command_client.h"
#include "observe/trace/connection_note.h"
#include "observe/trace/reader.h"

namespace verbena {
namespace {

using control::TraceSource;
using test::address;
using test::all_ended;
using test::CmProgram;
using test::eventually;
using test::parameters;
using test::trace_client;
using testing::ElementsAre;
using testing::IsEmpty;
using trace::Kind;

constexpr uint16_t kPort = 7471;

std::vector<trace::Event> events_of(const TraceSource& source) {
  return trace::Reader(source.file.get(), source.offset).read();
}

// Returns lines such as "call rdma_connect", "sent REQ", "received REP", "event RDMA_CM_EVENT_ESTABLISHED".
std::vector<std::string> lines_of(const TraceSource& source) {
  std::vector<std::string> lines;
  for (const trace::Event& event : events_of(source)) {
    const char* const kind = event.kind == Kind::kCmCall       ? "call "
                             : event.kind == Kind::kCmSent     ? "sent "
                             : event.kind == Kind::kCmReceived ? "received "
                                                               : "event ";
    lines.push_back(kind + trace::connection_subject(event.kind, event.numbers));
  }
  return lines;
}

class ConnectionTraces : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(test::shell("ip addr add 10.7.0.1/32 dev lo"));  // an address of a device, unlike 127.0.0.1
    agent_.emplace();
    server_.emplace();
    client_.emplace();
    ASSERT_TRUE(server_->connected() && client_->connected());
    listener_ = server_->create();
    ASSERT_EQ(server_->bind(listener_, address("0.0.0.0", kPort)), 0);
    ASSERT_EQ(server_->listen(listener_), 0);
  }
  static std::vector<TraceSource> living() { return test::all_living(*test::trace_client()); }
  // The identifiers in order of creation: the server's and the client's.
  std::pair<uint32_t, uint32_t> establish() {
    const uint32_t active = client_->resolve(address("10.7.0.1", kPort));
    EXPECT_EQ(client_->connect(active, parameters("hello", 0x77)), 0);
    const uint32_t passive = server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(server_->accept(passive, parameters("welcome", 0x815)), 0);
    client_->expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(client_->accept(active), 0);
    EXPECT_EQ(server_->expect(RDMA_CM_EVENT_ESTABLISHED), passive);
    return {passive, active};
  }

  std::optional<test::AgentProcess> agent_;
  std::optional<CmProgram> server_, client_;
  uint32_t listener_ = 0;
};

TEST_F(ConnectionTraces, TellOfBothSidesFromTheAddressToTheEnd) {
  const auto [passive, active] = establish();
  ASSERT_EQ(client_->disconnect(active), 0);
  server_->expect(RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(server_->disconnect(passive), 0);
  client_->expect(RDMA_CM_EVENT_DISCONNECTED);
  const auto sources = living();
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0].pid, ::getpid());
  EXPECT_EQ(sources[0].program, "test");
  EXPECT_NE(sources[0].slot, sources[1].slot);
  EXPECT_THAT(lines_of(sources[0]),
              ElementsAre("call rdma_bind_addr", "call rdma_listen", "received REQ",
                          "event RDMA_CM_EVENT_CONNECT_REQUEST", "call rdma_accept", "sent REP",
                          "received RTU", "event RDMA_CM_EVENT_ESTABLISHED", "received DREQ",
                          "event RDMA_CM_EVENT_DISCONNECTED", "call rdma_disconnect", "sent DREP"));
  EXPECT_THAT(
      lines_of(sources[1]),
      ElementsAre("call rdma_resolve_addr", "event RDMA_CM_EVENT_ADDR_RESOLVED", "call rdma_resolve_route",
                  "event RDMA_CM_EVENT_ROUTE_RESOLVED", "call rdma_connect", "sent REQ", "received REP",
                  "event RDMA_CM_EVENT_CONNECT_RESPONSE", "sent RTU", "call rdma_disconnect", "sent DREQ",
                  "received DREP", "event RDMA_CM_EVENT_DISCONNECTED"));
}

TEST_F(ConnectionTraces, NameTheIdentifierThePeerAndBothQueuePairs) {
  establish();
  const auto events = events_of(living()[1]);
  const auto rtu = std::ranges::find_if(events, [](const trace::Event& event) {
    return event.kind == Kind::kCmSent && trace::connection_subject(event.kind, event.numbers) == "RTU";
  });
  ASSERT_NE(rtu, events.end());
  const trace::ConnectionNote note = trace::unpacked(rtu->numbers);
  EXPECT_EQ(rtu->qpn, 0x77u);
  EXPECT_EQ(note.remote_qpn, 0x815u);
  EXPECT_EQ(note.port, kPort);
  EXPECT_EQ(note.id, trace::unpacked(events.front().numbers).id);
  EXPECT_EQ(trace::connection_text(rtu->kind, rtu->numbers),
            "cm_id " + std::to_string(note.id) + ": sent RTU to 10.7.0.1 port 7471, its QP 0x000815");
}

TEST_F(ConnectionTraces, TellOfCallsThatFailWithTheErrnoValue) {
  const uint32_t id = client_->create();
  EXPECT_EQ(client_->resolve_route(id), EINVAL);
  const auto events = events_of(living()[1]);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(trace::unpacked(events[1].numbers).status, EINVAL);
}

TEST_F(ConnectionTraces, TellOfARejectionWithItsReason) {
  const uint32_t active = client_->resolve(address("10.7.0.1", kPort));
  ASSERT_EQ(client_->connect(active, parameters("hello")), 0);
  ASSERT_EQ(server_->reject(server_->expect(RDMA_CM_EVENT_CONNECT_REQUEST), "no"), 0);
  client_->expect(RDMA_CM_EVENT_REJECTED, 28);
  const auto events = events_of(living()[1]);
  EXPECT_EQ(trace::unpacked(events.back().numbers).status, 28);
  EXPECT_TRUE(trace::is_trouble(events.back()));
  EXPECT_EQ(std::ranges::count_if(events, trace::is_trouble), 1);
}

TEST_F(ConnectionTraces, OfAProgramThatHasEndedAreKeptWithItsLastMessage) {
  establish();
  const auto client = trace_client();
  client_->hang_up();
  ASSERT_TRUE(eventually([&] { return all_ended(*client).size() == 1; }));
  const auto ended = all_ended(*client);
  EXPECT_EQ(lines_of(ended[0]).back(), "sent DREQ");
  EXPECT_FALSE(ended[0].end->in_order);
  EXPECT_EQ(ended[0].pid, ::getpid());
}

TEST_F(ConnectionTraces, OfAProgramThatHasDestroyedAllSayThatItWasInOrder) {
  ASSERT_EQ(server_->destroy(listener_), 0);
  const auto client = trace_client();
  server_->hang_up();
  ASSERT_TRUE(eventually([&] { return all_ended(*client).size() == 1; }));
  EXPECT_TRUE(all_ended(*client).front().end->in_order);
}

TEST_F(ConnectionTraces, OfAllSessionsOfAProcessBelongTogether) {
  client_->create();
  const uint32_t id = client_->create();
  EXPECT_EQ(client_->bind(id, address("10.7.0.1")), 0);
  const auto client = trace_client();
  server_->hang_up();
  client_->hang_up();
  ASSERT_TRUE(eventually([&] { return all_ended(*client).size() == 2; }));
  const auto ended = all_ended(*client);
  EXPECT_EQ(ended[0].end->process, ended[1].end->process);
}

TEST_F(ConnectionTraces, CannotBeOpenedForWritingByTheUserWhoReadsThem) {
  if (!test::may_become_others()) GTEST_SKIP() << "needs root";
  const int error = test::as_user(65534, [] {
    CmProgram program;
    if (!program.connected() || program.bind(program.create(), address("0.0.0.0")) != 0) return -1;
    const auto traces = living();
    if (traces.size() != 1) return -2;
    const std::string path = "/proc/self/fd/" + std::to_string(traces[0].file.get());
    const UniqueFd again(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    return again ? 0 : errno;
  });
  EXPECT_EQ(error, EACCES);
  EXPECT_TRUE(eventually([] { return living().size() == 1; })) << "the agent lives";
}

// Other users decide how many traces there are.
TEST_F(ConnectionTraces, ThatAreMoreThanAProcessMayHaveOpenAreRead) {
  constexpr size_t kPrograms = 40;
  std::vector<std::unique_ptr<CmProgram>> programs;
  while (programs.size() < kPrograms) {
    programs.push_back(std::make_unique<CmProgram>());
    ASSERT_EQ(programs.back()->bind(programs.back()->create(), address("0.0.0.0")), 0);
  }
  const auto client = trace_client();
  size_t taken = 0;
  const auto count = [&](const TraceSource&) { ++taken; };
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int lowest_free = ::dup(STDERR_FILENO);
  ::close(lowest_free);
  const rlimit few{static_cast<rlim_t>(lowest_free) + 8, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_TRUE(client->living(count));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(taken, kPrograms + 1) << "the server listens";
}

TEST_F(ConnectionTraces, AreForTheirOwnUserAndTheAgents) {
  if (!test::may_become_others()) GTEST_SKIP() << "needs root";
  EXPECT_EQ(living().size(), 1u);  // the server's, which listens
  EXPECT_EQ(test::as_user(65534, [] { return static_cast<int>(living().size()); }), 0);
}

}  // namespace
}  // namespace verbena
