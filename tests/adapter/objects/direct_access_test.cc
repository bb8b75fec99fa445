// SPDX-License-Identifier: Apache-2.0
// READs and WRITEs that the initiator carries out itself in the target's memory. The targets are stopped, so
// that they cannot help.
#include <array>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/helper.h"
#include "base/memory_apart.h"

namespace verbena::adapter::testing {
namespace {

constexpr size_t kBytes = 4 << 20;
// Addresses and keys of a target, in addition to its own buffer.
struct More {
  uint64_t readable = 0;  // registered without write access
  uint32_t readable_key = 0;
  uint32_t foreign_key = 0;  // for `readable`, with a different protection domain
};

void join(Endpoint& endpoint, Line& line) {
  line.tell(endpoint.address());
  endpoint.connect(line.hear<Address>());
}

// A target that calls no verb while it is read and written.
const HelperBody quiet("direct-quiet", [](Line& line) {
  Endpoint endpoint({.bytes = kBytes});
  fill_random(endpoint.bytes(), 1);
  Pd other(ibv_alloc_pd(endpoint.context.get()));
  std::vector<std::byte> memory(4096);
  Mr readable(ibv_reg_mr(endpoint.pd.get(), memory.data(), memory.size(), IBV_ACCESS_REMOTE_READ));
  Mr foreign(ibv_reg_mr(other.get(), memory.data(), memory.size(), IBV_ACCESS_REMOTE_READ));
  join(endpoint, line);
  line.tell(More{reinterpret_cast<uintptr_t>(memory.data()), readable->rkey, foreign->rkey});
  line.await_end();
});

// A target that changes its user before its peer connects.
const HelperBody foreign_user("direct-foreign-user", [](Line& line) {
  Endpoint endpoint({.bytes = kBytes});
  fill_random(endpoint.bytes(), 1);
  ASSERT_EQ(::setresuid(65534, 65534, 65534), 0);
  join(endpoint, line);
  line.tell(More{});
  line.await_end();
});

// A target that registers memory, tells its key, and deregisters it when ordered to.
const HelperBody fickle("direct-fickle", [](Line& line) {
  Endpoint endpoint;
  join(endpoint, line);
  auto* const memory = static_cast<std::byte*>(
      ::mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, 1 << 16);
  Mr mr(ibv_reg_mr(endpoint.pd.get(), memory, 1 << 16, kAllAccess));
  line.tell(More{reinterpret_cast<uintptr_t>(memory), mr->rkey});
  line.hear<bool>();
  mr.reset();
  std::memset(memory, 2, 1 << 16);  // no READ may see this
  line.await_end();
});

const HelperBody changing("direct-changing", [](Line& line) {
  Endpoint endpoint;
  join(endpoint, line);
  line.tell(More{});
  line.hear<bool>();
  ASSERT_EQ(ibv_rereg_mr(endpoint.mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
            0);
  line.tell(true);
  line.await_end();
});

struct DeallocMw {
  void operator()(ibv_mw* mw) const { EXPECT_EQ(ibv_dealloc_mw(mw), 0); }
};
using Mw = std::unique_ptr<ibv_mw, DeallocMw>;

// A target with windows of both types on a part of its memory, which it closes when ordered to.
struct Windows {
  uint64_t address = 0;
  uint32_t keys[2] = {};
};
constexpr size_t kWindowBytes = 8192;
const HelperBody with_windows("direct-windows", [](Line& line) {
  Endpoint endpoint({.bytes = kBytes, .access = kAllAccess | IBV_ACCESS_MW_BIND});
  fill_random(endpoint.bytes(), 1);
  const Mw one(ibv_alloc_mw(endpoint.pd.get(), IBV_MW_TYPE_1));
  const Mw two(ibv_alloc_mw(endpoint.pd.get(), IBV_MW_TYPE_2));
  join(endpoint, line);
  line.tell(More{});
  const uint64_t address = reinterpret_cast<uintptr_t>(endpoint.buffer()) + 100;
  const auto bind = [&](ibv_mw& mw, size_t length) {
    ibv_send_wr request = send_request(1);
    request.opcode = IBV_WR_BIND_MW;
    mw.rkey = ibv_inc_rkey(mw.rkey);
    request.bind_mw = {
        &mw, mw.rkey, {endpoint.mr.get(), address, length, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE}};
    ASSERT_EQ(endpoint.post_send(request, {}), 0);
    ASSERT_EQ(endpoint.completion().status, IBV_WC_SUCCESS);
  };
  bind(*one, kWindowBytes);
  bind(*two, kWindowBytes);
  line.tell(Windows{address, {one->rkey, two->rkey}});
  line.hear<bool>();
  bind(*one, 0);
  ibv_send_wr invalidation = send_request(2);
  invalidation.opcode = IBV_WR_LOCAL_INV;
  invalidation.invalidate_rkey = two->rkey;
  ASSERT_EQ(endpoint.post_send(invalidation, {}), 0);
  ASSERT_EQ(endpoint.completion().status, IBV_WC_SUCCESS);
  line.tell(true);
  line.await_end();
});

class Direct : public ::testing::Test {
 protected:
  explicit Direct(const std::string& target = "direct-quiet", const Options& options = {.bytes = kBytes})
      : helper(Helper::start(target)), endpoint(options) {
    join(endpoint, helper.line());
    more = helper.line().hear<More>();
  }

  ibv_wc read(size_t bytes, uint64_t from = 0, size_t to = 0) {
    const ibv_sge piece = endpoint.piece(to, bytes);
    EXPECT_EQ(endpoint.post_send(remote_request(IBV_WR_RDMA_READ, 1, endpoint.peer, from), {&piece, 1}), 0);
    return endpoint.completion();
  }
  // Whether a READ completes while the target is stopped.
  bool reads_without_help() {
    stop();
    const ibv_sge piece = endpoint.piece(0, 8);
    EXPECT_EQ(endpoint.post_send(remote_request(IBV_WR_RDMA_READ, 1, endpoint.peer), {&piece, 1}), 0);
    ibv_wc wc{};
    const bool done = ibv_poll_cq(endpoint.cq.get(), 1, &wc) == 1;
    helper.kill(SIGCONT);
    if (!done) wc = endpoint.completion();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    return done;
  }
  // Waits until both processes know that they are connected.
  void meet() {
    ASSERT_TRUE(eventually([&] { return reads_without_help(); }));
  }
  void stop() {
    helper.kill(SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(helper.pid(), &status, WUNTRACED), helper.pid());
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  std::span<const std::byte> got(size_t bytes, size_t at = 0) { return endpoint.bytes().subspan(at, bytes); }

  Helper helper;
  Endpoint endpoint;
  More more;
};

bool are_random(std::span<const std::byte> bytes, uint64_t seed, size_t whole, size_t from = 0) {
  std::vector<std::byte> expected(whole);
  fill_random(expected, seed);
  return std::memcmp(expected.data() + from, bytes.data(), bytes.size()) == 0;
}

TEST_F(Direct, AStoppedTargetIsRead) {
  meet();
  stop();
  for (const size_t bytes : {1, 8, 4095, 8192, 8193, 65536, 1 << 20, (1 << 20) + 1, 3 << 20}) {
    std::memset(endpoint.buffer(), 0, bytes);
    const ibv_wc wc = read(bytes, 100);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << bytes;
    EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
    EXPECT_EQ(wc.byte_len, bytes);
    EXPECT_TRUE(are_random(got(bytes), 1, kBytes, 100)) << bytes;
  }
  helper.kill(SIGCONT);
}

// The target is asleep: one that is stopped just after a wake-up is not written directly.
TEST_F(Direct, AStoppedTargetIsWritten) {
  meet();
  const auto writes_without_help = [&](uint64_t seed, size_t bytes) {
    fill_random(endpoint.bytes().first(bytes), seed);
    const ibv_sge piece = endpoint.piece(0, bytes);
    stop();
    EXPECT_EQ(endpoint.post_send(remote_request(IBV_WR_RDMA_WRITE, 7, endpoint.peer, 100), {&piece, 1}), 0);
    ibv_wc wc{};
    const bool done = ibv_poll_cq(endpoint.cq.get(), 1, &wc) == 1;
    helper.kill(SIGCONT);
    if (!done) wc = endpoint.completion();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(read(bytes, 100, 10'000).status, IBV_WC_SUCCESS);
    EXPECT_TRUE(are_random(got(bytes, 10'000), seed, bytes));
    return done;
  };
  for (const size_t bytes : {1, 8, 4096}) {
    ASSERT_TRUE(eventually([&] { return writes_without_help(bytes, bytes); })) << bytes;
  }
}

TEST_F(Direct, AReadIsScatteredOverItsPieces) {
  meet();
  stop();
  for (const size_t each : {3, 5000}) {
    const std::array<ibv_sge, 3> pieces{endpoint.piece(0, each), endpoint.piece(20'000, each),
                                        endpoint.piece(10'000, each)};
    ASSERT_EQ(endpoint.post_send(remote_request(IBV_WR_RDMA_READ, 1, endpoint.peer), pieces), 0);
    ASSERT_EQ(endpoint.completion().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(are_random(got(each, 0), 1, kBytes, 0));
    EXPECT_TRUE(are_random(got(each, 20'000), 1, kBytes, each));
    EXPECT_TRUE(are_random(got(each, 10'000), 1, kBytes, 2 * each));
  }
  helper.kill(SIGCONT);
}

TEST_F(Direct, ReadsAreCompletedInOrderWithWhatGoesByPackets) {
  meet();
  for (uint64_t round = 0; round < 200; ++round) {
    const ibv_sge there = endpoint.piece(0, 512);
    const ibv_sge back = endpoint.piece(4096, 512);
    const ibv_sge again = endpoint.piece(8192, 512);
    fill_random(endpoint.bytes().first(512), round);
    ASSERT_EQ(endpoint.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, endpoint.peer), {&there, 1}), 0);
    ASSERT_EQ(endpoint.post_send(remote_request(IBV_WR_RDMA_READ, 2, endpoint.peer), {&back, 1}), 0);
    ASSERT_EQ(endpoint.post_send(remote_request(IBV_WR_RDMA_READ, 3, endpoint.peer), {&again, 1}), 0);
    for (const uint64_t expected : {1, 2, 3}) {
      const ibv_wc wc = endpoint.completion();
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.wr_id, expected);
    }
    ASSERT_TRUE(are_random(got(512, 4096), round, 512));
    ASSERT_TRUE(are_random(got(512, 8192), round, 512));
  }
}

// ---- errors, which are the same as the target's own

struct Wrong {
  const char* name;
  void (*change)(ibv_send_wr&, const Address&, const More&);
  ibv_wc_status expected;
};
class DirectError : public Direct, public ::testing::WithParamInterface<Wrong> {};

TEST_P(DirectError, IsThatOfTheWire) {
  meet();
  const ibv_sge piece = endpoint.piece(0, 64);
  ibv_send_wr request = remote_request(IBV_WR_RDMA_READ, 5, endpoint.peer);
  GetParam().change(request, endpoint.peer, more);
  ASSERT_EQ(endpoint.post_send(request, {&piece, 1}), 0);
  const ibv_wc wc = endpoint.completion();
  EXPECT_EQ(wc.status, GetParam().expected) << ibv_wc_status_str(wc.status);
  EXPECT_EQ(wc.wr_id, 5u);
}

INSTANTIATE_TEST_SUITE_P(
    Requests, DirectError,
    ::testing::Values(Wrong{"NoSuchKey",
                            [](ibv_send_wr& wr, const Address&, const More&) { wr.wr.rdma.rkey ^= 0x10000; },
                            IBV_WC_REM_ACCESS_ERR},
                      Wrong{"AnotherTag",
                            [](ibv_send_wr& wr, const Address&, const More&) { wr.wr.rdma.rkey ^= 1; },
                            IBV_WC_REM_ACCESS_ERR},
                      Wrong{"BehindTheEnd",
                            [](ibv_send_wr& wr, const Address& peer, const More&) {
                              wr.wr.rdma.remote_addr = peer.buffer + kBytes - 63;
                            },
                            IBV_WC_REM_ACCESS_ERR},
                      Wrong{"BeforeTheStart",
                            [](ibv_send_wr& wr, const Address& peer, const More&) {
                              wr.wr.rdma.remote_addr = peer.buffer - 1;
                            },
                            IBV_WC_REM_ACCESS_ERR},
                      Wrong{"AnotherDomain",
                            [](ibv_send_wr& wr, const Address&, const More& more) {
                              wr.wr.rdma.remote_addr = more.readable;
                              wr.wr.rdma.rkey = more.foreign_key;
                            },
                            IBV_WC_REM_ACCESS_ERR},
                      Wrong{"WithoutTheRightToWrite",
                            [](ibv_send_wr& wr, const Address&, const More& more) {
                              wr.opcode = IBV_WR_RDMA_WRITE;
                              wr.wr.rdma.remote_addr = more.readable;
                              wr.wr.rdma.rkey = more.readable_key;
                            },
                            IBV_WC_REM_ACCESS_ERR},
                      Wrong{"ReadOnlyMemoryIsRead",
                            [](ibv_send_wr& wr, const Address&, const More& more) {
                              wr.wr.rdma.remote_addr = more.readable;
                              wr.wr.rdma.rkey = more.readable_key;
                            },
                            IBV_WC_SUCCESS}),
    [](const auto& wrong) { return wrong.param.name; });

TEST_F(Direct, ALocalBufferThatIsGoneIsALocalError) {
  meet();
  void* const memory = map_apart(8192);
  Mr mr(ibv_reg_mr(endpoint.pd.get(), memory, 8192, IBV_ACCESS_LOCAL_WRITE));
  ASSERT_NE(mr, nullptr);
  ::munmap(memory, 8192);
  const ibv_sge piece{reinterpret_cast<uintptr_t>(memory), 64, mr->lkey};
  ASSERT_EQ(endpoint.post_send(remote_request(IBV_WR_RDMA_READ, 1, endpoint.peer), {&piece, 1}), 0);
  EXPECT_EQ(endpoint.completion().status, IBV_WC_LOC_PROT_ERR);
}

class DirectToChanging : public Direct {
 protected:
  DirectToChanging() : Direct("direct-changing") {}
};

TEST_F(DirectToChanging, RightsThatAreTakenAwayAreGone) {
  meet();
  helper.line().tell(true);
  helper.line().hear<bool>();
  EXPECT_EQ(read(64).status, IBV_WC_REM_ACCESS_ERR);
}

class DirectToFickle : public Direct {
 protected:
  DirectToFickle() : Direct("direct-fickle") {}
};

// Memory is read repeatedly while it is deregistered. Every READ returns its registered contents, until READs
// fail.
TEST_F(DirectToFickle, NothingIsReadOfMemoryThatIsNoMoreRegistered) {
  meet();
  endpoint.peer.rkey = more.readable_key;
  endpoint.peer.buffer = more.readable;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(read(1 << 16 >> i % 8).status, IBV_WC_SUCCESS);
  helper.line().tell(true);
  for (int i = 0;; ++i) {
    const size_t bytes = (1 << 16) >> i % 8;
    const ibv_wc wc = read(bytes);
    if (wc.status != IBV_WC_SUCCESS) {
      EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
      break;
    }
    for (const std::byte byte : got(bytes)) ASSERT_EQ(byte, std::byte{1});
  }
}

class DirectToWindows : public Direct, public ::testing::WithParamInterface<size_t> {
 protected:
  DirectToWindows() : Direct("direct-windows") {}

  // Directs the requests to these windows.
  void use(const Windows& windows) {
    endpoint.peer.buffer = windows.address;
    endpoint.peer.rkey = windows.keys[GetParam()];
  }
};

TEST_P(DirectToWindows, OfAStoppedTargetItIsReadAndWritten) {
  meet();
  use(helper.line().hear<Windows>());
  ASSERT_TRUE(eventually([&] { return reads_without_help(); }));
  stop();
  EXPECT_EQ(read(kWindowBytes).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(are_random(got(kWindowBytes), 1, kBytes, 100));
  fill_random(endpoint.bytes().first(64), 2);
  const ibv_sge piece = endpoint.piece(0, 64);
  ASSERT_EQ(endpoint.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, endpoint.peer, 8), {&piece, 1}), 0);
  ASSERT_EQ(endpoint.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(read(64, 8, 64).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(endpoint.buffer(), endpoint.buffer() + 64, 64), 0);
  helper.kill(SIGCONT);
}

TEST_P(DirectToWindows, ItEndsWhereItEnds) {
  meet();
  use(helper.line().hear<Windows>());
  EXPECT_EQ(read(64, kWindowBytes - 63).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_P(DirectToWindows, WhatWasTakenBackIsGone) {
  meet();
  use(helper.line().hear<Windows>());
  ASSERT_TRUE(eventually([&] { return reads_without_help(); }));
  helper.line().tell(true);
  helper.line().hear<bool>();
  EXPECT_EQ(read(64).status, IBV_WC_REM_ACCESS_ERR);
}

INSTANTIATE_TEST_SUITE_P(OfType, DirectToWindows, ::testing::Values(0, 1),
                         [](const auto& one) { return std::to_string(one.param + 1); });

TEST_F(Direct, AKilledTargetIsNotRead) {
  meet();
  helper.kill(SIGKILL);
  helper.wait();
  ibv_wc wc{};
  do {
    wc = read(64);
  } while (wc.status == IBV_WC_SUCCESS);
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
}

class DirectToForeignUser : public Direct {
 protected:
  DirectToForeignUser() : Direct("direct-foreign-user") {}
};

TEST_F(DirectToForeignUser, GoesByPackets) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can be two users";
  for (int i = 0; i < 100; ++i) ASSERT_EQ(read(8).status, IBV_WC_SUCCESS);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(reads_without_help());
  EXPECT_TRUE(are_random(got(8), 1, kBytes));
}

}  // namespace
}  // namespace verbena::adapter::testing
