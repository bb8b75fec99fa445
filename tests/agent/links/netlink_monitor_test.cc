// SPDX-License-Identifier: Apache-2.0
#include "agent/links/netlink_monitor.h"

#include <algorithm>
#include <cstring>
#include <string>

#include <gtest/gtest.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/network_namespace.h"
#include "agent/sessions/client_sockets.h"
#include "base/unique_fd.h"

namespace verbena::agent {
namespace {

class NetlinkMonitorTest : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(
        test::shell("ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up && "
                    "ip address add 10.9.0.1/24 dev v0"));
    ASSERT_TRUE(monitor_.start());
  }
  // Causes more events than the monitor's socket takes.
  void overflow() {
    const int small = 1;
    ASSERT_EQ(::setsockopt(monitor_.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(test::shell("ip address add 10.9.0.9/24 dev v0; ip address del 10.9.0.9/24 dev v0"));
    }
  }
  // Sends a message to the monitor's socket, as the kernel does.
  bool send(const void* message, size_t bytes) const {
    sockaddr_nl to{};
    socklen_t length = sizeof to;
    const UniqueFd from(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (!from || ::getsockname(monitor_.fd(), reinterpret_cast<sockaddr*>(&to), &length) != 0) return false;
    to.nl_groups = 0;
    return ::sendto(from.get(), message, bytes, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to) ==
           static_cast<ssize_t>(bytes);
  }
  bool needs_no_neighbours(const char* netdev) const {
    return table_.needs_no_neighbours(::if_nametoindex(netdev));
  }
  control::Link link_over(const std::string& netdev) {
    table_.settle();
    const auto& links = table_.snapshot().links;
    const auto found = std::ranges::find(links, netdev, &control::Link::netdev);
    return found != links.end() ? *found : control::Link();
  }

  EventLoop loop_;
  ClientSockets sockets_{loop_, {.all = 64, .reserve = 8}, ::geteuid()};
  LinkTable table_;
  int dumps_ = 0;
  NetlinkMonitor monitor_{loop_, table_, sockets_.closer(), [this] { ++dumps_; }};
};

TEST_F(NetlinkMonitorTest, ReportsNetdevsWithoutNeighbours) {
  EXPECT_TRUE(needs_no_neighbours("lo"));
  EXPECT_FALSE(needs_no_neighbours("v0"));
  ASSERT_TRUE(test::shell("ip link set v0 arp off"));
  monitor_.receive();
  EXPECT_TRUE(needs_no_neighbours("v0"));
  EXPECT_FALSE(needs_no_neighbours("v1"));
}

// The kernel may make a dump wait.
TEST_F(NetlinkMonitorTest, HasAThreadReadEverythingAfterLostEvents) {
  overflow();
  ASSERT_TRUE(test::shell("ip link set v0 arp off"));
  monitor_.receive();
  EXPECT_FALSE(needs_no_neighbours("v0")) << "the event was lost";
  while (dumps_ == 0) loop_.run_round();
  EXPECT_TRUE(needs_no_neighbours("v0"));
}

TEST_F(NetlinkMonitorTest, KeepsWhatEventsReportDuringADump) {
  overflow();
  monitor_.receive();
  const int enough = 1 << 20;
  ASSERT_EQ(::setsockopt(monitor_.fd(), SOL_SOCKET, SO_RCVBUF, &enough, sizeof enough), 0);
  loop_.run_round();  // the dump begins
  // The thread may read before or after this.
  ASSERT_TRUE(test::shell("ip link del v0 && ip link add v2 type veth peer name v3"));
  monitor_.receive();
  while (dumps_ == 0) loop_.run_round();
  EXPECT_EQ(link_over("v0").netdev, "");
  EXPECT_TRUE(table_.add_link("mine", "v2"));
}

TEST_F(NetlinkMonitorTest, ReadsEverythingOnceASecondAtMost) {
  const TimePoint began = MonotonicClock::now();
  for (int dump = 1; dump <= 2; ++dump) {
    for (int i = 0; i < 3; ++i) {
      overflow();
      monitor_.receive();
    }
    while (dumps_ < dump) loop_.run_round();
  }
  EXPECT_GE(MonotonicClock::now() - began, NetlinkMonitor::kDumpInterval);
  EXPECT_EQ(dumps_, 2);
}

// Kernels with the wireless extensions send such messages after each scan.
TEST_F(NetlinkMonitorTest, IgnoresTheNewsOfTheWirelessExtensions) {
  struct {
    nlmsghdr header{};
    ifinfomsg info{};
    rtattr name_header{};
    char name[4] = "v0";
    rtattr wireless_header{};
    char wireless[4]{};
  } message;
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = RTM_NEWLINK;
  message.info.ifi_family = AF_UNSPEC;
  message.info.ifi_index = static_cast<int>(::if_nametoindex("v0"));
  message.info.ifi_flags = IFF_UP | IFF_RUNNING;
  message.name_header = {RTA_LENGTH(3), IFLA_IFNAME};
  message.wireless_header = {RTA_LENGTH(sizeof message.wireless), IFLA_WIRELESS};
  monitor_.receive();
  const control::Link before = link_over("v0");
  ASSERT_EQ(before.mtu, 1500u);
  ASSERT_TRUE(send(&message, sizeof message));
  monitor_.receive();
  EXPECT_EQ(link_over("v0"), before);
}

}  // namespace
}  // namespace verbena::agent
