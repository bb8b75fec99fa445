// SPDX-License-Identifier: Apache-2.0
// Asynchronous events of a context: about its QPs, its CQs and its port.
#include <atomic>
#include <thread>

#include <fcntl.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/services.h"
#include "base/watched_thread.h"
#include "control/client/command_client.h"

namespace verbena::adapter::testing {
namespace {

// Skips other events: the port may have several at once.
void await_port_event(ibv_context* context, ibv_event_type type) {
  for (int i = 0; i < 20; ++i) {
    ibv_async_event event = next_event(context);
    ibv_ack_async_event(&event);
    EXPECT_EQ(event.element.port_num, 1);
    if (event.event_type == type) return;
  }
  ADD_FAILURE() << "no " << ibv_event_type_str(type);
}

ibv_port_state port_state(ibv_context* context) {
  ibv_port_attr attr{};
  EXPECT_EQ(ibv_query_port(context, 1, &attr), 0);
  return attr.state;
}

TEST(AsyncEvents, NonblockingDescriptorsSayTryAgain) {
  Context context = open_device();
  ASSERT_EQ(::fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event{};
  errno = 0;
  EXPECT_EQ(ibv_get_async_event(context.get(), &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(AsyncEvents, TheTargetOfABadAccessIsTold) {
  Pair pair;
  Address peer = pair.b.address();
  peer.rkey ^= 0x100;
  const ibv_sge piece = pair.a.piece(0, 8);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, peer), {&piece, 1}), 0);
  ibv_async_event event = next_event(pair.b.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, pair.b.qp.get());
  ibv_ack_async_event(&event);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_FALSE(readable(pair.b.context->async_fd));
  EXPECT_FALSE(readable(pair.a.context->async_fd)) << "the requester learns it from its completion";
}

TEST(AsyncEvents, AQueuePairInRtrTellsOfTheFirstPacket) {
  Endpoint a;
  Endpoint b;
  a.connect(b.address());
  ibv_qp_attr attr = init_attributes(b.options);
  ASSERT_EQ(ibv_modify_qp(b.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  attr = rtr_attributes(b, a.address());
  ASSERT_EQ(ibv_modify_qp(b.qp.get(), &attr, rtr_mask(IBV_QPT_RC)), 0);
  const ibv_sge piece = a.piece(0, 8);
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_EQ(a.post_send(remote_request(IBV_WR_RDMA_WRITE, i, b.address()), {&piece, 1}), 0);
    EXPECT_EQ(a.completion().status, IBV_WC_SUCCESS);
  }
  ibv_async_event event = next_event(b.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_COMM_EST);
  EXPECT_EQ(event.element.qp, b.qp.get());
  ibv_ack_async_event(&event);
  EXPECT_FALSE(readable(b.context->async_fd)) << "once";
}

TEST(AsyncEvents, ACompletionQueueThatOverflowsTellsOfIt) {
  Endpoint endpoint({.cqe = 3});
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  for (uint64_t i = 0; i < 10; ++i) ASSERT_EQ(endpoint.post_receive(i, endpoint.piece(0, 8)), 0);
  endpoint.modify_to(IBV_QPS_ERR);
  ibv_async_event event = next_event(endpoint.context.get());
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, endpoint.cq.get());
  ibv_ack_async_event(&event);
  EXPECT_FALSE(readable(endpoint.context->async_fd)) << "once";
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(endpoint.completion().wr_id, i) << "what fitted is there";
  ibv_wc wc;
  EXPECT_LT(ibv_poll_cq(endpoint.cq.get(), 1, &wc), 0) << "and then the queue is in error";
}

TEST(AsyncEvents, GoWithTheirQueuePair) {
  Pair pair;
  Address peer = pair.b.address();
  peer.rkey ^= 0x100;
  const ibv_sge piece = pair.a.piece(0, 8);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, peer), {&piece, 1}), 0);
  EXPECT_TRUE(readable(pair.b.context->async_fd, 10'000));
  pair.b.qp.reset();
  EXPECT_FALSE(readable(pair.b.context->async_fd));
}

TEST(AsyncEvents, DestroyingAQueuePairWaitsForThoseThatWereTaken) {
  Pair pair;
  Address peer = pair.b.address();
  peer.rkey ^= 0x100;
  const ibv_sge piece = pair.a.piece(0, 8);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, peer), {&piece, 1}), 0);
  ibv_async_event event = next_event(pair.b.context.get());
  test::WatchedThread destroyer([&] { pair.b.qp.reset(); });
  EXPECT_TRUE(destroyer.falls_asleep());
  ibv_ack_async_event(&event);
  destroyer.join();
}

TEST(AsyncEvents, TheirOrderIsKept) {
  Pair first;
  Pair second;
  // One context for both: events of the two QPs in turn.
  Context context = open_device();
  ASSERT_NE(context, nullptr);
  for (Pair* pair : {&first, &second}) {
    Address peer = pair->b.address();
    peer.rkey ^= 0x100;
    const ibv_sge piece = pair->a.piece(0, 8);
    ASSERT_EQ(pair->a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, peer), {&piece, 1}), 0);
    EXPECT_EQ(pair->a.completion().status, IBV_WC_REM_ACCESS_ERR);
  }
  for (Pair* pair : {&first, &second}) {
    ibv_async_event event = next_event(pair->b.context.get());
    EXPECT_EQ(event.element.qp, pair->b.qp.get());
    ibv_ack_async_event(&event);
  }
  EXPECT_FALSE(readable(context->async_fd)) << "what is another context's is not told here";
}

// These tests change the namespace's network, so each has a namespace of its own.
TEST(PortEvents, FollowTheNetdev) {
  isolated([] {
    Context context = open_device();
    ASSERT_EQ(port_state(context.get()), IBV_PORT_ACTIVE);
    ASSERT_TRUE(test::shell("ip link set lo down"));
    await_port_event(context.get(), IBV_EVENT_PORT_ERR);
    EXPECT_EQ(port_state(context.get()), IBV_PORT_DOWN);
    ASSERT_TRUE(test::shell("ip link set lo up"));
    await_port_event(context.get(), IBV_EVENT_PORT_ACTIVE);
    EXPECT_EQ(port_state(context.get()), IBV_PORT_ACTIVE);
  });
}

TEST(PortEvents, TellOfAddressesThatComeAndGo) {
  isolated([] {
    Context context = open_device();
    ASSERT_TRUE(test::shell("ip addr add 10.99.0.1/32 dev lo"));
    await_port_event(context.get(), IBV_EVENT_GID_CHANGE);
    ibv_gid_entry table[16];
    const auto has_it = [&] {
      const ssize_t count = ibv_query_gid_table(context.get(), table, 16, 0);
      for (ssize_t i = 0; i < count; ++i) {
        const uint8_t* raw = table[i].gid.raw;
        if (raw[10] == 0xff && raw[12] == 10 && raw[13] == 99 && raw[14] == 0 && raw[15] == 1) return true;
      }
      return false;
    };
    EXPECT_TRUE(has_it()) << "the event comes after the fact";
    ASSERT_TRUE(test::shell("ip addr del 10.99.0.1/32 dev lo"));
    await_port_event(context.get(), IBV_EVENT_GID_CHANGE);
    EXPECT_FALSE(has_it());
  });
}

TEST(PortEvents, EveryContextIsTold) {
  isolated([] {
    Context one = open_device();
    Context two = open_device();
    ASSERT_TRUE(test::shell("ip addr add 10.99.0.2/32 dev lo"));
    await_port_event(one.get(), IBV_EVENT_GID_CHANGE);
    await_port_event(two.get(), IBV_EVENT_GID_CHANGE);
    one.reset();
    ASSERT_TRUE(test::shell("ip addr del 10.99.0.2/32 dev lo"));
    await_port_event(two.get(), IBV_EVENT_GID_CHANGE);
  });
}

void delete_link(const char* name) {
  const auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
  ASSERT_TRUE(admin);
  ASSERT_TRUE((*admin)->delete_link(name));
}

// Deleting a link has the effect of a device that the kernel removes (disassociation).
TEST(DeviceFatal, IsTheLastEventOfADeletedLink) {
  isolated([] {
    Context context = open_device();
    ibv_device** list = ibv_get_device_list(nullptr);
    delete_link("rxe_lo");
    ibv_async_event event = next_event(context.get());
    EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&event);
    for (int i = 0; i < 2; ++i) {
      errno = 0;
      EXPECT_EQ(ibv_get_async_event(context.get(), &event), -1);
      EXPECT_EQ(errno, EIO);
      EXPECT_TRUE(readable(context->async_fd)) << "a thread that polls finds out";
    }
    ibv_free_device_list(list);
  });
}

TEST(DeviceFatal, FlushesWhatWasPostedAndRefusesWhatIsNew) {
  isolated([] {
    Pair pair;
    ASSERT_EQ(pair.b.post_receive(7, pair.b.piece(0, 8)), 0);
    delete_link("rxe_lo");
    EXPECT_EQ(pair.b.completion().status, IBV_WC_WR_FLUSH_ERR);
    ibv_async_event event = next_event(pair.b.context.get());
    EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
    ibv_context* context = pair.b.context.get();
    const auto refused = [](const void* object) {
      const int error = errno;
      return object == nullptr && error == EIO;
    };
    EXPECT_TRUE(refused(ibv_alloc_pd(context)));
    EXPECT_TRUE(refused(ibv_create_comp_channel(context)));
    EXPECT_TRUE(refused(ibv_create_cq(context, 1, nullptr, nullptr, 0)));
    EXPECT_TRUE(refused(ibv_reg_mr(pair.b.pd.get(), pair.b.buffer(), 8, 0)));
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = pair.b.cq.get();
    init.qp_type = IBV_QPT_RC;
    EXPECT_TRUE(refused(ibv_create_qp(pair.b.pd.get(), &init)));
    ibv_ah_attr address{};
    EXPECT_TRUE(refused(ibv_create_ah(pair.b.pd.get(), &address)));
    ibv_device_attr device{};
    EXPECT_EQ(ibv_query_device(context, &device), EIO);
    ibv_port_attr port{};
    EXPECT_EQ(ibv_query_port(context, 1, &port), EIO);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    EXPECT_EQ(ibv_modify_qp(pair.b.qp.get(), &attr, IBV_QP_STATE), EIO);
    // All objects can still be destroyed; their owners here do so.
  });
}

}  // namespace
}  // namespace verbena::adapter::testing
