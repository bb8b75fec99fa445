// SPDX-License-Identifier: Apache-2.0
// Events of connection management that come without end do not hold up the loop.
#include <cerrno>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <verbena/cm/identifier.hpp>

namespace {

// The events that are left, all of them this one.
int events = 0;
rdma_cm_event event;

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// Interpose the functions of librdmacm.
extern "C" [[gnu::visibility("default")]] int rdma_get_cm_event(rdma_event_channel* channel,
                                                                rdma_cm_event** got) {
  if (events == 0) return next<decltype(rdma_get_cm_event)>("rdma_get_cm_event")(channel, got);
  --events;
  *got = &event;
  return 0;
}
extern "C" [[gnu::visibility("default")]] int rdma_ack_cm_event(rdma_cm_event* one) {
  return one == &event ? 0 : next<decltype(rdma_ack_cm_event)>("rdma_ack_cm_event")(one);
}

namespace verbena::detail {
namespace {

class CountingHandler final : public cm_handler {
 public:
  void on_event(const cm_event&) override { ++count; }
  int count = 0;
};

class CmEvents : public ::testing::Test {
 protected:
  CmEvents() {
    io_.service<cm_service>();
    id_.context = &handler_;
    event = {.id = &id_, .listen_id = nullptr, .event = RDMA_CM_EVENT_DISCONNECTED, .status = 0, .param = {}};
  }
  ~CmEvents() override { events = 0; }

  loop io_;
  CountingHandler handler_;
  rdma_cm_id id_{};
};

TEST_F(CmEvents, ThatComeWithoutEndLetTheLoopGoOn) {
  events = 10'000;
  EXPECT_FALSE(io_.prepare());
  EXPECT_LE(handler_.count, 16);
  for (int turns = 1; turns <= 20; ++turns) {
    const int before = handler_.count;
    EXPECT_TRUE(io_.turn());
    EXPECT_LE(handler_.count, before + 16);
    EXPECT_GT(handler_.count, before) << "further ones are taken at once";
  }
}

TEST_F(CmEvents, AreAllTakenBeforeTheLoopSleeps) {
  for (const int count : {1, 15, 16, 17, 32, 100}) {
    handler_.count = 0;
    events = count;
    while (!io_.prepare()) {
      while (io_.turn()) {
      }
    }
    EXPECT_EQ(handler_.count, count);
  }
}

}  // namespace
}  // namespace verbena::detail
