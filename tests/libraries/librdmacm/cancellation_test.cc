// SPDX-License-Identifier: Apache-2.0
// Threads that are cancelled (pthread_cancel(3)) in calls of librdmacm: only waiting for an event is a
// cancellation point.
#include "adapter/objects/support/environment.h"
#include "base/cancelled_thread.h"
#include "libraries/librdmacm/support/connection.h"

namespace verbena::rdmacm::testing {
namespace {

template <class Call>
void step(const char* name, Call call) {
  EXPECT_TRUE(test::comes_back_cancelled(call)) << name << " ended the thread";
}

TEST(CancelledCalls, ComeBackAndLeaveNothingLocked) {
  adapter::testing::isolated([] {
    sockaddr_in any = ipv4("127.0.0.1", 0);
    OwnChannel channel;
    OwnId listener, id;
    step("rdma_create_event_channel", [&] { channel = make_channel(); });
    step("rdma_create_id", [&] { listener = make_id(channel.get()); });
    step("rdma_bind_addr", [&] { EXPECT_EQ(rdma_bind_addr(listener.get(), generic(any)), 0); });
    step("rdma_listen", [&] { EXPECT_EQ(rdma_listen(listener.get(), 4), 0); });
    step("rdma_create_id", [&] { id = make_id(channel.get()); });
    sockaddr_in there = ipv4("127.0.0.1", ntohs(rdma_get_src_port(listener.get())));
    step("rdma_resolve_addr",
         [&] { EXPECT_EQ(rdma_resolve_addr(id.get(), nullptr, generic(there), 2000), 0); });
    EXPECT_EQ(hear(channel.get()).type, RDMA_CM_EVENT_ADDR_RESOLVED);
    step("rdma_resolve_route", [&] { EXPECT_EQ(rdma_resolve_route(id.get(), 2000), 0); });
    EXPECT_EQ(hear(channel.get()).type, RDMA_CM_EVENT_ROUTE_RESOLVED);
    step("rdma_destroy_id", [&] { id.reset(); });
    step("rdma_destroy_id", [&] { listener.reset(); });
    step("rdma_destroy_event_channel", [&] { channel.reset(); });
    channel = make_channel();
    id = make_id(channel.get());
    EXPECT_EQ(rdma_resolve_addr(id.get(), nullptr, generic(there), 2000), 0);
    EXPECT_EQ(hear(channel.get()).type, RDMA_CM_EVENT_ADDR_RESOLVED);
  });
}

TEST(CancelledCalls, ThatWaitForAnEventDoNotComeBack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers do not know how a cancelled thread unwinds";
#endif
  const OwnChannel channel = make_channel();
  EXPECT_FALSE(test::comes_back_cancelled([&] {
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(channel.get(), &event);
  }));
}

}  // namespace
}  // namespace verbena::rdmacm::testing
