// SPDX-License-Identifier: Apache-2.0
// The ports of a program when its agent ends and another one starts: their state is kept.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/umad.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"

namespace verbena::test {
namespace {

constexpr int kClass = 0x32;
constexpr long kGet = 1L << 1;
constexpr size_t kMad = 256;
constexpr int kPatience = 10000;
constexpr uint16_t kNobodysLid = 4711;

// The library's functions that the tests call.
class Library {
 public:
  static Library& get() {
    static Library library;
    return library;
  }
  decltype(&::umad_open_port) open_port = find<decltype(&::umad_open_port)>("umad_open_port");
  decltype(&::umad_close_port) close_port = find<decltype(&::umad_close_port)>("umad_close_port");
  decltype(&::umad_register_oui) register_oui = find<decltype(&::umad_register_oui)>("umad_register_oui");
  decltype(&::umad_unregister) unregister = find<decltype(&::umad_unregister)>("umad_unregister");
  decltype(&::umad_send) send = find<decltype(&::umad_send)>("umad_send");
  decltype(&::umad_recv) receive = find<decltype(&::umad_recv)>("umad_recv");
  decltype(&::umad_poll) poll = find<decltype(&::umad_poll)>("umad_poll");
  decltype(&::umad_set_addr) set_addr = find<decltype(&::umad_set_addr)>("umad_set_addr");
  decltype(&::umad_get_port) get_port = find<decltype(&::umad_get_port)>("umad_get_port");
  decltype(&::umad_release_port) release_port = find<decltype(&::umad_release_port)>("umad_release_port");

 private:
  Library() = default;
  template <class Function>
  Function find(const char* name) {
    if (handle_ == nullptr) handle_ = ::dlopen(VERBENA_IBUMAD, RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Function>(::dlsym(handle_, name));
  }
  void* handle_ = nullptr;
};

struct Message {
  alignas(ib_user_mad) char bytes[sizeof(ib_user_mad) + kMad] = {};
  ib_user_mad& umad() { return *reinterpret_cast<ib_user_mad*>(bytes); }
  uint8_t* mad() { return reinterpret_cast<uint8_t*>(bytes + sizeof(ib_user_mad)); }
};

class Port {
 public:
  Port() : fd(Library::get().open_port(nullptr, 0)) {}
  ~Port() { Library::get().close_port(fd); }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  int add_agent(long methods, uint8_t vendor = 1) {
    uint8_t oui[3] = {0, 0x42, vendor};
    long mask[16 / sizeof(long)] = {methods};
    return Library::get().register_oui(fd, kClass, 0, oui, mask);
  }
  int send(int agent, uint16_t lid, uint32_t transaction, uint8_t method = 1, int timeout_ms = 0,
           uint8_t vendor = 1) {
    Message message;
    Library::get().set_addr(message.bytes, lid, 1, 0, static_cast<int>(0x80010000));
    uint8_t* mad = message.mad();
    mad[0] = 1, mad[1] = kClass, mad[2] = 1, mad[3] = method;
    mad[12] = static_cast<uint8_t>(transaction >> 24), mad[13] = static_cast<uint8_t>(transaction >> 16);
    mad[14] = static_cast<uint8_t>(transaction >> 8), mad[15] = static_cast<uint8_t>(transaction);
    mad[38] = 0x42, mad[39] = vendor;
    return Library::get().send(fd, agent, message.bytes, kMad, timeout_ms, 0);
  }
  int answer(int agent, Message& request) {
    request.mad()[3] |= 0x80;
    return Library::get().send(fd, agent, request.bytes, kMad, 0, 0);
  }
  int receive(Message& message, int timeout_ms = kPatience) {
    int length = kMad;
    return Library::get().receive(fd, message.bytes, &length, timeout_ms);
  }

  const int fd;
};

class UmadAgentLoss : public NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    ::setenv("VERBENA_AGENT", "/nonexistent", 1);  // NOLINT(concurrency-mt-unsafe): starts no agent but ours
    start();
  }
  void TearDown() override {
    ::unsetenv("VERBENA_AGENT");  // NOLINT(concurrency-mt-unsafe)
  }
  void start() { agent_ = std::make_unique<AgentProcess>(); }
  void end(int signal = SIGKILL) {
    agent_->stop(signal);
    agent_.reset();
  }
  void replace(int signal = SIGKILL) {
    end(signal);
    start();
  }
  static uint16_t own_lid() {
    umad_port_t port{};
    EXPECT_EQ(Library::get().get_port(nullptr, 0, &port), 0);
    const auto lid = static_cast<uint16_t>(port.base_lid);
    Library::get().release_port(&port);
    return lid;
  }
  // Sends a request from one port to the other, and receives the answer.
  static void expect_exchange(Port& client, int from, Port& server, int to, uint32_t transaction) {
    Message message;
    ASSERT_EQ(client.send(from, own_lid(), transaction, 1, kPatience), 0);
    ASSERT_EQ(server.receive(message), to);
    EXPECT_EQ(message.umad().status, 0U);
    ASSERT_EQ(server.answer(to, message), 0);
    ASSERT_EQ(client.receive(message), from);
    EXPECT_EQ(message.umad().status, 0U);
    EXPECT_EQ(message.mad()[3], 0x81);
    EXPECT_EQ(message.mad()[15], transaction);
  }

 private:
  std::unique_ptr<AgentProcess> agent_;
};

TEST_F(UmadAgentLoss, APortGoesOnWithTheNextAgent) {
  Port server, client;
  const int to = server.add_agent(kGet), from = client.add_agent(0);
  expect_exchange(client, from, server, to, 1);
  for (const int signal : {SIGKILL, SIGTERM}) {
    replace(signal);
    Message nothing;
    EXPECT_EQ(server.receive(nothing, 0), -EAGAIN);
    expect_exchange(client, from, server, to, 2);
  }
}

TEST_F(UmadAgentLoss, WhoWaitsForARequestGetsItFromTheNextAgent) {
  Port server, client;
  const int to = server.add_agent(kGet), from = client.add_agent(0);
  Message message;
  std::atomic<int> got = -1;
  std::thread waiting([&] { got = server.receive(message); });
  replace();
  // Datagrams are lost until the other port has reconnected.
  uint32_t transaction = 0;
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(client.send(from, own_lid(), ++transaction), 0);
    return got >= 0;
  }));
  waiting.join();
  EXPECT_EQ(got, to);
}

TEST_F(UmadAgentLoss, ARequestUnderWayComesBackAsOneThatGotNoAnswer) {
  Port port;
  const int agent = port.add_agent(0);
  ASSERT_EQ(port.send(agent, kNobodysLid, 0x1234, 1, 60'000), 0);
  ASSERT_EQ(port.send(agent, kNobodysLid, 0x1235), 0);  // expects no answer
  replace();
  Message message;
  ASSERT_EQ(port.receive(message), agent);
  EXPECT_EQ(message.umad().status, static_cast<uint32_t>(ETIMEDOUT));
  EXPECT_EQ(message.umad().length, sizeof(ib_user_mad) + 24);
  EXPECT_EQ(message.mad()[14], 0x12);
  EXPECT_EQ(message.mad()[15], 0x34);
  EXPECT_EQ(port.receive(message, 100), -ETIMEDOUT);
}

TEST_F(UmadAgentLoss, ARequestThatWasAnsweredDoesNotComeBack) {
  Port server, client;
  const int to = server.add_agent(kGet), from = client.add_agent(0);
  expect_exchange(client, from, server, to, 3);
  replace();
  Message message;
  EXPECT_EQ(client.receive(message, 500), -ETIMEDOUT);
}

TEST_F(UmadAgentLoss, WhatWasReceivedBeforeIsReadFirst) {
  Port server, client;
  const int to = server.add_agent(kGet), from = client.add_agent(0);
  ASSERT_EQ(client.send(from, own_lid(), 5), 0);
  ASSERT_EQ(Library::get().poll(server.fd, kPatience), 0);
  replace();
  ASSERT_EQ(server.send(to, kNobodysLid, 6, 3, 60'000), 0);
  Message message;
  ASSERT_EQ(server.receive(message), to);
  EXPECT_EQ(message.mad()[15], 5);
  ASSERT_EQ(server.receive(message), to);
  EXPECT_EQ(message.umad().status, static_cast<uint32_t>(ETIMEDOUT));
  EXPECT_EQ(message.mad()[15], 6);
}

TEST_F(UmadAgentLoss, AgentsKeepTheirNumbers) {
  Port port;
  for (uint8_t vendor = 1; vendor <= 3; ++vendor) ASSERT_EQ(port.add_agent(kGet, vendor), vendor - 1);
  ASSERT_EQ(Library::get().unregister(port.fd, 1), 0);
  replace();
  Port client;
  const int from = client.add_agent(0, 3);
  Message message;
  EXPECT_EQ(port.receive(message, 0), -EAGAIN);
  ASSERT_EQ(client.send(from, own_lid(), 7, 1, 0, 3), 0);
  EXPECT_EQ(port.receive(message), 2);
  EXPECT_EQ(port.add_agent(kGet, 2), 1);
  EXPECT_EQ(Library::get().unregister(port.fd, 2), 0);
}

TEST_F(UmadAgentLoss, AnAgentIsRegisteredWithTheNextOne) {
  Port port;
  replace();
  EXPECT_EQ(port.add_agent(kGet), 0);
}

TEST_F(UmadAgentLoss, TheDescriptorKeepsItsFlags) {
  Port port;
  port.add_agent(0);
  ASSERT_EQ(::fcntl(port.fd, F_SETFD, 0), 0);
  replace();
  Message message;
  EXPECT_EQ(port.receive(message, 0), -EAGAIN);
  EXPECT_EQ(::fcntl(port.fd, F_GETFD), 0);
  EXPECT_NE(::fcntl(port.fd, F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(UmadAgentLoss, AnEpollSetGoesOnWithTheDescriptor) {
  Port server, client;
  const int to = server.add_agent(kGet), from = client.add_agent(0);
  const UniqueFd set(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{EPOLLIN, {.u64 = 0x1122334455667788}};
  ASSERT_EQ(::epoll_ctl(set.get(), EPOLL_CTL_ADD, server.fd, &event), 0);
  for (int i = 0; i < 2; ++i) {
    replace();
    ASSERT_EQ(::epoll_wait(set.get(), &event, 1, kPatience), 1);
    EXPECT_NE(event.events & EPOLLHUP, 0U);
    Message message;
    EXPECT_EQ(server.receive(message, 0), -EAGAIN);
    EXPECT_EQ(::epoll_wait(set.get(), &event, 1, 0), 0);
    ASSERT_EQ(client.send(from, own_lid(), 1), 0);
    ASSERT_EQ(::epoll_wait(set.get(), &event, 1, kPatience), 1);
    EXPECT_EQ(event.events, uint32_t{EPOLLIN});
    EXPECT_EQ(event.data.u64, 0x1122334455667788);
    EXPECT_EQ(server.receive(message), to);
  }
}

// The situation after daemon(3).
TEST_F(UmadAgentLoss, AChildGoesOnWithThePortsOfItsParent) {
  Port server;
  const int to = server.add_agent(kGet);
  const pid_t child = ::fork();
  if (child == 0) {
    Message message;
    const int got = server.receive(message);
    ::_exit(got == to && message.umad().status == 0 ? 0 : 1);
  }
  replace();
  Port client;
  const int from = client.add_agent(0);
  uint32_t transaction = 0;
  int status = -1;
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(client.send(from, own_lid(), ++transaction), 0);
    return ::waitpid(child, &status, WNOHANG) == child;
  }));
  EXPECT_EQ(status, 0);
}

TEST_F(UmadAgentLoss, WithoutAnotherAgentAPortIsAsThatOfADeviceThatIsGone) {
  Port port;
  const int agent = port.add_agent(0);
  end();
  pollfd entry{port.fd, POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, kPatience), 1);
  EXPECT_NE(entry.revents & POLLHUP, 0);
  Message message;
  EXPECT_EQ(port.receive(message), -EIO);
  EXPECT_EQ(port.send(agent, kNobodysLid, 1), -EIO);
  EXPECT_EQ(errno, EIO);
  EXPECT_LT(port.add_agent(kGet), 0);
  start();  // a later attempt succeeds
  EXPECT_EQ(port.send(agent, kNobodysLid, 1), 0);
}

}  // namespace
}  // namespace verbena::test
