// SPDX-License-Identifier: Apache-2.0
// Registered memory that is unmapped, and the application's own fault handlers.
#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include <sys/mman.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"

namespace verbena::adapter::testing {
namespace {

constexpr size_t kBytes = 1 << 16;

// Registered pages that unmap() makes inaccessible.
class LostMemory {
 public:
  explicit LostMemory(Endpoint& endpoint)
      : at_(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        mr_(ibv_reg_mr(endpoint.pd.get(), at_, kBytes, static_cast<int>(kAllAccess))) {
    EXPECT_NE(mr_, nullptr);
  }
  ~LostMemory() { ::munmap(at_, kBytes); }

  // Makes the memory inaccessible rather than unmapped, so that another thread's allocation cannot take its
  // place.
  void unmap() {
    EXPECT_NE(::mmap(at_, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), MAP_FAILED);
  }
  ibv_sge piece(uint32_t bytes) const { return {reinterpret_cast<uint64_t>(at_), bytes, mr_->lkey}; }
  Address address(Endpoint& endpoint) const {
    Address address = endpoint.address();
    address.buffer = reinterpret_cast<uint64_t>(at_);
    address.rkey = mr_->rkey;
    return address;
  }

 private:
  void* at_;
  Mr mr_;
};

TEST(LostMemory, OfTheSenderIsALocalProtectionError) {
  for (const uint32_t bytes : {8u, 1024u, 60'000u}) {
    SCOPED_TRACE(bytes);
    Pair pair;
    LostMemory lost(pair.a);
    lost.unmap();
    const ibv_sge piece = lost.piece(bytes);
    ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, pair.b.address()), {&piece, 1}), 0);
    EXPECT_EQ(pair.a.completion().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(pair.b.state(), IBV_QPS_RTS);
  }
}

TEST(LostMemory, OfAReaderIsALocalProtectionError) {
  Pair pair;
  LostMemory lost(pair.a);
  lost.unmap();
  const ibv_sge piece = lost.piece(5000);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_READ, 1, pair.b.address()), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_LOC_PROT_ERR);
}

TEST(LostMemory, OfTheTargetIsARemoteAccessError) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    SCOPED_TRACE(opcode);
    Pair pair;
    LostMemory lost(pair.b);
    lost.unmap();
    const ibv_sge piece = pair.a.piece(0, 4000);
    ASSERT_EQ(pair.a.post_send(remote_request(opcode, 1, lost.address(pair.b)), {&piece, 1}), 0);
    EXPECT_EQ(pair.a.completion().status, IBV_WC_REM_ACCESS_ERR);
    ibv_async_event event;
    ASSERT_EQ(ibv_get_async_event(pair.b.context.get(), &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    ibv_ack_async_event(&event);
  }
}

TEST(LostMemory, OfAReceiveIsTheReceiversError) {
  Pair pair;
  LostMemory lost(pair.b);
  ASSERT_EQ(pair.b.post_receive(1, lost.piece(4096)), 0);
  lost.unmap();
  const ibv_sge piece = pair.a.piece(0, 64);
  ASSERT_EQ(pair.a.post_send(send_request(2), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(pair.b.completion().status, IBV_WC_LOC_PROT_ERR);
}

TEST(LostMemory, OfADatagramsReceiverIsItsErrorAlone) {
  Pair pair({.type = IBV_QPT_UD});
  LostMemory lost(pair.b);
  ASSERT_EQ(pair.b.post_receive(1, lost.piece(4096)), 0);
  lost.unmap();
  const ibv_sge piece = pair.a.piece(0, 64);
  ASSERT_EQ(pair.a.post_send(send_request(2), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.completion().status, IBV_WC_LOC_PROT_ERR);
}

std::atomic<int> faults_of_the_application{0};

void count_fault(int, siginfo_t*, void*) {
  faults_of_the_application = faults_of_the_application + 1;
}

// A crash reporter that the application installs after opening its devices.
class CrashReporter {
 public:
  CrashReporter() {
    faults_of_the_application = 0;
    struct sigaction reporter {};
    reporter.sa_sigaction = count_fault;
    reporter.sa_flags = SA_SIGINFO;
    EXPECT_EQ(::sigaction(SIGSEGV, &reporter, &ours_), 0);
  }
  ~CrashReporter() { ::sigaction(SIGSEGV, &ours_, nullptr); }
  CrashReporter(const CrashReporter&) = delete;
  CrashReporter& operator=(const CrashReporter&) = delete;

 private:
  struct sigaction ours_ {};
};

TEST(LostMemory, IsSurvivedBesideHandlersInstalledLater) {
  Pair pair;
  LostMemory lost(pair.b);
  const CrashReporter reporter;
  {
    LostMemory another(pair.b);  // registering reinstalls our fault handlers
  }
  lost.unmap();
  const ibv_sge piece = pair.a.piece(0, 64);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, lost.address(pair.b)), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(faults_of_the_application, 0) << "a fault of ours is not shown to the application";
  ::raise(SIGSEGV);
  EXPECT_EQ(faults_of_the_application, 1) << "and its own still are";
}

// The application need neither register nor sleep: a thread that has called verbs for a millisecond
// reinstalls our handlers.
TEST(LostMemory, IsSurvivedBesideAHandlerInstalledAMillisecondAgo) {
  Pair pair;
  LostMemory lost(pair.a);
  const CrashReporter reporter;
  const TimePoint seen = MonotonicClock::now() + std::chrono::milliseconds(2);
  while (MonotonicClock::now() < seen) EXPECT_TRUE(pair.a.quiet());
  lost.unmap();
  const ibv_sge piece = lost.piece(1024);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, pair.b.address()), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(faults_of_the_application, 0);
}

// The kernel would kill the process for a fault whose signal is blocked.
TEST(LostMemory, IsSurvivedInAThreadThatBlocksAllSignals) {
  for (const bool is_inline : {false, true}) {
    SCOPED_TRACE(is_inline);
    Pair pair;
    LostMemory lost(pair.a);
    lost.unmap();
    std::thread([&] {
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
      const ibv_sge piece = lost.piece(64);
      ibv_send_wr request = remote_request(IBV_WR_RDMA_WRITE, 1, pair.b.address());
      if (is_inline) {
        request.send_flags |= IBV_SEND_INLINE;
        EXPECT_NE(pair.a.post_send(request, {&piece, 1}), 0);
        return;
      }
      ASSERT_EQ(pair.a.post_send(request, {&piece, 1}), 0);
      EXPECT_EQ(pair.a.completion().status, IBV_WC_LOC_PROT_ERR);
    }).join();
  }
}

TEST(LostMemory, IsGuardedAgainByTheEngineThreadWithoutARegistration) {
  Pair pair;
  LostMemory lost(pair.b);
  const CrashReporter reporter;
  // The engine thread checks the handlers while it is awake: traffic keeps it awake.
  const auto replaced = [] {
    struct sigaction now {};
    ::sigaction(SIGSEGV, nullptr, &now);
    return now.sa_sigaction != count_fault;
  };
  const ibv_sge piece = pair.a.piece(0, 64);
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, pair.b.address()), {&piece, 1}), 0);
    EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
    return replaced();
  }));
}

}  // namespace
}  // namespace verbena::adapter::testing
