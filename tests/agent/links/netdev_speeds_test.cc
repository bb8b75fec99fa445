// SPDX-License-Identifier: Apache-2.0
#include "agent/links/netdev_speeds.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/lingering_socket.h"

namespace verbena::agent {
namespace {

using test::becomes_true;
using ::testing::ElementsAre;

// The kernel answers a question about a speed when the test lets it, with `speed`.
class NetdevSpeedsTest : public ::testing::Test {
 protected:
  NetdevSpeedsTest() { add_eth0(); }
  ~NetdevSpeedsTest() override { hold(false); }

  static Netdev eth0() {
    Netdev netdev;
    netdev.index = 2;
    netdev.name = "eth0";
    netdev.up = netdev.carrier = true;
    return netdev;
  }
  void add_eth0() {
    report(eth0());
    const uint8_t ipv4[] = {10, 0, 0, 1};
    NetdevAddress address;
    address.address = roce::Address::from_ipv4(ipv4);
    address.prefix = 24;
    table.address_changed(eth0().index, address);
  }
  void report(const Netdev& netdev) { table.netdev_changed(netdev); }
  void hold(bool yes) {
    held = yes;
    held.notify_all();
  }
  uint32_t shown() {
    table.settle();
    return table.snapshot().links.at(0).speed;
  }
  // Carries out what follows the threads' work until `is_done` returns true.
  bool run_until(const std::function<bool()>& is_done) {
    return becomes_true([&] {
      for (ForeignCloser::Done& done : closer.take_closed()) {
        done.share.reset();
        if (done.task) std::exchange(done.task, {})();
      }
      return is_done();
    });
  }

  std::atomic<bool> held = false;
  std::atomic<uint32_t> speed = 1000;
  std::atomic<int> asked = 0;
  std::atomic<int> at_once = 0;
  std::vector<std::string> names;  // of the netdevs that were asked about
  const std::thread::id main_thread = std::this_thread::get_id();
  bool may_ask_here = false;
  int changes = 0;
  LinkTable table;
  ForeignCloser closer;
  NetdevSpeeds speeds{table, closer,
                      [this] {
                        ++changes;
                        speeds.look();
                      },
                      [this](const std::string& netdev) {
                        EXPECT_EQ(std::this_thread::get_id() == main_thread, may_ask_here);
                        EXPECT_EQ(++at_once, 1);
                        names.push_back(netdev);
                        ++asked;
                        held.wait(true);
                        --at_once;
                        return speed.load();
                      }};
};

TEST_F(NetdevSpeedsTest, AreAskedForAtTheStart) {
  may_ask_here = true;
  speeds.look_and_wait();
  EXPECT_EQ(shown(), 1000u);
  speeds.look_and_wait();
  EXPECT_EQ(asked, 1) << "without news there is no question";
}

// The other end of a veth pair may cause news at any rate, while other users hold the kernel's lock.
TEST_F(NetdevSpeedsTest, AreAskedForByAThreadWhileTheLastOnesAreShown) {
  speeds.look();
  EXPECT_TRUE(run_until([&] { return changes == 1; }));
  EXPECT_EQ(shown(), 1000u);
  hold(true);
  speed = 10'000;
  for (int i = 0; i < 100; ++i) {
    report(eth0());
    speeds.look();
    EXPECT_EQ(shown(), 1000u);
  }
  hold(false);
  EXPECT_TRUE(run_until([&] { return changes == 2 && asked == 3; }));
  EXPECT_EQ(shown(), 10'000u);
  EXPECT_TRUE(run_until([&] { return table.speed_questions().empty(); })) << "nobody asks any more";
  EXPECT_EQ(asked, 3) << "once for the first of the news, and once for all others";
}

TEST_F(NetdevSpeedsTest, AreNotAskedForWhereANetdevHasNoLink) {
  Netdev port = eth0();
  port.index = 3;
  port.name = "port";
  port.enslaved = true;
  report(port);
  speeds.look();
  EXPECT_TRUE(run_until([&] { return changes == 1; }));
  EXPECT_THAT(names, ElementsAre("eth0"));
  ASSERT_TRUE(table.add_link("mine", "port"));
  speeds.look();
  EXPECT_TRUE(run_until([&] { return changes == 2; }));
  EXPECT_THAT(names, ElementsAre("eth0", "port"));
}

TEST_F(NetdevSpeedsTest, AreAskedForAgainIfAnotherNetdevGetsTheIndex) {
  hold(true);
  speeds.look();
  table.netdev_removed(eth0().index);
  add_eth0();
  hold(false);
  EXPECT_TRUE(run_until([&] { return table.speed_questions().empty(); }));
  EXPECT_EQ(asked, 2) << "the new netdev is asked about";
  EXPECT_EQ(shown(), 1000u);
}

}  // namespace
}  // namespace verbena::agent
