// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/link_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbena::commands {
namespace {

using testing::HasSubstr;

std::string error_of(const std::vector<std::string>& words) {
  const auto parsed = parse_link_addition(words);
  return parsed ? "no error" : parsed.error();
}

TEST(LinkAddition, TakesNameAndDevice) {
  EXPECT_EQ(parse_link_addition({"rxe0", "eth0"}), (LinkAddition{"rxe0", "eth0"}));
}

TEST(LinkAddition, TakesTheWordsOfIproute2InEitherOrder) {
  EXPECT_EQ(parse_link_addition({"rxe0", "type", "rxe", "netdev", "eth0"}), (LinkAddition{"rxe0", "eth0"}));
  EXPECT_EQ(parse_link_addition({"rxe0", "netdev", "eth0", "type", "rxe"}), (LinkAddition{"rxe0", "eth0"}));
}

TEST(LinkAddition, SaysWhatIsMissing) {
  EXPECT_THAT(error_of({}), HasSubstr("name and network device are missing"));
  EXPECT_THAT(error_of({"rxe0"}), HasSubstr("the network device is missing"));
  EXPECT_THAT(error_of({"rxe0", "type", "rxe"}), HasSubstr("the network device is missing"));
  EXPECT_THAT(error_of({"rxe0", "netdev"}), HasSubstr("nothing follows 'netdev'"));
  EXPECT_THAT(error_of({"rxe0", "type", "rxe", "netdev"}), HasSubstr("nothing follows 'netdev'"));
}

TEST(LinkAddition, SaysWhatIsWrong) {
  EXPECT_THAT(error_of({"rxe0", "type", "siw", "netdev", "eth0"}), HasSubstr("there is no link type 'siw'"));
  EXPECT_THAT(error_of({"rxe0", "dev", "eth0"}), HasSubstr("'dev' is neither 'type' nor 'netdev'"));
  EXPECT_THAT(error_of({"rxe0", "netdev", "a", "netdev", "b"}), HasSubstr("twice"));
}

TEST(LinkAddition, EveryErrorSaysWhatWouldBeRight) {
  EXPECT_THAT(error_of({"rxe0"}), HasSubstr("verbena link add NAME type rxe netdev DEV"));
}

std::string peer_error_of(const std::vector<std::string>& words) {
  const auto parsed = parse_peer_setting(words);
  return parsed ? "no error" : parsed.error();
}

TEST(PeerSetting, TakesNetworksAndAddresses) {
  const auto parsed = parse_peer_setting({"rxe0", "peers", "192.0.2.0/24", "fd00::/8", "198.51.100.7"});
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->name, "rxe0");
  std::vector<std::string> peers;
  for (const roce::Prefix& peer : parsed->peers) peers.push_back(roce::text_of(peer));
  EXPECT_THAT(peers, testing::ElementsAre("192.0.2.0/24", "fd00::/8", "198.51.100.7/32"));
}

TEST(PeerSetting, AnyIsAll) {
  EXPECT_EQ(parse_peer_setting({"rxe0", "peers", "any"}), (PeerSetting{"rxe0", {}}));
}

TEST(PeerSetting, SaysWhatIsMissingAndWhatIsWrong) {
  EXPECT_THAT(peer_error_of({}), HasSubstr("the link's name is missing"));
  EXPECT_THAT(peer_error_of({"rxe0"}), HasSubstr("'peers' is missing"));
  EXPECT_THAT(peer_error_of({"rxe0", "mtu", "1500"}), HasSubstr("'mtu' cannot be set, only 'peers'"));
  EXPECT_THAT(peer_error_of({"rxe0", "peers"}), HasSubstr("nothing follows 'peers'"));
  EXPECT_THAT(peer_error_of({"rxe0", "peers", "192.0.2.0/33"}),
              HasSubstr("'192.0.2.0/33' is no address and no network"));
  EXPECT_THAT(peer_error_of({"rxe0", "peers", "fd00::/8", "any"}), HasSubstr("'any' is no address"));
  EXPECT_THAT(peer_error_of({"rxe0"}), HasSubstr("verbena link set NAME peers any"));
}

}  // namespace
}  // namespace verbena::commands
