// SPDX-License-Identifier: Apache-2.0
// Multicast within a host: each group member on the host also gets a copy over shared memory, and takes the
// first of both. A datagram that the kernel does not deliver has come over shared memory.
#include <cstring>
#include <filesystem>
#include <optional>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/helper.h"
#include "adapter/objects/support/route.h"

namespace verbena::adapter::testing {
namespace {

constexpr size_t kGrh = 40;
constexpr size_t kMax = 2048;
constexpr uint32_t kReceives = 8;
constexpr const char* kGroup = "239.1.2.30";
constexpr Duration kSoon = std::chrono::milliseconds(200);

ibv_gid group_gid() {
  ibv_gid gid{};
  std::string text = "::ffff:";
  text += kGroup;
  EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), gid.raw), 1);
  return gid;
}

// A sender to the group.
struct Sender : Endpoint {
  Sender() : Endpoint({.type = IBV_QPT_UD}) {
    Address to{};
    to.gid = group_gid();
    to.qpn = 0xffffff;
    connect(to);
  }
  void send(uint32_t number) {
    std::memcpy(buffer(), &number, sizeof number);
    const ibv_sge data = piece(0, sizeof number);
    ASSERT_EQ(post_send(send_request(number), {&data, 1}), 0);
    EXPECT_EQ(completion().status, IBV_WC_SUCCESS);
  }
};

// A member of the group.
struct Receiver : Endpoint {
  Receiver() : Endpoint({.type = IBV_QPT_UD}) {
    Address to{};
    to.gid = group_gid();
    to.qpn = 0xffffff;
    connect(to);
    for (uint64_t i = 0; i < kReceives; ++i) EXPECT_EQ(post_receive(i, piece(kMax * i, kMax)), 0);
    const ibv_gid gid = group_gid();
    EXPECT_EQ(ibv_attach_mcast(qp.get(), &gid, 0), 0);
  }
  ~Receiver() {
    const ibv_gid gid = group_gid();
    EXPECT_EQ(ibv_detach_mcast(qp.get(), &gid, 0), 0);
  }
  // Returns the number in the next datagram; nothing if none comes within this time.
  std::optional<uint32_t> receive(Duration within) {
    ibv_wc wc{};
    const TimePoint end = MonotonicClock::now() + within;
    int found = 0;
    while (found == 0 && MonotonicClock::now() < end) found = ibv_poll_cq(cq.get(), 1, &wc);
    if (found == 0) return std::nullopt;
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    uint32_t number = 0;
    std::memcpy(&number, buffer() + kMax * wc.wr_id + kGrh, sizeof number);
    EXPECT_EQ(post_receive(wc.wr_id, piece(kMax * wc.wr_id, kMax)), 0);
    return number;
  }
};

// Removes this process's multicast socket from the group, or adds it again.
void change_membership(int option) {
  ip_mreqn request{};
  inet_pton(AF_INET, kGroup, &request.imr_multiaddr);
  request.imr_ifindex = 1;  // lo
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(one.path().filename().c_str());  // NOLINT(cert-err34-c): the kernel's
    sockaddr_in name{};
    socklen_t length = sizeof name;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) continue;
    if (name.sin_family != AF_INET || name.sin_addr.s_addr != request.imr_multiaddr.s_addr) continue;
    EXPECT_EQ(::setsockopt(fd, IPPROTO_IP, option, &request, sizeof request), 0);
    return;
  }
  ADD_FAILURE() << "no socket of the group";
}

enum class Order : uint32_t { kLeave, kJoin, kReceive, kEnd };

const HelperBody receiver_body("multicast-receiver", [](Line& line) {
  Receiver receiver;
  line.tell(true);
  for (;;) {
    switch (line.hear<Order>()) {
      case Order::kLeave:
        change_membership(IP_DROP_MEMBERSHIP);
        line.tell(true);
        break;
      case Order::kJoin:
        change_membership(IP_ADD_MEMBERSHIP);
        line.tell(true);
        break;
      case Order::kReceive:
        line.tell(receiver.receive(line.hear<Duration>()));
        break;
      case Order::kEnd:
        EXPECT_TRUE(receiver.quiet());
        return;
    }
  }
});

// The process that the receiver is in.
class Place {
 public:
  virtual ~Place() = default;
  virtual void leave() = 0;
  virtual void join() = 0;
  virtual std::optional<uint32_t> receive(Duration within) = 0;
};

class ThisProcess : public Place {
 public:
  ~ThisProcess() override { EXPECT_TRUE(receiver_.quiet()); }
  void leave() override { change_membership(IP_DROP_MEMBERSHIP); }
  void join() override { change_membership(IP_ADD_MEMBERSHIP); }
  std::optional<uint32_t> receive(Duration within) override { return receiver_.receive(within); }

 private:
  Receiver receiver_;
};

class AnotherProcess : public Place {
 public:
  AnotherProcess() { helper_.line().hear<bool>(); }
  ~AnotherProcess() override {
    helper_.line().tell(Order::kEnd);
    EXPECT_EQ(helper_.wait(), 0);
  }
  void leave() override { say(Order::kLeave); }
  void join() override { say(Order::kJoin); }
  std::optional<uint32_t> receive(Duration within) override {
    helper_.line().tell(Order::kReceive);
    helper_.line().tell(within);
    return helper_.line().hear<std::optional<uint32_t>>();
  }

 private:
  void say(Order order) {
    helper_.line().tell(order);
    EXPECT_TRUE(helper_.line().hear<bool>());
  }
  Helper helper_ = Helper::start("multicast-receiver");
};

class MulticastByMemory : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (usual_route() == Route::kWire) GTEST_SKIP() << "everything goes by the wire";
  }
  static std::unique_ptr<Place> place() {
    if (GetParam()) return std::make_unique<AnotherProcess>();
    return std::make_unique<ThisProcess>();
  }
  // Waits until datagrams arrive without the wire.
  bool comes_by_memory(Sender& sender, Place& receiver) {
    return eventually([&] {
      receiver.leave();
      sender.send(++number_);
      const auto without = receiver.receive(kSoon);
      receiver.join();
      EXPECT_EQ(without.value_or(number_), number_);
      sender.send(++number_);
      EXPECT_EQ(receiver.receive(std::chrono::seconds(10)), number_);
      return without.has_value();
    });
  }
  uint32_t number_ = 0;
};

TEST_P(MulticastByMemory, ComesWhereTheWireBringsNothing) {
  Sender sender;
  const auto receiver = place();
  ASSERT_TRUE(comes_by_memory(sender, *receiver));
}

TEST_P(MulticastByMemory, ComesOnceThoughBothBringIt) {
  Sender sender;
  const auto receiver = place();
  ASSERT_TRUE(comes_by_memory(sender, *receiver));
  for (int i = 0; i < 200; ++i) {
    sender.send(++number_);
    ASSERT_EQ(receiver->receive(std::chrono::seconds(10)), number_);
  }
  EXPECT_EQ(receiver->receive(kSoon), std::nullopt);
}

// The sender uses its earlier PSNs again.
TEST_P(MulticastByMemory, ComesOfASenderThatBeginsAgain) {
  Sender sender;
  const auto receiver = place();
  ASSERT_TRUE(comes_by_memory(sender, *receiver));
  for (int round = 0; round < 5; ++round) {
    sender.modify_to(IBV_QPS_RESET);
    Address to{};
    to.gid = group_gid();
    to.qpn = 0xffffff;
    sender.connect(to);
    for (int i = 0; i < 5; ++i) {
      sender.send(++number_);
      ASSERT_EQ(receiver->receive(std::chrono::seconds(10)), number_);
    }
  }
  EXPECT_EQ(receiver->receive(kSoon), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(In, MulticastByMemory, ::testing::Bool(), [](const auto& other) {
  return std::string(other.param ? "AnotherProcess" : "ThisProcess");
});

// A receiver that dies does not disturb the others, and the next one is found.
TEST(MulticastToSeveral, GoesOnWhenOneOfThemDies) {
  Sender sender;
  AnotherProcess stays;
  {
    Helper dies = Helper::start("multicast-receiver");
    dies.line().hear<bool>();
    for (uint32_t number = 0; number < 20; ++number) {
      sender.send(number);
      ASSERT_EQ(stays.receive(std::chrono::seconds(10)), number);
    }
    dies.kill(SIGKILL);
    dies.wait();
  }
  AnotherProcess next;
  for (uint32_t number = 20; number < 40; ++number) {
    sender.send(number);
    ASSERT_EQ(stays.receive(std::chrono::seconds(10)), number);
    ASSERT_EQ(next.receive(std::chrono::seconds(10)), number);
  }
}

}  // namespace
}  // namespace verbena::adapter::testing
