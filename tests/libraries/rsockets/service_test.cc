// SPDX-License-Identifier: Apache-2.0
// The rsockets' service thread, with a connection manager controlled by the test.
#include "libraries/rsockets/service.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>

#include <gtest/gtest.h>
#include <sys/eventfd.h>

namespace {

std::atomic<bool> flooded{false};  // another event is always waiting
rdma_event_channel channel{::eventfd(1, EFD_CLOEXEC)};
rdma_cm_id nobodys{};
rdma_cm_event event{};

}  // namespace

extern "C" {
rdma_event_channel* rdma_create_event_channel() {
  return &channel;
}
void rdma_destroy_event_channel(rdma_event_channel*) {}
int rdma_get_cm_event(rdma_event_channel*, rdma_cm_event** found) {
  event.id = &nobodys;
  *found = &event;
  if (flooded) return 0;
  errno = EAGAIN;
  return -1;
}
int rdma_ack_cm_event(rdma_cm_event*) {
  return 0;
}
}

namespace verbena::rsockets {
namespace {

struct Reader : ServiceClient {
  explicit Reader(int number) : fd(number) {}
  void on_readable() override {
    eventfd_t count;
    if (::eventfd_read(fd, &count) == 0) heard.set_value();
  }
  const int fd;
  std::promise<void> heard;
};

TEST(ServiceTest, ConnectionEventsWithoutEndLeaveDatagramsTheirTurn) {
  const auto service = Service::instance();
  ASSERT_TRUE(service);
  flooded = true;
  const auto reader = std::make_shared<Reader>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ASSERT_TRUE((*service)->watch(reader->fd, reader));
  ::eventfd_write(reader->fd, 1);
  EXPECT_EQ(reader->heard.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  flooded = false;
  (*service)->forget(reader->fd);
}

// Asks for another turn until it has had three.
struct Counter : ServiceClient, std::enable_shared_from_this<Counter> {
  Counter(Service& service_of, int turns) : service(service_of), left(turns) {}
  void on_timer() override {
    ++calls;
    if (--left == 0) return done.set_value();
    if (left > 0) service.call_at(shared_from_this(), MonotonicClock::now());
  }
  Service& service;
  int left;
  std::atomic<int> calls{0};
  std::promise<void> done;
};

TEST(ServiceTest, CallsOnceForEachTurnThatIsAskedFor) {
  const auto service = Service::instance();
  ASSERT_TRUE(service);
  const auto once = std::make_shared<Counter>(**service, 1);
  const auto thrice = std::make_shared<Counter>(**service, 3);
  (*service)->call_at(once, MonotonicClock::now());
  once->done.get_future().wait();
  (*service)->call_at(thrice, MonotonicClock::now());
  thrice->done.get_future().wait();
  EXPECT_EQ(once->calls, 1);
}

}  // namespace
}  // namespace verbena::rsockets
