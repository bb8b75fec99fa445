// SPDX-License-Identifier: Apache-2.0
#include "agent/links/link_publisher.h"

#include <cerrno>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/sessions/client_files.h"
#include "base/collapsed_file.h"
#include "control/model/link.h"

namespace verbena::agent {
namespace {

using control::Link;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> names(const std::vector<Link>& links) {
  std::vector<std::string> names;
  for (const Link& link : links) names.push_back(link.name);
  return names;
}

class LinkPublisherTest : public ::testing::Test, private AgentHost {
 protected:
  void add_netdev(uint32_t index, const std::string& name, std::array<uint8_t, 4> ipv4) {
    Netdev netdev;
    netdev.index = index;
    netdev.name = name;
    netdev.up = netdev.carrier = true;
    netdev.loopback = name == "lo";
    netdev.mtu = 1500;
    table.netdev_changed(netdev);
    NetdevAddress address;
    address.address = roce::Address::from_ipv4(ipv4.data());
    address.prefix = 24;
    table.address_changed(index, address);
  }
  std::vector<std::string> shown() const {
    const auto snapshot = control::read_link_file(publisher.file());
    return snapshot ? names(snapshot->links) : std::vector<std::string>{"no file"};
  }

  control::AdminResult<void> remove(const std::string& name) {
    return publisher.change([&](LinkTable& links) { return links.delete_link(name); });
  }
  AgentHost& host() { return *this; }
  bool awaits_programs() const override { return awaits; }
  void links_changed(const std::vector<Link>& links) override { before.push_back(names(links)); }

  LinkTable table;
  bool awaits = false;
  std::vector<std::vector<std::string>> before;  // the links before each change
  LinkPublisher publisher{table, *this};
};

TEST_F(LinkPublisherTest, ShowsNothingUntilItBegins) {
  add_netdev(2, "eth0", {10, 0, 0, 1});
  publisher.publish();
  EXPECT_EQ(publisher.file(), -1);
  publisher.begin();
  EXPECT_THAT(shown(), ElementsAre("rxe_eth0"));
  EXPECT_THAT(before, ElementsAre(IsEmpty()));
}

// Any client may have locks on it, for which a close waits.
TEST_F(LinkPublisherTest, HasAFormerFileClosedByAThread) {
  constexpr size_t kDescriptors = 10;
  ForeignCloser closer({.all = kDescriptors, .reserve = 0});
  LinkPublisher one(table, host(), &closer);
  one.begin();
  EXPECT_TRUE(closer.allows(0, kDescriptors));
  add_netdev(2, "eth0", {10, 0, 0, 1});
  one.publish();
  EXPECT_FALSE(closer.allows(0, kDescriptors)) << "it counts until its end is taken";
  EXPECT_TRUE(control::read_link_file(one.file()));
}

TEST_F(LinkPublisherTest, SaysOfAChangeWhatWasShownUntilThen) {
  publisher.begin();
  add_netdev(2, "eth0", {10, 0, 0, 1});
  publisher.publish();
  publisher.publish();
  EXPECT_THAT(before, ElementsAre(IsEmpty(), IsEmpty())) << "what has not changed is no news";
  add_netdev(3, "eth1", {10, 0, 1, 1});
  publisher.publish();
  EXPECT_THAT(before.back(), ElementsAre("rxe_eth0"));
}

TEST_F(LinkPublisherTest, ShowsAtOnceWhatTheUserAddsAndDeletes) {
  publisher.begin();
  add_netdev(2, "eth0", {10, 0, 0, 1});
  ASSERT_TRUE(publisher.change([](LinkTable& links) { return links.add_link("mine", "eth0"); }));
  EXPECT_THAT(shown(), ElementsAre("mine"));
  ASSERT_TRUE(remove("mine"));
  EXPECT_THAT(shown(), IsEmpty());
  const auto again = remove("mine");
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().code, 0);
}

TEST_F(LinkPublisherTest, LoopbacksLinkStaysWhileASessionHasSeenIt) {
  add_netdev(1, "lo", {127, 0, 0, 1});
  publisher.begin();
  publisher.session_came(7);
  publisher.session_came(8);
  add_netdev(2, "eth0", {10, 0, 0, 1});
  publisher.publish();
  EXPECT_EQ(shown().size(), 2u);
  publisher.session_came(9);  // the new session sees it, too
  publisher.session_went(7);
  publisher.session_went(8);
  EXPECT_EQ(shown().size(), 2u);
  publisher.session_went(9);
  EXPECT_THAT(shown(), ElementsAre("rxe_eth0"));
}

TEST_F(LinkPublisherTest, LoopbacksLinkStaysWhileAProgramIsAwaitedThatMayHaveSeenIt) {
  add_netdev(1, "lo", {127, 0, 0, 1});
  publisher.begin();
  awaits = true;
  add_netdev(2, "eth0", {10, 0, 0, 1});
  publisher.publish();
  EXPECT_EQ(shown().size(), 2u);
  awaits = false;
  publisher.consider_loopback();
  EXPECT_THAT(shown(), ElementsAre("rxe_eth0"));
}

using CollapsedFile = test::CollapsedFile;

TEST_F(CollapsedFile, IsNoTableOfLinks) {
  struct Host : AgentHost {
  } host;
  LinkTable table;
  LinkPublisher publisher(table, host);
  publisher.begin();
  EXPECT_EQ(collapse(publisher.file()), EAGAIN);
}

}  // namespace
}  // namespace verbena::agent
