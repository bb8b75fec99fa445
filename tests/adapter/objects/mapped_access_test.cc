// SPDX-License-Identifier: Apache-2.0
// WRITEs, READs and atomics to memory that the target has mapped shared: the initiator maps it, too. The
// targets are stopped, so that they cannot help.
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/helper.h"

namespace verbena::adapter::testing {
namespace {

constexpr size_t kBytes = 4 << 20;
constexpr int kAdditions = 20'000;

// The values that a target tells.
struct Shared {
  uint64_t address = 0;
  uint32_t key = 0;
  std::array<char, 32> path{};
};
enum class Order : uint8_t { kShorten, kDeregister, kAdd };

// A target that shares memory, and obeys an order about it.
const HelperBody owner("mapped-owner", [](Line& line) {
  Shared shared;
  std::strcpy(shared.path.data(), "/dev/shm/verbena-XXXXXX");
  const UniqueFd file(::mkstemp(shared.path.data()));
  ASSERT_TRUE(file);
  ASSERT_EQ(::ftruncate(file.get(), kBytes), 0);
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  Endpoint endpoint;
  Mr mr(ibv_reg_mr(endpoint.pd.get(), memory, kBytes, kAllAccess));
  ASSERT_NE(mr, nullptr);
  line.tell(endpoint.address());
  endpoint.connect(line.hear<Address>());
  shared.address = reinterpret_cast<uintptr_t>(memory);
  shared.key = mr->rkey;
  line.tell(shared);
  const auto order = line.hear<Order>();
  // Our engine thread has written there before this order, which the thread sanitizer does not see. A verb
  // that finds nothing makes the order visible to it.
  EXPECT_TRUE(endpoint.quiet());
  switch (order) {
    case Order::kShorten:
      EXPECT_EQ(::ftruncate(file.get(), 0), 0);
      break;
    case Order::kDeregister:
      mr.reset();
      std::memset(memory, 2, kBytes);
      break;
    case Order::kAdd:
      line.tell(true);
      for (int i = 0; i < kAdditions; ++i)
        __atomic_fetch_add(static_cast<uint64_t*>(memory), 1, __ATOMIC_SEQ_CST);
      break;
  }
  line.tell(true);
  line.await_end();
});

class Mapped : public ::testing::Test {
 protected:
  Mapped() : helper(Helper::start("mapped-owner")), endpoint({.bytes = kBytes}) {
    helper.line().tell(endpoint.address());
    endpoint.connect(helper.line().hear<Address>());
    const auto shared = helper.line().hear<Shared>();
    endpoint.peer.buffer = shared.address;
    endpoint.peer.rkey = shared.key;
    const UniqueFd file(::open(shared.path.data(), O_RDWR | O_CLOEXEC));
    there =
        static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
    ::unlink(shared.path.data());
  }
  ~Mapped() override { ::munmap(there, kBytes); }
  void SetUp() override { ASSERT_NE(there, MAP_FAILED); }

  ibv_wc post(ibv_wr_opcode opcode, size_t bytes, uint64_t at = 0) {
    const ibv_sge piece = endpoint.piece(0, bytes);
    EXPECT_EQ(endpoint.post_send(request(opcode, at), {&piece, 1}), 0);
    return endpoint.completion();
  }
  ibv_send_wr request(ibv_wr_opcode opcode, uint64_t at) const {
    ibv_send_wr wr = remote_request(opcode, 1, endpoint.peer, at);
    if (opcode != IBV_WR_ATOMIC_FETCH_AND_ADD) return wr;
    wr.wr.atomic.remote_addr = endpoint.peer.buffer + at;
    wr.wr.atomic.rkey = endpoint.peer.rkey;
    wr.wr.atomic.compare_add = 1;
    return wr;
  }
  // Waits until a request completes while the target is stopped, which only the mapped route can do.
  void meet() {
    ASSERT_TRUE(eventually([&] { return writes_without_help(); }));
  }
  bool writes_without_help() {
    stop();
    const ibv_sge piece = endpoint.piece(0, 1 << 16);
    EXPECT_EQ(endpoint.post_send(request(IBV_WR_RDMA_WRITE, 0), {&piece, 1}), 0);
    ibv_wc wc{};
    const bool done = ibv_poll_cq(endpoint.cq.get(), 1, &wc) == 1;
    helper.kill(SIGCONT);
    if (!done) wc = endpoint.completion();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    return done;
  }
  void stop() {
    helper.kill(SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(helper.pid(), &status, WUNTRACED), helper.pid());
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void tell(Order order) {
    helper.line().tell(order);
    ASSERT_TRUE(helper.line().hear<bool>());
  }

  Helper helper;
  Endpoint endpoint;
  std::byte* there;  // the target's memory
};

TEST_F(Mapped, AStoppedTargetIsWritten) {
  meet();
  stop();
  for (const size_t bytes : {1, 8, 4096, 4097, 1 << 20, (1 << 20) + 1, 3 << 20}) {
    fill_random(endpoint.bytes().first(bytes), bytes);
    const ibv_wc wc = post(IBV_WR_RDMA_WRITE, bytes, 100);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << bytes;
    EXPECT_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(std::memcmp(there + 100, endpoint.buffer(), bytes), 0) << bytes;
  }
  helper.kill(SIGCONT);
}

TEST_F(Mapped, AStoppedTargetIsRead) {
  meet();
  stop();
  fill_random({there, kBytes}, 5);
  for (const size_t bytes : {1, 8, 8193, 3 << 20}) {
    const ibv_wc wc = post(IBV_WR_RDMA_READ, bytes, 7);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << bytes;
    EXPECT_EQ(wc.byte_len, bytes);
    EXPECT_EQ(std::memcmp(there + 7, endpoint.buffer(), bytes), 0) << bytes;
  }
  helper.kill(SIGCONT);
}

TEST_F(Mapped, AStoppedTargetIsChanged) {
  meet();
  stop();
  uint64_t word = 41;
  std::memcpy(there + 8, &word, sizeof word);
  const ibv_wc wc = post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 8);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(std::memcmp(endpoint.buffer(), &word, sizeof word), 0);
  std::memcpy(&word, there + 8, sizeof word);
  EXPECT_EQ(word, 42u);
  helper.kill(SIGCONT);
}

// Atomic with the owner's own threads, too (IBV_ATOMIC_GLOB).
TEST_F(Mapped, AtomicsAreAtomic) {
  meet();
  std::memset(there, 0, 8);
  helper.line().tell(Order::kAdd);
  ASSERT_TRUE(helper.line().hear<bool>());
  for (int i = 0; i < kAdditions; ++i) ASSERT_EQ(post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8).status, IBV_WC_SUCCESS);
  ASSERT_TRUE(helper.line().hear<bool>());
  uint64_t sum;
  std::memcpy(&sum, there, sizeof sum);
  EXPECT_EQ(sum, 2u * kAdditions);
}

TEST_F(Mapped, RequestsAreCompletedInOrderWithWhatGoesByPackets) {
  meet();
  for (uint64_t round = 0; round < 200; ++round) {
    const ibv_sge from = endpoint.piece(0, 512);
    const ibv_sge back = endpoint.piece(4096, 512);
    fill_random(endpoint.bytes().first(512), round);
    // A READ of no bytes, which goes as a packet.
    ibv_send_wr nothing = request(IBV_WR_RDMA_READ, 0);
    nothing.wr_id = 2;
    ASSERT_EQ(endpoint.post_send(request(IBV_WR_RDMA_WRITE, 64), {&from, 1}), 0);
    ASSERT_EQ(endpoint.post_send(nothing, {}), 0);
    ibv_send_wr read = request(IBV_WR_RDMA_READ, 64);
    read.wr_id = 3;
    ASSERT_EQ(endpoint.post_send(read, {&back, 1}), 0);
    for (const uint64_t expected : {1, 2, 3}) {
      const ibv_wc wc = endpoint.completion();
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.wr_id, expected);
    }
    ASSERT_EQ(std::memcmp(endpoint.buffer(), endpoint.buffer() + 4096, 512), 0);
  }
}

TEST_F(Mapped, AFileThatItsOwnerShortensIsAnErrorAndNoMore) {
  meet();
  tell(Order::kShorten);
  EXPECT_EQ(post(IBV_WR_RDMA_WRITE, 64, 8192).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Mapped, TheEndOfTheTargetIsNoticed) {
  meet();
  helper.kill(SIGKILL);
  helper.wait();
  ibv_wc wc{};
  do {
    wc = post(IBV_WR_RDMA_WRITE, 64);
  } while (wc.status == IBV_WC_SUCCESS);
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Mapped, NothingIsWrittenIntoMemoryThatIsNoMoreRegistered) {
  meet();
  fill_random(endpoint.bytes(), 3);
  tell(Order::kDeregister);
  EXPECT_EQ(post(IBV_WR_RDMA_WRITE, 1 << 16).status, IBV_WC_REM_ACCESS_ERR);
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(there[i], std::byte{2});
}

}  // namespace
}  // namespace verbena::adapter::testing
