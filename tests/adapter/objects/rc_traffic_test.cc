// SPDX-License-Identifier: Apache-2.0
// RC through the C ABI, the agent and the wire: every operation, with checks of every byte.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "base/random.h"
#include "base/seed.h"

namespace verbena::adapter::testing {
namespace {

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// Cuts [0, length) into at most `most` pieces, some of them empty.
std::vector<ibv_sge> random_pieces(Endpoint& endpoint, size_t length, size_t most, Random& random) {
  std::vector<size_t> cuts = {0, length};
  for (uint64_t i = random.below(most); i > 0; --i) cuts.push_back(random.below(length + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<ibv_sge> pieces;
  for (size_t i = 1; i < cuts.size(); ++i)
    pieces.push_back(endpoint.piece(cuts[i - 1], cuts[i] - cuts[i - 1]));
  return pieces;
}

// SEND, WRITE, WRITE with immediate, READ. On a slow machine a READ may be repeated. The responder then reads
// its memory again after the program has seen the completion: a race for the thread sanitizer.
#ifdef __SANITIZE_THREAD__
constexpr uint64_t kKinds = 3;
#else
constexpr uint64_t kKinds = 4;
#endif

TEST(RcTraffic, MovesEveryByteOfMessagesOfAnySizeAndShape) {
  Pair pair({.bytes = 300'000});
  const uint64_t seed = test::seed();
  Random random(seed);
  for (uint64_t i = 0; i < 60; ++i) {
    const size_t length = random.below(2) == 0 ? random.below(300) : random.below(300'000);
    fill_random(pair.a.bytes(), seed + i);
    std::fill(pair.b.bytes().begin(), pair.b.bytes().end(), std::byte{0xee});
    const std::vector<std::byte> sent(pair.a.buffer(), pair.a.buffer() + length);
    const auto from = random_pieces(pair.a, length, 8, random);
    const auto into = random_pieces(pair.b, length, 8, random);
    const uint64_t kind = random.below(kKinds);
    ibv_send_wr request = kind == 0 ? send_request(i)
                                    : remote_request(kind == 1   ? IBV_WR_RDMA_WRITE
                                                     : kind == 2 ? IBV_WR_RDMA_WRITE_WITH_IMM
                                                                 : IBV_WR_RDMA_READ,
                                                     i, pair.b.address());
    request.imm_data = 0xfeed;
    if (kind == 3) {  // READ: data go from b to a
      fill_random(pair.b.bytes(), seed + i);
      std::fill(pair.a.bytes().begin(), pair.a.bytes().end(), std::byte{0xee});
    }
    if (kind == 0 || kind == 2) {
      ASSERT_EQ(pair.b.post_receive(i, into), 0);
    }
    ASSERT_EQ(pair.a.post_send(request, from), 0);
    const ibv_wc wc = pair.a.completion();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS)
        << "message " << i << ", kind " << kind << ", " << length << " bytes";
    ASSERT_EQ(wc.wr_id, i);
    if (kind == 0 || kind == 2) {
      const ibv_wc received = pair.b.completion();
      ASSERT_EQ(received.status, IBV_WC_SUCCESS);
      ASSERT_EQ(received.byte_len, length);
      ASSERT_EQ(received.opcode, kind == 0 ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
    }
    Endpoint& target = kind == 3 ? pair.a : pair.b;
    ASSERT_TRUE(equal(target.bytes().first(length), sent)) << "message " << i << ", kind " << kind;
    const auto rest = target.bytes().subspan(length);
    ASSERT_TRUE(std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0xee}; }));
  }
}

TEST(RcTraffic, GoesOverIpv6Too) {
  Pair pair({.ipv4 = false});
  ASSERT_GE(find_gid(pair.a.context.get(), false), 0);
  fill_random(pair.a.bytes(), 1);
  const ibv_sge piece = pair.a.piece(0, 10'000);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, pair.b.address()), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(equal(pair.a.bytes().first(10'000), pair.b.bytes().first(10'000)));
}

TEST(RcTraffic, TakesInlineDataWhilePosting) {
  Pair pair;
  ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 256)), 0);
  std::byte here[200];  // not registered, and freed right after posting
  fill_random(here, 5);
  const std::vector<std::byte> sent(here, here + sizeof here);
  const ibv_sge pieces[] = {{reinterpret_cast<uint64_t>(here), 150, 0},
                            {reinterpret_cast<uint64_t>(here) + 150, 50, 0}};
  ASSERT_EQ(pair.a.post_send(send_request(2, IBV_SEND_SIGNALED | IBV_SEND_INLINE), pieces), 0);
  std::fill(std::begin(here), std::end(here), std::byte{0});
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.completion().byte_len, 200u);
  EXPECT_TRUE(equal(pair.b.bytes().first(200), sent));
}

TEST(RcTraffic, CarriesEmptyMessages) {
  Pair pair;
  ASSERT_EQ(pair.b.post_receive(1, std::span<const ibv_sge>()), 0);
  ASSERT_EQ(pair.a.post_send(send_request(2), {}), 0);
  EXPECT_EQ(pair.a.completion().wr_id, 2u);
  const ibv_wc received = pair.b.completion();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.byte_len, 0u);
  // Without data, keys and addresses are not checked.
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    ibv_send_wr request = remote_request(opcode, 3, {});
    ASSERT_EQ(pair.a.post_send(request, {}), 0);
    EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  }
}

TEST(RcTraffic, DeliversImmediateData) {
  Pair pair;
  for (uint64_t i = 0; i < 2; ++i) ASSERT_EQ(pair.b.post_receive(i, pair.b.piece(0, 64)), 0);
  const ibv_sge piece = pair.a.piece(0, 33);
  ibv_send_wr request = remote_request(IBV_WR_RDMA_WRITE_WITH_IMM, 1, pair.b.address());
  request.imm_data = 0x01020304;
  ASSERT_EQ(pair.a.post_send(request, {&piece, 1}), 0);
  request = send_request(2);
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = 0xa0b0c0d0;
  ASSERT_EQ(pair.a.post_send(request, {&piece, 1}), 0);
  const ibv_wc written = pair.b.completion();
  EXPECT_EQ(written.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(written.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(written.imm_data, 0x01020304u);
  EXPECT_EQ(written.byte_len, 33u);
  const ibv_wc sent = pair.b.completion();
  EXPECT_EQ(sent.opcode, IBV_WC_RECV);
  EXPECT_EQ(sent.imm_data, 0xa0b0c0d0u);
}

TEST(RcTraffic, DoesAtomicsOnceEach) {
  Pair pair;
  auto* counter = reinterpret_cast<uint64_t*>(pair.b.buffer());
  const auto* before = reinterpret_cast<const uint64_t*>(pair.a.buffer());
  *counter = 100;
  const ibv_sge piece = pair.a.piece(0, 8);
  for (uint64_t i = 0; i < 50; ++i) {
    ibv_send_wr request = remote_request(IBV_WR_ATOMIC_FETCH_AND_ADD, i, pair.b.address());
    request.wr.atomic.compare_add = 3;
    ASSERT_EQ(pair.a.post_send(request, {&piece, 1}), 0);
    const ibv_wc wc = pair.a.completion();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
    EXPECT_EQ(*before, 100 + 3 * i);
  }
  EXPECT_EQ(*counter, 250u);
  for (const uint64_t expected : {250u, 7u}) {  // the second finds a different value and swaps nothing
    ibv_send_wr request = remote_request(IBV_WR_ATOMIC_CMP_AND_SWP, 1, pair.b.address());
    request.wr.atomic.compare_add = expected;
    request.wr.atomic.swap = 999;
    ASSERT_EQ(pair.a.post_send(request, {&piece, 1}), 0);
    const ibv_wc wc = pair.a.completion();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(*before, expected == 250 ? 250u : 999u);
    EXPECT_EQ(*counter, 999u);
  }
}

TEST(RcTraffic, CompletesAListInItsOrder) {
  Pair pair({.cqe = 512});
  constexpr uint64_t kRequests = 48;
  std::vector<ibv_sge> pieces;
  std::vector<ibv_send_wr> requests;
  const Address peer = pair.b.address();
  for (uint64_t i = 0; i < kRequests; ++i) {
    pieces.push_back(pair.a.piece(i * 64, 64));
    requests.push_back(remote_request(i % 3 == 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, i, peer, i * 64));
  }
  for (uint64_t i = 0; i < kRequests; ++i) {
    requests[i].sg_list = &pieces[i];
    requests[i].num_sge = 1;
    requests[i].next = i + 1 < kRequests ? &requests[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(pair.a.qp.get(), requests.data(), &bad), 0);
  for (uint64_t i = 0; i < kRequests; ++i) {
    const ibv_wc wc = pair.a.completion();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, i);
    EXPECT_EQ(wc.opcode, i % 3 == 2 ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
  }
}

TEST(RcTraffic, CompletesOnlyWhatIsSignalled) {
  Pair pair;
  const ibv_sge piece = pair.a.piece(0, 8);
  for (uint64_t i = 0; i < 200; ++i) {  // more than the ring holds: unsignaled requests make room, too
    const unsigned flags = i % 10 == 9 ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0u;
    ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, i, pair.b.address(), 0, flags), {&piece, 1}),
              0);
    if (flags != 0) {
      EXPECT_EQ(pair.a.completion().wr_id, i);
    }
  }
  EXPECT_TRUE(pair.a.quiet());

  Pair signals_all({.signal_all = true});
  ASSERT_EQ(signals_all.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 7, signals_all.b.address(), 0, 0),
                                    {&piece, 0}),
            0);
  EXPECT_EQ(signals_all.a.completion().wr_id, 7u);
}

// Adapters do the same, and programs rely on it. A sender whose last message was acknowledged may destroy its
// QP, and so may the receiver of that message.
TEST(RcTraffic, TakesWhatHasComeBeforeAQueuePairEnds) {
  Pair pair;
  ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 8)), 0);
  const ibv_sge piece = pair.a.piece(0, 8);
  ASSERT_EQ(pair.a.post_send(send_request(2), {&piece, 1}), 0);
  pair.b.modify_to(IBV_QPS_ERR);
  EXPECT_EQ(pair.b.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
}

TEST(RcTraffic, AcknowledgesWhatHasComeBeforeAQueuePairIsDestroyed) {
  Pair pair;
  ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 8)), 0);
  const ibv_sge piece = pair.a.piece(0, 8);
  ASSERT_EQ(pair.a.post_send(send_request(2), {&piece, 1}), 0);
  pair.b.qp.reset();
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
}

TEST(RcTraffic, WaitsForAReceiver) {
  Pair pair;
  const ibv_sge piece = pair.a.piece(0, 8);
  ASSERT_EQ(pair.a.post_send(send_request(1), {&piece, 1}), 0);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(pair.a.quiet());
  ASSERT_EQ(pair.b.post_receive(2, pair.b.piece(0, 8)), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
}

TEST(RcTraffic, GivesUpOnAReceiverThatNeverComes) {
  Pair pair({.rnr_retries = 1});
  const ibv_sge piece = pair.a.piece(0, 8);
  ASSERT_EQ(pair.a.post_send(send_request(1), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(pair.a.state(), IBV_QPS_ERR);
}

struct Refusal {
  const char* what;
  ibv_wr_opcode opcode;
  unsigned access;  // of the peer's QP and memory
  bool wrong_key;
  uint64_t offset;  // from the start of the peer's buffer of 64 KiB
  ibv_wc_status status;
};

TEST(RcTraffic, ReportsWhatThePeerRefuses) {
  constexpr unsigned kWrite = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  constexpr unsigned kRead = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  const Refusal cases[] = {
      {"WRITE with a wrong key", IBV_WR_RDMA_WRITE, kAllAccess, true, 0, IBV_WC_REM_ACCESS_ERR},
      {"READ with a wrong key", IBV_WR_RDMA_READ, kAllAccess, true, 0, IBV_WC_REM_ACCESS_ERR},
      {"an atomic with a wrong key", IBV_WR_ATOMIC_FETCH_AND_ADD, kAllAccess, true, 0, IBV_WC_REM_ACCESS_ERR},
      {"WRITE past the end", IBV_WR_RDMA_WRITE, kAllAccess, false, 65'536 - 63, IBV_WC_REM_ACCESS_ERR},
      {"READ past the end", IBV_WR_RDMA_READ, kAllAccess, false, 65'536 - 63, IBV_WC_REM_ACCESS_ERR},
      {"an atomic past the end", IBV_WR_ATOMIC_FETCH_AND_ADD, kAllAccess, false, 65'536,
       IBV_WC_REM_ACCESS_ERR},
      {"WRITE where reading is allowed", IBV_WR_RDMA_WRITE, kRead, false, 0, IBV_WC_REM_INV_REQ_ERR},
      {"READ where writing is allowed", IBV_WR_RDMA_READ, kWrite, false, 0, IBV_WC_REM_INV_REQ_ERR},
      {"an atomic where it is not", IBV_WR_ATOMIC_CMP_AND_SWP, kWrite, false, 0, IBV_WC_REM_INV_REQ_ERR},
  };
  for (const Refusal& c : cases) {
    SCOPED_TRACE(c.what);
    Pair pair({}, {.access = c.access});
    fill_random(pair.b.bytes(), 8);
    const std::vector<std::byte> before(pair.b.bytes().begin(), pair.b.bytes().end());
    Address peer = pair.b.address();
    if (c.wrong_key) peer.rkey ^= 0x100;
    const ibv_sge piece = pair.a.piece(0, 64);
    ASSERT_EQ(pair.a.post_send(remote_request(c.opcode, 1, peer, c.offset), {&piece, 1}), 0);
    ASSERT_EQ(pair.a.post_receive(2, {&piece, 1}), 0);
    EXPECT_EQ(pair.a.completion().status, c.status);
    const ibv_wc flushed = pair.a.completion();
    EXPECT_EQ(flushed.wr_id, 2u);
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(pair.a.state(), IBV_QPS_ERR);
    EXPECT_EQ(pair.b.state(), IBV_QPS_ERR);
    EXPECT_TRUE(equal(before, pair.b.bytes())) << "nothing was written";
  }
}

TEST(RcTraffic, KeysAreOfAProtectionDomain) {
  Pair pair;
  Pd other(ibv_alloc_pd(pair.b.context.get()));
  Mr elsewhere(ibv_reg_mr(other.get(), pair.b.buffer(), 64, kAllAccess));
  Address peer = pair.b.address();
  peer.rkey = elsewhere->rkey;
  const ibv_sge piece = pair.a.piece(0, 8);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, peer), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(RcTraffic, AKeyIsGoneWithItsRegion) {
  Pair pair;
  std::vector<std::byte> memory(64);
  Mr mr(ibv_reg_mr(pair.b.pd.get(), memory.data(), memory.size(), kAllAccess));
  Address peer = pair.b.address();
  peer.rkey = mr->rkey;
  peer.buffer = reinterpret_cast<uint64_t>(memory.data());
  const ibv_sge piece = pair.a.piece(0, 8);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, peer), {&piece, 1}), 0);
  ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  mr.reset();
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 2, peer), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(RcTraffic, RegionsMayStartAtAnyAddressForTheirPeers) {
  Pair pair;
  std::vector<std::byte> memory(8192);
  struct Case {
    uint64_t iova;
    unsigned access;
    uint64_t first;
  };
  for (const Case& c :
       {Case{0x123456789000, kAllAccess, 0x123456789000},
        Case{reinterpret_cast<uint64_t>(memory.data()), kAllAccess | IBV_ACCESS_ZERO_BASED, 0}}) {
    Mr mr(ibv_reg_mr_iova(pair.b.pd.get(), memory.data(), memory.size(), c.iova, static_cast<int>(c.access)));
    ASSERT_NE(mr, nullptr);
    Address peer = pair.b.address();
    peer.rkey = mr->rkey;
    peer.buffer = c.first;
    fill_random(pair.a.bytes(), c.iova);
    const ibv_sge piece = pair.a.piece(0, 100);
    ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, peer, 5000), {&piece, 1}), 0);
    ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(equal(pair.a.bytes().first(100), std::span(memory).subspan(5000, 100)));
  }
}

TEST(RcTraffic, ReportsWhatIsWrongHere) {
  const auto run = [](const char* what, auto make_piece, ibv_wr_opcode opcode, unsigned access) {
    SCOPED_TRACE(what);
    Pair pair({.access = access}, {});
    const ibv_sge piece = make_piece(pair.a);
    ASSERT_EQ(pair.a.post_send(remote_request(opcode, 1, pair.b.address()), {&piece, 1}), 0);
    EXPECT_EQ(pair.a.completion().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(pair.a.state(), IBV_QPS_ERR);
    EXPECT_EQ(pair.b.state(), IBV_QPS_RTS) << "the peer has no part in it";
  };
  run(
      "a key of nothing",
      [](Endpoint& e) {
        return ibv_sge{e.piece(0, 8).addr, 8, 0x7777};
      },
      IBV_WR_RDMA_WRITE, kAllAccess);
  run(
      "past the end", [](Endpoint& e) { return e.piece(e.options.bytes - 4, 8); }, IBV_WR_SEND, kAllAccess);
  run(
      "READ into memory that is not to be written", [](Endpoint& e) { return e.piece(0, 8); },
      IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ);
}

TEST(RcTraffic, TellsBothEndsWhenAMessageIsTooLongForItsReceive) {
  Pair pair;
  ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 100)), 0);
  const ibv_sge piece = pair.a.piece(0, 101);
  ASSERT_EQ(pair.a.post_send(send_request(2), {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(pair.b.completion().status, IBV_WC_LOC_LEN_ERR);
}

// ---- the default GID

// A network device without a link-local address: GID 0 is made from its MAC, and is not an assigned address.
void with_unassigned_default_gid() {
  for (const char* command : {"ip link add v0 type veth peer name v1", "ip link set v0 addrgenmode none",
                              "ip addr add 10.47.93.1/24 dev v0", "ip link set v0 up", "ip link set v1 up"}) {
    if (!test::shell(command)) std::abort();
  }
}

// The kernel has no route from that address, so the QP gets ENETUNREACH, as with Linux rxe. QPs that use an
// address of the device are not affected.
TEST(DefaultGid, ThatIsNoAddressReachesNobody) {
  isolated(
      [] {
        const Options options{.timeout = 4, .retries = 1, .device = "rxe_v0"};
        Pair pair(options);
        Endpoint lost(options);
        Address to = lost.address();
        ASSERT_EQ(ibv_query_gid(lost.context.get(), 1, 0, &to.gid), 0);
        ASSERT_EQ(to.gid.raw[0], 0xfe) << "the default GID is link-local";
        ibv_qp_attr attr = init_attributes(options);
        ASSERT_EQ(ibv_modify_qp(lost.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
        attr = rtr_attributes(lost, to);
        attr.ah_attr.grh.sgid_index = 0;
        EXPECT_EQ(ibv_modify_qp(lost.qp.get(), &attr, rtr_mask(IBV_QPT_RC)), ENETUNREACH);
        EXPECT_EQ(lost.state(), IBV_QPS_INIT);

        const ibv_sge from = pair.a.piece(0, 64);
        ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 2, pair.b.address()), {&from, 1}), 0);
        EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
      },
      with_unassigned_default_gid);
}

}  // namespace
}  // namespace verbena::adapter::testing
