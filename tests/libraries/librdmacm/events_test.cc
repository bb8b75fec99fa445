// SPDX-License-Identifier: Apache-2.0
// Event channels as descriptors, and the effect of destroying and migrating an identifier on its events.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/objects/support/environment.h"
#include "libraries/librdmacm/support/connection.h"

namespace verbena::rdmacm::testing {
namespace {

TEST(EventChannels, HonourTheNonblockingFlag) {
  const OwnChannel channel = make_channel();
  ASSERT_EQ(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel.get(), &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(EventChannels, ArePolledThroughADuplicateToo) {
  Listener listener;
  const int copy = ::dup(listener.channel->fd);
  pollfd entry{copy, POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  Caller caller(listener.port);
  caller.create_qp();
  caller.connect();
  EXPECT_EQ(::poll(&entry, 1, kPatienceMs), 1);
  const OwnId request(hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  ::close(copy);
}

extern "C" void ignore_signal(int) {}

TEST(EventChannels, AreInterruptedBySignalsAsARead) {
  struct sigaction action {};
  action.sa_handler = ignore_signal;  // without SA_RESTART
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
  const OwnChannel channel = make_channel();
  const pthread_t waiting = ::pthread_self();
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) {
      ::pthread_kill(waiting, SIGUSR1);
      ::usleep(1000);
    }
  });
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel.get(), &event), -1);
  EXPECT_EQ(errno, EINTR);
  done = true;
  other.join();
}

TEST(EventChannels, MayBeDestroyedUnderAWaitingThread) {
  // The thread sanitizer ignores atomics in a thread that was cancelled in a call that it intercepts. So it
  // reports a race if that thread is the last to release a shared object.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers do not know how a cancelled thread unwinds";
#endif
  rdma_event_channel* const channel = rdma_create_event_channel();
  std::atomic<bool> waits{false};
  std::thread reader([&] {
    rdma_cm_event* event = nullptr;
    waits = true;
    rdma_get_cm_event(channel, &event);
  });
  while (!waits) std::this_thread::yield();
  rdma_destroy_event_channel(channel);
  ::pthread_cancel(reader.native_handle());
  reader.join();
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel, &event), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST(Identifiers, AreDestroyedOnlyWhenTheirEventsAreAcknowledged) {
  const OwnChannel channel = make_channel();
  rdma_cm_id* id = make_id(channel.get()).release();
  sockaddr_in address = ipv4("127.0.0.1", 7);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(address), 2000), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel.get(), &event), 0);
  std::atomic<bool> acknowledged{false};
  std::thread destroyer([&] {
    EXPECT_EQ(rdma_destroy_id(id), 0);
    EXPECT_TRUE(acknowledged);
  });
  acknowledged = true;
  ASSERT_EQ(rdma_ack_cm_event(event), 0);
  destroyer.join();
}

TEST(Identifiers, TakeTheirUndeliveredEventsWithThem) {
  const OwnChannel channel = make_channel();
  OwnId first = make_id(channel.get()), second = make_id(channel.get());
  sockaddr_in address = ipv4("127.0.0.1", 7);
  ASSERT_EQ(rdma_resolve_addr(first.get(), nullptr, generic(address), 2000), 0);
  ASSERT_EQ(rdma_resolve_addr(second.get(), nullptr, generic(address), 2000), 0);
  ASSERT_TRUE(readable(channel.get(), kPatienceMs));
  first.reset();
  EXPECT_EQ(hear(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED).id, second.get());
  EXPECT_FALSE(readable(channel.get(), 0));
}

// Whether a thread of this process sleeps, as one does that waits for the agent.
bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string stat((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.compare(name_end + 2, 1, "S") == 0;
}

// Otherwise a thread that has found the channel readable would block in rdma_get_cm_event().
TEST(Identifiers, HandOutWhatHasComeUntilTheAgentHasDestroyedThem) {
  adapter::testing::isolated([] {
    const OwnChannel channel = make_channel();
    rdma_cm_id* id = make_id(channel.get()).release();
    sockaddr_in address = ipv4("127.0.0.1", 7);
    ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(address), 2000), 0);
    hear(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(rdma_resolve_route(id, 2000), 0);
    ASSERT_TRUE(readable(channel.get(), kPatienceMs));
    const pid_t agent = adapter::testing::Environment::agent().pid();
    ASSERT_EQ(::kill(agent, SIGSTOP), 0);
    std::atomic<pid_t> destroying{0};
    std::thread destroyer([&] {
      destroying = ::gettid();
      EXPECT_EQ(rdma_destroy_id(id), 0);
    });
    EXPECT_TRUE(adapter::testing::eventually([&] { return destroying != 0 && is_asleep(destroying); }));
    ::fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel.get(), &event), 0) << std::strerror(errno);
    if (event != nullptr) {
      EXPECT_EQ(event->id, id);
      EXPECT_EQ(rdma_ack_cm_event(event), 0);
    }
    ::kill(agent, SIGCONT);
    destroyer.join();
    EXPECT_FALSE(readable(channel.get(), 0));
  });
}

TEST(Identifiers, TakeTheirEventsToAnotherChannel) {
  const OwnChannel first = make_channel(), second = make_channel();
  const OwnId id = make_id(first.get());
  sockaddr_in address = ipv4("127.0.0.1", 7);
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, generic(address), 2000), 0);
  ASSERT_TRUE(readable(first.get(), kPatienceMs));
  ASSERT_EQ(rdma_migrate_id(id.get(), second.get()), 0) << std::strerror(errno);
  EXPECT_EQ(id->channel, second.get());
  EXPECT_FALSE(readable(first.get(), 0));
  hear(second.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(id.get(), 2000), 0);
  hear(second.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
}

TEST(Identifiers, BecomeSynchronousAndBack) {
  const OwnChannel channel = make_channel();
  const OwnId id = make_id(channel.get());
  ASSERT_EQ(rdma_migrate_id(id.get(), nullptr), 0) << std::strerror(errno);
  EXPECT_EQ(rdma_migrate_id(id.get(), nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  sockaddr_in address = ipv4("127.0.0.1", 7);
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, generic(address), 2000), 0);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_migrate_id(id.get(), channel.get()), 0);
  EXPECT_EQ(id->event, nullptr);
  ASSERT_EQ(rdma_resolve_route(id.get(), 2000), 0);
  hear(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
}

// A child has an agent connection of its own; inherited identifiers belong to its parent.
TEST(Children, LeaveTheirParentsIdentifiersAlone) {
  Connection connection;
  const pid_t child = ::fork();
  if (child == 0) {
    rdma_cm_id* const inherited = connection.caller.id.get();
    if (rdma_disconnect(inherited) != -1 || errno != ENODEV) ::_exit(1);
    if (rdma_destroy_id(inherited) != 0) ::_exit(2);
    rdma_event_channel* const own = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    if (own == nullptr || rdma_create_id(own, &id, nullptr, RDMA_PS_TCP) != 0) ::_exit(3);
    if (rdma_destroy_id(id) != 0) ::_exit(4);
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  exchange(connection.caller.id.get(), connection.accepted.get());
}

}  // namespace
}  // namespace verbena::rdmacm::testing
