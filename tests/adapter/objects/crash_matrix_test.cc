// SPDX-License-Identifier: Apache-2.0
// The effect on one process when something happens to the other, or to the agent, while data flow. Every case
// runs over both routes, with the same result:
//
// clang-format off
//   event                               the survivor                        the other
//   killed                              RETRY_EXC, then flushes; ERR        nothing is left
//   executes another program            the same                            nothing is left
//   killed, and a child of it lives on  the same                            nothing is left
//   stopped for longer than the timers  the same (by memory after seconds)  the same; works when connected again
//   stopped for a moment                goes on                             goes on
//   forks, and the child ends           goes on                             goes on
//   stopped during connection setup     goes on when the other does         goes on; later by memory, too
//   unmaps memory that it registered    the target's error                  its QP in ERR
//   unmaps a receive's memory           REM_OP                              LOC_PROT of the receive
//   deregisters the memory              REM_ACCESS                          its QP in ERR
//   resets its QP                       RETRY_EXC, then flushes; ERR        works when connected again
//   closes its device                   the same                            nothing is left
//   the agent killed, and another       goes on; new QPs work               goes on
//   no agent during connection setup    goes on                             goes on
// clang-format on
//
// "Nothing is left": the survivor has as many descriptors, channels and export tables as before. Processes
// that write invalid data are tested in tests/adapter/shm and tests/adapter/engine.
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/helper.h"
#include "adapter/objects/support/route.h"
#include "base/memory_apart.h"
#include "base/random.h"

namespace verbena::adapter::testing {
namespace {

constexpr size_t kPage = 4096;
// Short timers: 4 attempts of 1 ms.
constexpr Options kBrief{.timeout = 8, .retries = 3};

enum class Order : uint8_t {
  kNothing,
  kExecute,      // another program
  kFork,         // a child that lives until it is killed; answers with its pid
  kForkAndReap,  // a child that ends at once
  kUnmap,        // the target's memory
  kTakeKeyBack,
  kReset,  // the QP, and connect it again
  kClose,
  kTakeCompletion,  // answers with its status
  kEnd,
};

// An address and a key of the other side, in addition to its endpoint's own buffer.
struct More {
  uint64_t address = 0;
  uint32_t rkey = 0;
};

// One side: an endpoint, and one page of memory that can be unmapped.
struct Side {
  explicit Side(const Options& options) : endpoint(options) {
    page = map_apart(kPage);
    std::memset(page, 1, kPage);
    mr.reset(ibv_reg_mr(endpoint.pd.get(), page, kPage, static_cast<int>(kAllAccess)));
    EXPECT_NE(mr, nullptr);
  }
  void join(Line& line) {
    line.tell(endpoint.address());
    endpoint.connect(line.hear<Address>());
  }
  void join_again(Line& line) {
    endpoint.modify_to(IBV_QPS_RESET);
    for (ibv_wc wc; ibv_poll_cq(endpoint.cq.get(), 1, &wc) > 0;) {
    }
    join(line);
  }

  Endpoint endpoint;
  void* page;
  Mr mr;
};

// A thread that writes to the peer until a WRITE fails.
class Writer {
 public:
  explicit Writer(Endpoint& endpoint) : thread_([this, &endpoint] { run(endpoint); }) {}
  ~Writer() {
    over_ = true;
    thread_.join();
  }
  uint64_t written() const { return written_; }
  ibv_wc_status status() const { return status_; }
  // Waits until more has been written. False if a WRITE has failed.
  bool goes_on() {
    const uint64_t before = written_;
    return eventually([&] { return written_ > before + 100 || status_ != IBV_WC_SUCCESS; }) &&
           status_ == IBV_WC_SUCCESS;
  }

 private:
  void run(Endpoint& endpoint) {
    const ibv_sge piece = endpoint.piece(0, 8192);
    while (!over_ && status_ == IBV_WC_SUCCESS) {
      EXPECT_EQ(endpoint.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, endpoint.peer), {&piece, 1}), 0);
      const ibv_wc wc = endpoint.completion();
      status_ = wc.status;
      if (wc.status == IBV_WC_SUCCESS) ++written_;
    }
  }

  std::atomic<bool> over_{false};
  std::atomic<uint64_t> written_{0};
  std::atomic<ibv_wc_status> status_{IBV_WC_SUCCESS};
  std::thread thread_;
};

void obey(Side& side, Line& line) {
  for (;;) {
    switch (line.hear<Order>()) {
      case Order::kExecute: {
        std::string program = "/bin/sleep";
        std::string seconds = "1000";
        char* words[] = {program.data(), seconds.data(), nullptr};
        ::execv(words[0], words);
        std::abort();
      }
      case Order::kFork: {
        const pid_t child = ::fork();
        if (child == 0) {
          for (;;) ::pause();
        }
        line.tell(child);
        break;
      }
      case Order::kForkAndReap: {
        const pid_t child = ::fork();
        if (child == 0) ::_exit(0);
        int status = -1;
        ::waitpid(child, &status, 0);
        line.tell(status);
        break;
      }
      case Order::kUnmap:
        ::munmap(side.page, kPage);
        line.tell(true);
        break;
      case Order::kTakeKeyBack:
        side.mr.reset();
        line.tell(true);
        break;
      case Order::kReset:
        side.endpoint.modify_to(IBV_QPS_RESET);
        line.tell(true);
        line.hear<bool>();
        side.join_again(line);
        break;
      case Order::kClose:
        return;
      case Order::kTakeCompletion:
        line.tell(side.endpoint.completion().status);
        break;
      case Order::kNothing:
      case Order::kEnd:
        line.await_end();
        return;
    }
  }
}

// The other side: connects, and then obeys orders. Its page is posted as a receive, which some cases use.
void other_side(Line& line, const Options& options) {
  {
    Side side(options);
    side.join(line);
    const ibv_sge page{reinterpret_cast<uintptr_t>(side.page), kPage, side.mr->lkey};
    EXPECT_EQ(side.endpoint.post_receive(1, page), 0);
    line.tell(More{reinterpret_cast<uintptr_t>(side.page), side.mr->rkey});
    obey(side, line);
  }
  line.tell(true);
  line.await_end();
}

const HelperBody obedient("crash-obedient", [](Line& line) { other_side(line, kBrief); });

// Writes to its peer endlessly, and answers every order with the status of its WRITEs.
const HelperBody writing("crash-writing", [](Line& line) {
  Side side(kBrief);
  side.join(line);
  line.tell(More{reinterpret_cast<uintptr_t>(side.page), side.mr->rkey});
  {
    Writer writer(side.endpoint);
    line.tell(writer.goes_on());
    while (line.hear<Order>() == Order::kNothing) line.tell(writer.status());
  }
  side.join_again(line);
  line.await_end();
});

class Crash : public ::testing::TestWithParam<Route> {
 protected:
  Crash() { use_route(GetParam()); }
  ~Crash() override { use_route(usual_route()); }

  void join(Side& side, Helper& helper) {
    side.join(helper.line());
    more = helper.line().hear<More>();
    ASSERT_TRUE(all_take(GetParam(), ::getpid(), 1));
  }
  static void write(Endpoint& endpoint, uint64_t id, ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) {
    const ibv_sge piece = endpoint.piece(0, kPage);
    ASSERT_EQ(endpoint.post_send(remote_request(opcode, id, endpoint.peer), {&piece, 1}), 0);
  }
  static void works(Endpoint& endpoint) {
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      write(endpoint, 1, opcode);
      EXPECT_EQ(endpoint.completion().status, IBV_WC_SUCCESS);
    }
  }
  // Expects the errors of a peer that does not answer (IBTA volume 1, 10.10.2, 9.9.2.4).
  static void finds_nobody(Endpoint& endpoint) {
    for (uint64_t id = 10; id < 14; ++id) write(endpoint, id);
    ASSERT_EQ(endpoint.post_receive(14, endpoint.piece(0, 8)), 0);
    ibv_wc wc = endpoint.completion();
    EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR) << ibv_wc_status_str(wc.status);
    EXPECT_EQ(wc.wr_id, 10u);
    for (uint64_t id = 11; id < 15; ++id) {
      wc = endpoint.completion();
      EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR) << ibv_wc_status_str(wc.status);
      EXPECT_EQ(wc.wr_id, id);
    }
    EXPECT_EQ(endpoint.state(), IBV_QPS_ERR);
  }
  static void stop(Helper& helper) {
    helper.kill(SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(helper.pid(), &status, WUNTRACED), helper.pid());
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  // Connects to another process, to which `event` happens while WRITEs are under way. Expects that they fail
  // as if nobody answered, and that nothing stays here of what was shared with the other process.
  void loses(const std::function<void(Helper&)>& event) {
    Context device = open_device();
    const Holdings before = held_after_one_connection();
    {
      Side side(kBrief);
      Helper helper = Helper::start("crash-obedient");
      join(side, helper);
      works(side.endpoint);
      Writer writer(side.endpoint);
      ASSERT_TRUE(writer.goes_on());
      event(helper);
      ASSERT_TRUE(eventually([&] { return writer.status() != IBV_WC_SUCCESS; }));
      EXPECT_EQ(writer.status(), IBV_WC_RETRY_EXC_ERR) << ibv_wc_status_str(writer.status());
      EXPECT_EQ(side.endpoint.state(), IBV_QPS_ERR);
      EXPECT_TRUE(eventually([&] { return own_holdings().channels == before.channels; }))
          << "its channel stays";
    }
    EXPECT_TRUE(eventually([&] { return own_holdings() == before; }))
        << ::testing::PrintToString(own_holdings()) << ", before " << ::testing::PrintToString(before);
    works_once();
  }
  // Returns what stays in this process after its first connection has been destroyed.
  Holdings held_after_one_connection() {
    works_once();
    EXPECT_TRUE(eventually([] { return own_holdings().channels == 0; })) << "that connection's channel stays";
    return own_holdings();
  }
  void works_once() {
    Side side(kBrief);
    Helper helper = Helper::start("crash-obedient");
    join(side, helper);
    works(side.endpoint);
  }

  More more;
};

TEST_P(Crash, AKilledPeerIsNotThere) {
  loses([](Helper& helper) {
    helper.kill(SIGKILL);
    helper.wait();
  });
}

TEST_P(Crash, APeerThatBecomesAnotherProgramIsNotThere) {
  loses([](Helper& helper) { helper.line().tell(Order::kExecute); });
}

// The child has inherited its parent's descriptors, and must not be taken for its parent.
TEST_P(Crash, AKilledPeerWhoseChildLivesIsNotThere) {
  pid_t child = 0;
  loses([&](Helper& helper) {
    helper.line().tell(Order::kFork);
    child = helper.line().hear<pid_t>();
    helper.kill(SIGKILL);
    helper.wait();
  });
  ASSERT_GT(child, 0);
  EXPECT_EQ(::kill(child, SIGKILL), 0) << "it was to live until now";
}

TEST_P(Crash, APeerThatClosesItsDeviceIsNotThere) {
  loses([](Helper& helper) {
    helper.line().tell(Order::kClose);
    helper.line().hear<bool>();
  });
}

TEST_P(Crash, RequestsBehindTheFirstAreFlushed) {
  Side side(kBrief);
  Helper helper = Helper::start("crash-obedient");
  join(side, helper);
  works(side.endpoint);
  helper.kill(SIGKILL);
  helper.wait();
  finds_nobody(side.endpoint);
}

// Both ends have requests under way. One resets its QP while the other is stopped, so the other's requests
// are never answered. After a new connection no earlier packet is taken for a new one.
TEST_P(Crash, AProcessThatGivesUpAStoppedPeerIsJoinedToItAgain) {
  Side side(kBrief);
  Helper helper = Helper::start("crash-writing");
  join(side, helper);
  ASSERT_TRUE(helper.line().hear<bool>());
  stop(helper);
  for (uint64_t id = 10; id < 14; ++id) write(side.endpoint, id);
  side.endpoint.modify_to(IBV_QPS_RESET);
  helper.kill(SIGCONT);
  EXPECT_TRUE(eventually([&] {
    helper.line().tell(Order::kNothing);
    const auto status = helper.line().hear<ibv_wc_status>();
    EXPECT_TRUE(status == IBV_WC_SUCCESS || status == IBV_WC_RETRY_EXC_ERR) << ibv_wc_status_str(status);
    return status == IBV_WC_RETRY_EXC_ERR;
  }));
  helper.line().tell(Order::kEnd);
  side.join_again(helper.line());
  works(side.endpoint);
}

const HelperBody patient("crash-patient", [](Line& line) { other_side(line, {.timeout = 20}); });

TEST_P(Crash, APeerThatIsStoppedForAMomentGoesOn) {
  Side side({.timeout = 20});
  Helper helper = Helper::start("crash-patient");
  join(side, helper);
  for (uint8_t round = 1; round <= 20; ++round) {
    stop(helper);
    std::memset(side.endpoint.buffer(), round, 1 << 15);
    const ibv_sge there = side.endpoint.piece(0, 1 << 15);
    const ibv_sge back = side.endpoint.piece(1 << 15, 1 << 15);
    ASSERT_EQ(side.endpoint.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, side.endpoint.peer), {&there, 1}),
              0);
    ASSERT_EQ(side.endpoint.post_send(remote_request(IBV_WR_RDMA_READ, 2, side.endpoint.peer), {&back, 1}),
              0);
    EXPECT_TRUE(side.endpoint.quiet());
    helper.kill(SIGCONT);
    for (uint64_t id = 1; id <= 2; ++id) {
      const ibv_wc wc = side.endpoint.completion();
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
      ASSERT_EQ(wc.wr_id, id);
    }
    ASSERT_EQ(std::memcmp(side.endpoint.buffer(), side.endpoint.buffer() + (1 << 15), 1 << 15), 0);
  }
}

// Over shared memory, requests wait for a peer whose process lives. Over the wire, the agent answers for the
// peer once a packet has been in its socket for 60 ms.
TEST_P(Crash, APeerThatIsStoppedForLongerThanTheTimersGoesOn) {
  const Options usual{.timeout = 13, .retries = 7};
  const Duration all_tries = std::chrono::milliseconds(34) * (usual.retries + 1);
  Side side(usual);
  Helper helper = Helper::start("crash-obedient");
  join(side, helper);
  works(side.endpoint);
  stop(helper);
  const ibv_sge piece = side.endpoint.piece(0, 1);
  ASSERT_EQ(side.endpoint.post_send(send_request(1), {&piece, 1}), 0);
  const TimePoint end = MonotonicClock::now() + 3 * all_tries;
  while (MonotonicClock::now() < end) ASSERT_TRUE(side.endpoint.quiet());
  helper.kill(SIGCONT);
  const ibv_wc wc = side.endpoint.completion();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
  helper.line().tell(Order::kEnd);
}

TEST_P(Crash, APeerThatForksGoesOn) {
  Side side({});
  Helper helper = Helper::start("crash-patient");
  join(side, helper);
  Writer writer(side.endpoint);
  for (int i = 0; i < 5; ++i) {
    helper.line().tell(Order::kForkAndReap);
    EXPECT_EQ(helper.line().hear<int>(), 0);
    EXPECT_TRUE(writer.goes_on());
  }
}

TEST_P(Crash, AProcessThatForksGoesOn) {
  Side side({});
  Helper helper = Helper::start("crash-patient");
  join(side, helper);
  Writer writer(side.endpoint);
  for (int i = 0; i < 5; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(writer.goes_on());
  }
}

const HelperBody joined_late("crash-joined-late", [](Line& line) {
  Side side({});
  line.tell(side.endpoint.address());
  const auto peer = line.hear<Address>();
  line.hear<bool>();  // the process is stopped here
  side.endpoint.connect(peer);
  line.tell(true);
  line.await_end();
});

// A stopped process cannot agree to a channel.
TEST_P(Crash, APeerThatIsStoppedWhileTheTwoAreJoinedIsReachedLater) {
  Side side({.timeout = 20});
  Helper helper = Helper::start("crash-joined-late");
  const auto peer = helper.line().hear<Address>();
  stop(helper);
  const TimePoint before = MonotonicClock::now();
  side.endpoint.connect(peer);
  EXPECT_LT(MonotonicClock::now() - before, std::chrono::seconds(1)) << "nobody waits for it";
  write(side.endpoint, 1);
  helper.kill(SIGCONT);
  helper.line().tell(side.endpoint.address());
  helper.line().tell(true);
  helper.line().hear<bool>();
  EXPECT_EQ(side.endpoint.completion().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(all_take(GetParam(), ::getpid(), 1));
  EXPECT_TRUE(all_take(GetParam(), helper.pid(), 1));
  works(side.endpoint);
}

// The peer is killed at a random step of the connection setup.
TEST_P(Crash, APeerThatIsKilledWhileTheTwoAreJoinedIsNotThere) {
  Context device = open_device();
  const Holdings before = held_after_one_connection();
  Random random(static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed()) + 1);
  for (int round = 0; round < 30; ++round) {
    Side side(kBrief);
    Helper helper = Helper::start("crash-joined-late");
    const auto peer = helper.line().hear<Address>();
    helper.line().tell(side.endpoint.address());
    helper.line().tell(true);
    std::thread killer([&, moment = std::chrono::microseconds(random.below(1500))] {
      std::this_thread::sleep_for(moment);  // a random moment
      helper.kill(SIGKILL);
    });
    side.endpoint.connect(peer);
    killer.join();
    helper.wait();
    finds_nobody(side.endpoint);
  }
  EXPECT_TRUE(eventually([&] { return own_holdings() == before; }))
      << ::testing::PrintToString(own_holdings()) << ", before " << ::testing::PrintToString(before);
  works_once();
}

// ---- errors caused by the peer's program

struct Misdeed {
  const char* name;
  Order order;
  ibv_wr_opcode opcode;
  ibv_wc_status status;   // of the request
  bool takes_a_receive;   // of the peer; its completion has
  ibv_wc_status receipt;  // this status
};
class Misbehaves : public Crash {
 protected:
  void answers(const Misdeed& misdeed) {
    Side side(kBrief);
    Helper helper = Helper::start("crash-obedient");
    join(side, helper);
    helper.line().tell(misdeed.order);
    ASSERT_TRUE(helper.line().hear<bool>());
    const ibv_sge piece = side.endpoint.piece(0, 64);
    ibv_send_wr request = remote_request(misdeed.opcode, 5, side.endpoint.peer);
    if (misdeed.opcode != IBV_WR_SEND) {
      request.wr.rdma.remote_addr = more.address;
      request.wr.rdma.rkey = more.rkey;
    }
    ASSERT_EQ(side.endpoint.post_send(request, {&piece, 1}), 0);
    const ibv_wc wc = side.endpoint.completion();
    EXPECT_EQ(wc.status, misdeed.status) << ibv_wc_status_str(wc.status);
    EXPECT_EQ(wc.wr_id, 5u);
    EXPECT_EQ(side.endpoint.state(), IBV_QPS_ERR);
    // The peer's receive has failed or been flushed.
    helper.line().tell(Order::kTakeCompletion);
    const auto receipt = helper.line().hear<ibv_wc_status>();
    EXPECT_EQ(receipt, misdeed.takes_a_receive ? misdeed.receipt : IBV_WC_WR_FLUSH_ERR)
        << ibv_wc_status_str(receipt);
  }
};

TEST_P(Misbehaves, UnmappedMemoryIsWritten) {
  answers({"Write", Order::kUnmap, IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, false, {}});
}

TEST_P(Misbehaves, UnmappedMemoryIsRead) {
  answers({"Read", Order::kUnmap, IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR, false, {}});
}

TEST_P(Misbehaves, UnmappedMemoryIsReceivedInto) {
  answers({"Send", Order::kUnmap, IBV_WR_SEND, IBV_WC_REM_OP_ERR, true, IBV_WC_LOC_PROT_ERR});
}

TEST_P(Misbehaves, AKeyThatIsTakenBackIsWrittenBy) {
  answers({"Write", Order::kTakeKeyBack, IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, false, {}});
}

TEST_P(Misbehaves, AKeyThatIsTakenBackIsReadBy) {
  answers({"Read", Order::kTakeKeyBack, IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR, false, {}});
}

TEST_P(Misbehaves, AKeyThatIsTakenBackIsReceivedBy) {
  answers({"Send", Order::kTakeKeyBack, IBV_WR_SEND, IBV_WC_REM_OP_ERR, true, IBV_WC_LOC_PROT_ERR});
}

TEST_P(Crash, OwnMemoryThatIsUnmappedIsALocalError) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND}) {
    Side side(kBrief);
    Helper helper = Helper::start("crash-obedient");
    join(side, helper);
    ASSERT_EQ(::munmap(side.page, kPage), 0);
    const ibv_sge piece{reinterpret_cast<uintptr_t>(side.page), 64, side.mr->lkey};
    ASSERT_EQ(side.endpoint.post_send(remote_request(opcode, 5, side.endpoint.peer), {&piece, 1}), 0);
    const ibv_wc wc = side.endpoint.completion();
    EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR) << opcode << ": " << ibv_wc_status_str(wc.status);
  }
}

TEST_P(Crash, APeerThatResetsItsQpIsNotThereAndJoinedAgainItIs) {
  Side side(kBrief);
  Helper helper = Helper::start("crash-obedient");
  join(side, helper);
  works(side.endpoint);
  helper.line().tell(Order::kReset);
  ASSERT_TRUE(helper.line().hear<bool>());
  finds_nobody(side.endpoint);
  helper.line().tell(true);
  side.join_again(helper.line());
  works(side.endpoint);
}

// ---- the agent

class AgentCrash : public Crash {
 protected:
  void join_another(const char* when) {
    SCOPED_TRACE(when);
    Side side({});
    Helper helper = Helper::start("crash-patient");
    side.join(helper.line());
    helper.line().hear<More>();
    works(side.endpoint);
  }
};

TEST_P(AgentCrash, TrafficGoesOnAndTheNextAgentJoinsOthers) {
  isolated([this] {
    Side side({});
    Helper helper = Helper::start("crash-patient");
    join(side, helper);
    Writer writer(side.endpoint);
    for (const int signal : {SIGKILL, SIGTERM}) {
      ASSERT_TRUE(writer.goes_on());
      Environment::kill_agent(signal);
      ASSERT_TRUE(writer.goes_on());
      Environment::start_agent();
      ASSERT_TRUE(writer.goes_on());
      // Starts another process, whose setup begins as soon as the agent knows this process again.
      Side another({});
      Helper newcomer = Helper::start("crash-patient");
      another.join(newcomer.line());
      newcomer.line().hear<More>();
      works(another.endpoint);
      EXPECT_EQ(::testing::Test::HasFailure(), false);
    }
    EXPECT_TRUE(writer.goes_on());
  });
}

// Both processes have opened their device, and no agent can introduce them. They use the wire, and stay
// there.
TEST_P(AgentCrash, TwoAreJoinedWithoutAnAgent) {
  isolated([this] {
    Side side({});
    Helper helper = Helper::start("crash-joined-late");
    const auto peer = helper.line().hear<Address>();
    Environment::kill_agent(SIGKILL);
    helper.line().tell(side.endpoint.address());
    helper.line().tell(true);
    side.endpoint.connect(peer);
    helper.line().hear<bool>();
    works(side.endpoint);
    Environment::start_agent();
    works(side.endpoint);
    join_another("by the next agent");
  });
}

// The agent is stopped during the connection setup, and killed before it answers.
TEST_P(AgentCrash, TheAgentIsKilledWhileTwoAreJoined) {
  isolated([this] {
    Side side({});
    Helper helper = Helper::start("crash-joined-late");
    const auto peer = helper.line().hear<Address>();
    ASSERT_EQ(::kill(Environment::agent().pid(), SIGSTOP), 0);
    helper.line().tell(side.endpoint.address());
    helper.line().tell(true);
    side.endpoint.connect(peer);
    helper.line().hear<bool>();
    works(side.endpoint);
    Environment::kill_agent(SIGKILL);
    works(side.endpoint);
    Environment::start_agent();
    works(side.endpoint);
    // A process without an answer repeats its request to the next agent.
    EXPECT_TRUE(all_take(GetParam(), ::getpid(), 1));
    EXPECT_TRUE(all_take(GetParam(), helper.pid(), 1));
    works(side.endpoint);
    join_another("by the next agent");
  });
}

std::string route_name(const ::testing::TestParamInfo<Route>& info) {
  return name_of(info.param);
}
constexpr std::array kBoth{Route::kLocal, Route::kWire};
INSTANTIATE_TEST_SUITE_P(By, Crash, ::testing::ValuesIn(kBoth), route_name);
INSTANTIATE_TEST_SUITE_P(By, Misbehaves, ::testing::ValuesIn(kBoth), route_name);
INSTANTIATE_TEST_SUITE_P(By, AgentCrash, ::testing::ValuesIn(kBoth), route_name);

}  // namespace
}  // namespace verbena::adapter::testing
