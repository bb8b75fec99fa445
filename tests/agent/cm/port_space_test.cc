// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/port_space.h"

#include <cerrno>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace verbena::agent {
namespace {

constexpr uint16_t kPort = 7471;

CmAddress address(const std::string& host, uint16_t port = kPort, uint32_t scope_id = 0) {
  CmAddress result{};
  result.family = host.find(':') == std::string::npos ? AF_INET : AF_INET6;
  result.scope_id = scope_id;
  set_port(result, port);
  ::inet_pton(result.family, host.c_str(), result.address);
  return result;
}

PortBinding binding(const CmAddress& source) {
  PortBinding result;
  result.source = source;
  result.own_family_only = source.family == AF_INET;
  return result;
}

int error_of(const Result<void>& result) {
  return result ? 0 : result.error().code;
}

class PortSpaceTest : public ::testing::Test {
 protected:
  int bind(PortBinding& binding) { return error_of(ports_.bind(binding)); }
  PortSpace ports_;
  Random random_{42};
};

TEST_F(PortSpaceTest, GivesAPortToOneOfAnAddress) {
  auto one = binding(address("10.0.0.1"));
  auto same = binding(address("10.0.0.1"));
  auto other = binding(address("10.0.0.2"));
  EXPECT_EQ(bind(one), 0);
  EXPECT_EQ(bind(same), EADDRINUSE);
  EXPECT_EQ(bind(other), 0);
  ports_.release(one);
  EXPECT_EQ(bind(same), 0);
}

TEST_F(PortSpaceTest, KeepsAWildcardAndAnAddressOfItsFamilyApart) {
  auto any = binding(address("0.0.0.0"));
  auto one = binding(address("10.0.0.1"));
  auto ipv6 = binding(address("2001:db8::1"));
  EXPECT_EQ(bind(any), 0);
  EXPECT_EQ(bind(one), EADDRNOTAVAIL);
  EXPECT_EQ(bind(ipv6), EADDRNOTAVAIL);  // an IPv6 socket may listen for both families
  ipv6.own_family_only = true;
  EXPECT_EQ(bind(ipv6), 0);
}

TEST_F(PortSpaceTest, KeepsLinkLocalAddressesOfTwoInterfacesApart) {
  auto one = binding(address("fe80::1", kPort, 2));
  auto other = binding(address("fe80::1", kPort, 3));
  auto same = binding(address("fe80::1", kPort, 2));
  EXPECT_EQ(bind(one), 0);
  EXPECT_EQ(bind(other), 0);
  EXPECT_EQ(bind(same), EADDRINUSE);
}

TEST_F(PortSpaceTest, LetsThoseShareWhoAllSaidSoUntilOneListens) {
  auto one = binding(address("0.0.0.0"));
  auto two = binding(address("0.0.0.0"));
  auto three = binding(address("0.0.0.0"));
  one.reuse_address = two.reuse_address = true;
  EXPECT_EQ(bind(one), 0);
  EXPECT_EQ(bind(two), 0);
  EXPECT_EQ(bind(three), EADDRNOTAVAIL);
  EXPECT_EQ(error_of(ports_.listen(one)), EADDRNOTAVAIL);
  ports_.release(two);
  EXPECT_EQ(error_of(ports_.listen(one)), 0);
  EXPECT_EQ(bind(two), EADDRNOTAVAIL);  // a listener does not share its port
}

TEST_F(PortSpaceTest, ChoosesPortsOfTheRangeThatTellConnectionsApart) {
  constexpr PortRange kRange{5000, 5004};
  std::vector<std::unique_ptr<PortBinding>> bindings;
  std::set<uint16_t> used;
  const auto choose = [&](const std::string& destination) {
    auto& added = bindings.emplace_back(std::make_unique<PortBinding>(binding(address("0.0.0.0", 0))));
    added->destination = address(destination, 1);
    const int error = error_of(ports_.bind_any(*added, kRange, random_));
    if (error == 0) used.insert(port_of(added->source));
    return error;
  };
  for (int i = 0; i < 5; ++i) EXPECT_EQ(choose("10.0.0.1"), 0) << i;
  EXPECT_EQ(used, (std::set<uint16_t>{5000, 5001, 5002, 5003, 5004}));
  EXPECT_EQ(choose("10.0.0.1"), EADDRNOTAVAIL);
  EXPECT_EQ(choose("10.0.0.2"), 0);  // for another destination the same port will do
  ports_.release(*bindings[2]);
  bindings.erase(bindings.begin() + 2);
  EXPECT_EQ(choose("10.0.0.1"), 0);
}

TEST_F(PortSpaceTest, AvoidsThePortThatWasGivenLast) {
  constexpr PortRange kRange{5000, 5001};
  auto one = binding(address("0.0.0.0", 0));
  uint16_t last = 0;
  for (int i = 0; i < 20; ++i) {
    set_port(one.source, 0);
    ASSERT_EQ(error_of(ports_.bind_any(one, kRange, random_)), 0);
    EXPECT_NE(port_of(one.source), last);
    last = port_of(one.source);
    ports_.release(one);
  }
}

TEST_F(PortSpaceTest, FindsTheMostExactListener) {
  auto any4 = binding(address("0.0.0.0"));
  auto one = binding(address("10.0.0.1", kPort + 1));
  auto dual = binding(address("::", kPort + 2));
  auto any6 = binding(address("::"));
  any6.own_family_only = true;
  for (PortBinding* each : {&any4, &one, &dual, &any6}) {
    ASSERT_EQ(bind(*each), 0);
    EXPECT_EQ(ports_.find_listener(each->source, PortSpace::Origin::kElsewhere),
              nullptr);  // only bound, not listening
    ASSERT_EQ(error_of(ports_.listen(*each)), 0);
  }
  EXPECT_EQ(ports_.find_listener(address("10.0.0.7"), PortSpace::Origin::kElsewhere), &any4);
  EXPECT_EQ(ports_.find_listener(address("2001:db8::7"), PortSpace::Origin::kElsewhere), &any6);
  EXPECT_EQ(ports_.find_listener(address("10.0.0.1", kPort + 1), PortSpace::Origin::kElsewhere), &one);
  EXPECT_EQ(ports_.find_listener(address("10.0.0.2", kPort + 1), PortSpace::Origin::kElsewhere), nullptr);
  EXPECT_EQ(ports_.find_listener(address("10.0.0.7", kPort + 2), PortSpace::Origin::kElsewhere), &dual);
  EXPECT_EQ(ports_.find_listener(address("2001:db8::7", kPort + 2), PortSpace::Origin::kElsewhere), &dual);
  EXPECT_EQ(ports_.find_listener(address("10.0.0.7", kPort + 3), PortSpace::Origin::kElsewhere), nullptr);
}

// Loopback is a wildcard for a port as for a device, as in the kernel's rdma_cm.
TEST_F(PortSpaceTest, TakesLoopbackForAWildcard) {
  auto loopback = binding(address("127.0.0.1"));
  auto one = binding(address("10.0.0.1"));
  ASSERT_EQ(bind(loopback), 0);
  EXPECT_EQ(bind(one), EADDRNOTAVAIL);
}

TEST_F(PortSpaceTest, BringsAListenerOnLoopbackThisHostsRequestsOnly) {
  auto loopback = binding(address("127.0.0.1"));
  ASSERT_EQ(bind(loopback), 0);
  ASSERT_EQ(error_of(ports_.listen(loopback)), 0);
  EXPECT_EQ(ports_.find_listener(address("127.0.0.1"), PortSpace::Origin::kThisHost), &loopback);
  EXPECT_EQ(ports_.find_listener(address("10.0.0.1"), PortSpace::Origin::kThisHost), &loopback);
  EXPECT_EQ(ports_.find_listener(address("10.0.0.1"), PortSpace::Origin::kElsewhere), nullptr);
}

TEST_F(PortSpaceTest, FindsAListenerUntilItStopsOrReleasesItsPort) {
  auto one = binding(address("10.0.0.1"));
  ASSERT_EQ(bind(one), 0);
  for (const bool by_release : {false, true}) {
    ASSERT_EQ(error_of(ports_.listen(one)), 0);
    EXPECT_EQ(ports_.find_listener(one.source, PortSpace::Origin::kElsewhere), &one);
    by_release ? ports_.release(one) : ports_.stop_listening(one);
    EXPECT_FALSE(one.listening);
    EXPECT_EQ(ports_.find_listener(one.source, PortSpace::Origin::kElsewhere), nullptr);
  }
}

TEST_F(PortSpaceTest, AListenerTakesThePlaceOfOneWhoseClientHasGone) {
  PortOwner gone;
  auto one = binding(address("10.0.0.1"));
  auto other = binding(address("10.0.0.1"));
  one.owner = &gone;
  ASSERT_EQ(bind(one), 0);
  ASSERT_EQ(error_of(ports_.listen(one)), 0);
  gone.has_gone = true;
  ASSERT_EQ(bind(other), 0);
  ASSERT_EQ(error_of(ports_.listen(other)), 0);
  ports_.release(one);
  EXPECT_EQ(ports_.find_listener(other.source, PortSpace::Origin::kElsewhere), &other);
}

// Thousands of identifiers may share a port, and each request of any host asks.
TEST_F(PortSpaceTest, AsksNoHolderThatDoesNotListen) {
  std::list<PortBinding> holders;
  for (const char* host : {"10.0.0.1", "10.0.0.2", "10.0.0.3"}) {
    PortBinding& one = holders.emplace_back(binding(address(host)));
    ASSERT_EQ(bind(one), 0);
    one.listening = true;  // only listen() enters it
  }
  ASSERT_EQ(error_of(ports_.listen(holders.front())), 0);
  size_t asked = 0;
  EXPECT_FALSE(ports_.has_listener(kPort, [&](const PortBinding&) {
    ++asked;
    return false;
  }));
  EXPECT_EQ(asked, 1u);
}

// ---- users

class SharedPorts : public ::testing::Test {
 protected:
  static constexpr uid_t kOwn = 500;
  static constexpr PortRange kRange{40'000, 40'099};
  // Binds another identifier of the user to any port, with no destination.
  bool take_any(uid_t user) { return take_any(user, {}); }
  bool take_any(uid_t user, const CmAddress& destination) {
    PortBinding& one = held_.emplace_back(binding(address("0.0.0.0", 0)));
    one.user = user;
    one.destination = destination;
    return ports_.bind_any(one, kRange, random_).has_value();
  }
  int bind(uid_t user, uint16_t port) {
    PortBinding& one = held_.emplace_back(binding(address("10.0.0.1", port)));
    one.user = user;
    return error_of(ports_.bind(one, kRange));
  }
  int resume(uid_t user, uint16_t port, const CmAddress& destination,
             PortSpace::Share share = PortSpace::Share::kIsAsked) {
    PortBinding& one = held_.emplace_back(binding(address("10.0.0.1", port)));
    one.user = user;
    one.destination = destination;
    return error_of(ports_.resume(one, kRange, share));
  }
  size_t take_all(uid_t user) {
    size_t taken = 0;
    while (take_any(user)) ++taken;
    return taken;
  }
  std::list<PortBinding> held_;
  PortSpace ports_{kOwn};
  Random random_{42};
};

TEST_F(SharedPorts, OneUserLeavesSomeForOthers) {
  const size_t first = take_all(1000);
  EXPECT_GT(first, 40u);
  EXPECT_LT(first, 70u);
  EXPECT_GT(take_all(1001), 5u);
  EXPECT_TRUE(take_any(1002));
  EXPECT_GE(take_all(kOwn), 12u) << "a part is reserved";
}

TEST_F(SharedPorts, NorDoesItTakeThemOneByOne) {
  int error = 0;
  for (uint16_t port = kRange.first; error == 0 && port <= kRange.last; ++port) error = bind(1000, port);
  EXPECT_EQ(error, EADDRNOTAVAIL);
  EXPECT_TRUE(take_any(1001));
  EXPECT_EQ(bind(1000, kPort), 0) << "no ephemeral port";
}

// A user with all ports to one destination would keep other users from it.
TEST_F(SharedPorts, ConnectionsOfOneUserShareItsPorts) {
  const CmAddress server = address("10.0.0.9");
  size_t taken = 0;
  while (take_any(1000, server)) ++taken;
  EXPECT_LT(taken, 70u);
  EXPECT_TRUE(take_any(1000, address("10.0.0.8"))) << "by the same ports";
  EXPECT_TRUE(take_any(1001, server));
}

// A program may claim at any time that a former agent had given it a port.
TEST_F(SharedPorts, ResumedBesideOthersCountInTheShareToo) {
  const CmAddress server = address("10.0.0.9");
  const CmAddress elsewhere = address("10.0.0.8");
  ASSERT_TRUE(take_any(1000, server));
  const uint16_t own = port_of(held_.back().source);
  while (take_any(1000, server)) {
  }
  ASSERT_TRUE(take_any(1001, server));
  const uint16_t others = port_of(held_.back().source);
  EXPECT_EQ(resume(1000, others, elsewhere), EADDRNOTAVAIL);
  EXPECT_EQ(resume(1000, own, elsewhere), 0) << "the user has it";
  EXPECT_EQ(resume(1002, others, address("10.0.0.7")), 0) << "another user has a share left";
  EXPECT_EQ(resume(kOwn, others, address("10.0.0.6")), 0);
  EXPECT_EQ(resume(1000, others, elsewhere, PortSpace::Share::kGranted), 0) << "by a former agent";
}

TEST_F(SharedPorts, APortIsTheUsersUntilItsLastHolderLeavesIt) {
  const CmAddress server = address("10.0.0.9");
  while (take_any(1000, server)) {
  }
  held_.pop_back();  // the one that got no port
  const size_t share = held_.size();
  // A second connection from each port.
  for (size_t i = 0; i < share; ++i) ASSERT_TRUE(take_any(1000, address("10.0.0.8")));
  for (size_t i = 0; i < share; ++i) {
    ports_.release(held_.front());
    held_.pop_front();
  }
  EXPECT_FALSE(take_any(1000)) << "all of them are still held";
  held_.pop_back();
  ports_.release(held_.front());
  held_.pop_front();
  EXPECT_TRUE(take_any(1000));
}

TEST_F(SharedPorts, NotMoreThanSomeShareOnePort) {
  std::list<PortBinding> many;
  Result<void> bound;
  while (bound) {
    PortBinding& one = many.emplace_back(binding(address("10.0.0.1")));
    one.reuse_address = true;
    one.user = 1000;
    bound = ports_.bind(one, kRange);
  }
  EXPECT_EQ(many.size(), PortSpace::kMaxHolders + 1);
}

}  // namespace
}  // namespace verbena::agent
