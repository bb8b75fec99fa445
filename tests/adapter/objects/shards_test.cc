// SPDX-License-Identifier: Apache-2.0
// A process with several shards: state that belongs to the process, not to a shard.
#include <cstdlib>
#include <set>
#include <thread>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "wire/roce/qpn.h"

namespace verbena::adapter::testing {
namespace {

uint32_t slot_of(const ibv_qp* qp) {
  return roce::Qpn(qp->qp_num).slot();
}

// Sets the number of shards of the engine that the test starts.
class Shards : public ::testing::Test {
 protected:
  Shards() { ::setenv("VERBENA_SHARDS", "3", 1); }
  ~Shards() override { ::unsetenv("VERBENA_SHARDS"); }

  // Makes an endpoint in a new thread, and so on another shard.
  static std::unique_ptr<Endpoint> endpoint_of_another_thread(const Options& options = {}) {
    std::unique_ptr<Endpoint> made;
    std::thread([&] { made = std::make_unique<Endpoint>(options); }).join();
    return made;
  }
  static void join(Endpoint& a, Endpoint& b) {
    a.connect(b.address());
    b.connect(a.address());
  }
};

TEST_F(Shards, AreOnePerThreadUntilThereAreAllThatMayBe) {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::set<uint32_t> slots;
  for (int i = 0; i < 6; ++i) {
    endpoints.push_back(endpoint_of_another_thread());
    slots.insert(slot_of(endpoints.back()->qp.get()));
    EXPECT_EQ(slots.size(), std::min<size_t>(endpoints.size(), 3));
  }
}

TEST_F(Shards, HaveWhatOneThreadMakesTogether) {
  Endpoint one;
  Endpoint other;
  EXPECT_EQ(slot_of(one.qp.get()), slot_of(other.qp.get()));
}

TEST_F(Shards, TalkToEachOther) {
  const auto a = endpoint_of_another_thread();
  const auto b = endpoint_of_another_thread();
  ASSERT_NE(slot_of(a->qp.get()), slot_of(b->qp.get()));
  join(*a, *b);
  for (uint64_t i = 0; i < 50; ++i) {
    a->buffer()[0] = static_cast<std::byte>(i);
    const ibv_sge from = a->piece(0, 1000);
    ASSERT_EQ(b->post_receive(i, b->piece(0, 1000)), 0);
    ASSERT_EQ(a->post_send(send_request(i), {&from, 1}), 0);
    ASSERT_EQ(a->completion().status, IBV_WC_SUCCESS);
    ASSERT_EQ(b->completion().wr_id, i);
    ASSERT_EQ(b->buffer()[0], static_cast<std::byte>(i));
  }
}

// A QP that completes its sends in a CQ of its own shard, and its receives in the CQ of another shard.
class SharedCq : public Shards {
 protected:
  void SetUp() override {
    Options with_channel;
    with_channel.with_channel = true;
    home = endpoint_of_another_thread(with_channel);
    peer_of_home = endpoint_of_another_thread();
    join(*home, *peer_of_home);
    other_cq.reset(ibv_create_cq(home->context.get(), 16, nullptr, nullptr, 0));
    ibv_qp_init_attr attr{};
    attr.send_cq = other_cq.get();
    attr.cap = {
        .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    attr.qp_type = IBV_QPT_RC;
    std::thread([&] {
      first.reset(ibv_create_qp(home->pd.get(), with_receives_in(other_cq.get(), attr)));
      second.reset(ibv_create_qp(home->pd.get(), with_receives_in(home->cq.get(), attr)));
    }).join();
    ASSERT_NE(first, nullptr);
    ASSERT_NE(second, nullptr);
  }
  static ibv_qp_init_attr* with_receives_in(ibv_cq* recv_cq, ibv_qp_init_attr& attr) {
    attr.recv_cq = recv_cq;
    return &attr;
  }

  std::unique_ptr<Endpoint> home;
  std::unique_ptr<Endpoint> peer_of_home;
  Cq other_cq;
  Qp first;   // both its queues complete in other_cq
  Qp second;  // its receives complete in the CQ of `home`
};

TEST_F(SharedCq, IsFilledByTheShardsOfItsQps) {
  ASSERT_EQ(slot_of(first.get()), slot_of(second.get())) << "where its send CQ is filled already";
  ASSERT_NE(slot_of(second.get()), slot_of(home->qp.get()));
  // Flushed receives come from the shard of the QP.
  ibv_qp_attr to_error{};
  to_error.qp_state = IBV_QPS_ERR;
  ibv_qp_attr init = init_attributes(home->options);
  ASSERT_EQ(ibv_modify_qp(second.get(), &init, init_mask(IBV_QPT_RC)), 0);
  ibv_sge piece = home->piece(0, 64);
  ibv_recv_wr request{};
  request.wr_id = 77;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(second.get(), &request, &bad), 0);
  ASSERT_EQ(ibv_modify_qp(second.get(), &to_error, IBV_QP_STATE), 0);
  EXPECT_EQ(home->completion().wr_id, 77u);
  // Completions also come from the other shard.
  ASSERT_EQ(home->post_receive(78, home->piece(0, 64)), 0);
  const ibv_sge from = peer_of_home->piece(0, 64);
  ASSERT_EQ(peer_of_home->post_send(send_request(1), {&from, 1}), 0);
  EXPECT_EQ(home->completion().wr_id, 78u);
}

TEST_F(SharedCq, RaisesItsEventWhicheverShardFillsIt) {
  ASSERT_EQ(ibv_req_notify_cq(home->cq.get(), 0), 0);
  ASSERT_EQ(home->post_receive(1, home->piece(0, 64)), 0);
  const ibv_sge from = peer_of_home->piece(0, 64);
  ASSERT_EQ(peer_of_home->post_send(send_request(1), {&from, 1}), 0);
  pollfd wanted{home->channel->fd, POLLIN, 0};
  ASSERT_EQ(::poll(&wanted, 1, 10'000), 1);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(home->channel.get(), &cq, &context), 0);
  EXPECT_EQ(cq, home->cq.get());
  ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(home->completion().wr_id, 1u);
}

// A key belongs to the process: every shard finds it, whichever thread registers the memory.
TEST_F(SharedCq, KeysOfOneThreadOpenOnAnothersShard) {
  ASSERT_NE(slot_of(first.get()), slot_of(home->qp.get()));
  std::vector<std::byte> memory(4096);
  for (int round = 0; round < 20; ++round) {
    Mr mr(ibv_reg_mr(home->pd.get(), memory.data(), memory.size(), kAllAccess));
    ASSERT_NE(mr, nullptr);
    ibv_sge from = peer_of_home->piece(0, 64);
    Address target = home->address();
    target.rkey = mr->rkey;
    target.buffer = reinterpret_cast<uint64_t>(memory.data());
    peer_of_home->buffer()[0] = static_cast<std::byte>(round + 1);
    ASSERT_EQ(peer_of_home->post_send(remote_request(IBV_WR_RDMA_WRITE, 1, target), {&from, 1}), 0);
    ASSERT_EQ(peer_of_home->completion().status, IBV_WC_SUCCESS);
    // The query takes the shard's lock, so that ThreadSanitizer sees that the writing thread has finished.
    EXPECT_EQ(home->state(), IBV_QPS_RTS);
    ASSERT_EQ(memory[0], static_cast<std::byte>(round + 1));
  }
}

TEST_F(Shards, AreAllLeftBehindInAChild) {
  const auto a = endpoint_of_another_thread();
  const auto b = endpoint_of_another_thread();
  join(*a, *b);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // ends a child that hangs
    ibv_wc wc;
    ibv_poll_cq(a->cq.get(), 1, &wc);
    ibv_poll_cq(b->cq.get(), 1, &wc);
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const ibv_sge from = a->piece(0, 100);
  ASSERT_EQ(b->post_receive(5, b->piece(0, 100)), 0);
  ASSERT_EQ(a->post_send(send_request(1), {&from, 1}), 0);
  EXPECT_EQ(b->completion().wr_id, 5u);
}

// All at once, for ThreadSanitizer: threads that each make, use and destroy QPs and regions.
TEST_F(Shards, SurviveThreadsThatComeAndGo) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int round = 0; round < 3; ++round) {
        Pair pair;
        for (uint64_t i = 0; i < 20; ++i) {
          const ibv_sge from = pair.a.piece(0, 512);
          const auto opcode = i % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
          ASSERT_EQ(pair.a.post_send(remote_request(opcode, i, pair.b.address()), {&from, 1}), 0);
          ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace verbena::adapter::testing
