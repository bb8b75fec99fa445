// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <future>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sock_diag.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/network_namespace.h"
#include "agent/slots/slot_packets.h"
#include "agent/slots/wire.h"
#include "base/lingering_socket.h"
#include "base/socket_option.h"
#include "base/time.h"

namespace verbena::agent {
namespace {

using ::testing::ElementsAre;

TEST(SocketCallsTest, AreMadeInTheirOrder) {
  SocketCalls calls;
  auto order = std::make_shared<std::vector<int>>();
  std::promise<void> done;
  for (int i = 1; i <= 3; ++i) calls.make([order, i] { order->push_back(i); });
  calls.make([&done] { done.set_value(); });
  done.get_future().wait();
  EXPECT_THAT(*order, ElementsAre(1, 2, 3));
}

// The test would not end if a call blocked the caller. The same holds for the test below.
TEST(SocketCallsTest, HoldUpNobodyForLong) {
  SocketCalls calls;
  std::promise<void> answer, done;
  calls.make([wait = answer.get_future().share()] { wait.wait(); });
  for (int i = 0; i < 100; ++i) calls.make([] {});
  calls.make([&done] { done.set_value(); });
  answer.set_value();
  done.get_future().wait();
}

// Holds a socket's lock: setsockopt(2) waits, with the lock held, for a page that does not come.
class HeldLock {
 public:
  explicit HeldLock(int socket) {
    faults_.reset(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
    uffdio_api api{};
    api.api = UFFD_API;
    page_ = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uffdio_register registered{};
    registered.range = {reinterpret_cast<uintptr_t>(page_), kPage};
    registered.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (!faults_ || ::ioctl(faults_.get(), UFFDIO_API, &api) != 0 ||
        ::ioctl(faults_.get(), UFFDIO_REGISTER, &registered) != 0) {
      return;
    }
    holder_ = std::thread([this, socket] { ::setsockopt(socket, IPPROTO_IP, IP_OPTIONS, page_, 8); });
    uffd_msg fault{};
    holds_ = ::read(faults_.get(), &fault, sizeof fault) == sizeof fault;
  }
  ~HeldLock() {
    release();
    ::munmap(page_, kPage);
  }
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;

  bool holds() const { return holds_; }
  void release() {
    if (!holder_.joinable()) return;
    uffdio_zeropage zero{};
    zero.range = {reinterpret_cast<uintptr_t>(page_), kPage};
    ::ioctl(faults_.get(), UFFDIO_ZEROPAGE, &zero);
    holder_.join();
  }

 private:
  static constexpr size_t kPage = 4096;
  UniqueFd faults_;
  void* page_ = nullptr;
  std::thread holder_;
  bool holds_ = false;
};

class SharedSockets : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    wire_.open();
    for (uint32_t slot = 1; slot <= 2; ++slot) ASSERT_TRUE(wire_.add());
    wire_.share(1);
  }
  // A link with peers. Its interface index differs from call to call.
  std::vector<control::Link> links() {
    control::Link link;
    link.interface_index = ++interface_index_;
    link.peers.emplace_back();
    return {link};
  }
  std::vector<UniqueFd> copies() const {
    std::vector<UniqueFd> all;
    for (uint32_t slot = 0; slot < wire_.size(); ++slot) {
      all.emplace_back(::fcntl(wire_.socket(slot), F_DUPFD_CLOEXEC, 3));
    }
    return all;
  }

  Wire wire_{roce::kUdpPort};
  uint32_t interface_index_ = 0;
};

TEST_F(SharedSockets, WhoHoldsTheLockOfOneHoldsUpNobody) {
  HeldLock held(wire_.socket(1));
  if (!held.holds()) GTEST_SKIP() << "no userfaultfd";
  wire_.mute(1);
  wire_.unmute(1);
  wire_.hear_peers_of(links());
  wire_.hear_peers_of({});
  Wire next(roce::kUdpPort);
  EXPECT_TRUE(next.adopt(copies(), {1}));
  EXPECT_FALSE(wire_.is_held_up());
  for (uint32_t i = 0; i < 256; ++i) wire_.mute(1);
  EXPECT_TRUE(wire_.is_held_up());
  wire_.unmute(1);
  held.release();
  // The calls are made now. The last of them accepts packets again.
  char packet[64];
  const TimePoint deadline = MonotonicClock::now() + std::chrono::seconds(10);
  do {
    ASSERT_TRUE(test::send_to_slot(1, 7));
  } while (::recv(wire_.socket(1), packet, sizeof packet, MSG_DONTWAIT) < 0 &&
           MonotonicClock::now() < deadline);
  EXPECT_LT(MonotonicClock::now(), deadline);
}

using NewSockets = SharedSockets;

// Otherwise a flood would keep unmute() from reaching the end of the queue.
TEST_F(NewSockets, DropPacketsUntilTheirFirstLease) {
  const int socket = wire_.socket(2);
  const auto dropped = [socket] {
    return get_option<std::array<uint32_t, SK_MEMINFO_VARS>>(socket, SOL_SOCKET, SO_MEMINFO)
        .value()[SK_MEMINFO_DROPS];
  };
  ASSERT_TRUE(test::send_to_slot(2, 7));
  EXPECT_TRUE(test::becomes_true([&] { return dropped() == 1; }));
  wire_.unmute(2);
  ASSERT_TRUE(test::send_to_slot(2, 8));
  pollfd readable{socket, POLLIN, 0};
  ASSERT_EQ(::poll(&readable, 1, 10'000), 1);
  EXPECT_EQ(dropped(), 1u);
}

}  // namespace
}  // namespace verbena::agent
