// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "agent/cm/address.h"
#include "agent/cm/in_process.h"

namespace verbena::agent {
namespace {

roce::Address gid(const std::string& text) {
  CmAddress address{};
  address.family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
  EXPECT_EQ(::inet_pton(address.family, text.c_str(), address.address), 1) << text;
  return gid_of(address);
}

control::Link link(uint32_t index, bool up, const std::vector<std::string>& addresses) {
  control::Link link;
  link.device_index = link.interface_index = index;
  link.up = up;
  for (uint32_t i = 0; i < addresses.size(); ++i) link.gids.push_back({i, gid(addresses[i])});
  return link;
}

TEST(LinkDirectory, ReachesThisHostByTheLoopbackLink) {
  LinkDirectory directory;
  directory.update({link(1, true, {"fe80::1", "10.0.0.1"}), link(2, true, {"127.0.0.1", "::1"})});
  const auto found = directory.loopback(true);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->link->device_index, 2u);
  EXPECT_EQ(found->address, gid("127.0.0.1"));
}

TEST(LinkDirectory, ReachesThisHostByAnotherLinkWhereLoopbackHasNone) {
  LinkDirectory directory;
  directory.update({link(1, false, {"10.0.0.1"}), link(2, true, {"fe80::2", "2001:db8::2", "10.0.0.2"}),
                    link(3, true, {"10.0.0.3"})});
  ASSERT_TRUE(directory.loopback(true));
  EXPECT_EQ(directory.loopback(true)->address, gid("10.0.0.2"));
  ASSERT_TRUE(directory.loopback(false));
  EXPECT_EQ(directory.loopback(false)->address, gid("2001:db8::2"));
}

TEST(LinkDirectory, TakesALinkThatIsDownWhenThereIsNoOther) {
  LinkDirectory directory;
  directory.update({link(1, false, {"10.0.0.1"})});
  ASSERT_TRUE(directory.loopback(true));
  EXPECT_EQ(directory.loopback(true)->address, gid("10.0.0.1"));
  EXPECT_FALSE(directory.loopback(false));
}

using LinkLocalAddresses = CmInProcess;

// Otherwise a port may have as many listeners as there are numbers, and each request would walk over them.
TEST_F(LinkLocalAddresses, AreBoundWithTheInterfaceOfTheirLinkOnly) {
  add_link();
  Program program = this->program(1000);
  CmAddress address = address_of(gid("fe80::1"), 7471, 1);
  EXPECT_EQ(program.bind(program.create(), address), 0);
  address.scope_id = 2;
  EXPECT_NE(program.bind(program.create(), address), 0);
}

}  // namespace
}  // namespace verbena::agent
