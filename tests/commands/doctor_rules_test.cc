// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "commands/doctor/checks.h"
#include "commands/doctor/firewall.h"

namespace verbena::commands::doctor {
namespace {

using testing::HasSubstr;

constexpr const char* kIncomingByEth0 = "eth0";

Outcome judge_iptables(const char* rules, Probe probe = {.netdev = kIncomingByEth0}) {
  return judge(parse_iptables(rules, probe.ipv6 ? "ip6" : "ip"), probe);
}

TEST(DoctorFirewall, NoRulesDropNothing) {
  EXPECT_EQ(judge({}, {.netdev = "eth0"}).extent, Outcome::kNone);
  EXPECT_EQ(judge_iptables("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n").extent, Outcome::kNone);
}

TEST(DoctorFirewall, FindsTheRuleThatDropsThePort) {
  const Outcome outcome =
      judge_iptables("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p udp -m udp --dport 4791 -j DROP\nCOMMIT\n");
  EXPECT_EQ(outcome.extent, Outcome::kAll);
  EXPECT_THAT(outcome.by, HasSubstr("--dport 4791 -j DROP"));
}

TEST(DoctorFirewall, RulesForOthersConcernNobodyElse) {
  for (const char* rule : {"-p tcp -m tcp --dport 4791", "-p udp -m udp --dport 4792", "-i lo", "! -i eth0",
                           "-p udp -m multiport --dports 1,2:4790", "-m conntrack --ctstate INVALID"}) {
    const std::string rules =
        std::string("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT ") + rule + " -j DROP\nCOMMIT\n";
    EXPECT_EQ(judge_iptables(rules.c_str()).extent, Outcome::kNone) << rule;
  }
}

// Each end sends from a port of its own, so incoming packets are no answers to outgoing ones.
TEST(DoctorFirewall, LettingAnswersInIsNotEnough) {
  const char* const rules =
      "*filter\n:INPUT DROP [0:0]\n-A INPUT -i lo -j ACCEPT\n"
      "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -m comment --comment \"what we asked for\" -j "
      "ACCEPT\n"
      "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n";
  const Outcome outcome = judge_iptables(rules);
  EXPECT_EQ(outcome.extent, Outcome::kAll);
  EXPECT_THAT(outcome.by, HasSubstr("policy of chain INPUT"));
  EXPECT_EQ(judge_iptables(rules, {.netdev = "lo"}).extent, Outcome::kNone);
  EXPECT_EQ(judge_iptables(rules, {.direction = Probe::kOutgoing, .netdev = "eth0"}).extent, Outcome::kNone);
}

TEST(DoctorFirewall, FollowsChains) {
  const char* const rules =
      "*filter\n:INPUT ACCEPT [0:0]\n:outside - [0:0]\n:trusted - [0:0]\n-A INPUT -i eth+ -j outside\n"
      "-A outside -p udp -j trusted\n-A outside -j REJECT --reject-with icmp-port-unreachable\n"
      "-A trusted -p udp -m udp --dport 4000:5000 -j ACCEPT\nCOMMIT\n";
  EXPECT_EQ(judge_iptables(rules).extent, Outcome::kNone);
  EXPECT_EQ(judge_iptables(rules, {.netdev = "eth0", .destination_port = 53}).extent, Outcome::kAll);
  EXPECT_EQ(judge_iptables(rules, {.netdev = "wlan0", .destination_port = 53}).extent, Outcome::kNone);
}

TEST(DoctorFirewall, WhatDependsOnTheSenderMayBeDropped) {
  EXPECT_EQ(
      judge_iptables("*filter\n:INPUT DROP [0:0]\n-A INPUT -s 10.0.0.0/8 -p udp -j ACCEPT\nCOMMIT\n").extent,
      Outcome::kSome);
  EXPECT_EQ(judge_iptables("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 10.0.0.0/8 -j DROP\nCOMMIT\n").extent,
            Outcome::kSome);
}

// As ufw does: some packets return before the end of the chain, others do not, and the policy applies to all.
TEST(DoctorFirewall, WhatSomeRulesDropThePolicyDropsForAll) {
  const Outcome outcome = judge_iptables(
      "*filter\n:INPUT DROP [0:0]\n:not-local - [0:0]\n-A INPUT -j not-local\n"
      "-A not-local -m addrtype --dst-type LOCAL -j RETURN\n-A not-local -j DROP\nCOMMIT\n");
  EXPECT_EQ(outcome.extent, Outcome::kAll);
  EXPECT_EQ(
      judge_iptables("*filter\n:INPUT ACCEPT [0:0]\n:not-local - [0:0]\n-A INPUT -j not-local\n"
                     "-A not-local -m addrtype --dst-type LOCAL -j RETURN\n-A not-local -j DROP\nCOMMIT\n")
          .extent,
      Outcome::kSome);
}

// Each node of Kubernetes has this rule.
TEST(DoctorFirewall, LoopbacksAddressesAreLoopbacks) {
  EXPECT_EQ(judge_iptables(
                "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT ! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP\nCOMMIT\n")
                .extent,
            Outcome::kNone);
}

TEST(DoctorFirewall, ChainsThatJumpInACircleEnd) {
  EXPECT_EQ(judge_iptables(
                "*filter\n:INPUT ACCEPT [0:0]\n:a - [0:0]\n:b - [0:0]\n-A INPUT -j a\n-A a -j b\n-A b -j a\n")
                .extent,
            Outcome::kNone);
}

// A usual ruleset as nft of Debian 12 prints it.
constexpr const char* kNft = R"({"nftables": [{"metainfo": {"version": "1.0.6"}},
  {"table": {"family": "inet", "name": "filter", "handle": 1}},
  {"chain": {"family": "inet", "table": "filter", "name": "input", "handle": 1, "type": "filter", "hook": "input",
             "prio": 0, "policy": "drop"}},
  {"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 4, "expr": [
    {"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["established", {"accept": null}], ["invalid", {"drop": null}]]}}}]}},
  {"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 5, "expr": [
    {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "lo"}}, {"accept": null}]}},
  {"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 6, "expr": [
    {"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": {"set": [53, {"range": [4700, 4800]}]}}},
    {"counter": {"packets": 0, "bytes": 0}}, %s]}}]})";

std::string with_verdict(const char* verdict) {
  std::string text = kNft;
  return text.replace(text.find("%s"), 2, verdict);
}

TEST(DoctorFirewall, ReadsWhatNftWrites) {
  const auto accepting = parse_nft(with_verdict(R"({"accept": null})"));
  EXPECT_EQ(judge(accepting, {.netdev = "eth0"}).extent, Outcome::kNone);
  EXPECT_EQ(judge(accepting, {.ipv6 = true, .netdev = "eth0"}).extent, Outcome::kNone);
  EXPECT_EQ(judge(accepting, {.netdev = "eth0", .destination_port = 4801}).extent, Outcome::kAll);
  EXPECT_EQ(judge(accepting, {.netdev = "lo", .destination_port = 4801}).extent, Outcome::kNone);
  const Outcome dropped = judge(parse_nft(with_verdict(R"({"drop": null})")), {.netdev = "eth0"});
  EXPECT_EQ(dropped.extent, Outcome::kAll);
  EXPECT_THAT(dropped.by, HasSubstr("handle 6"));
}

// nft of Debian 12 about a chain of iptables-nft, and iptables-nft-save about the same chain.
TEST(DoctorFirewall, IptablesSaveHasTheValuesThatNftOmits) {
  auto tables = parse_nft(R"({"nftables": [
    {"chain": {"family": "ip", "table": "filter", "name": "INPUT", "handle": 1, "type": "filter", "hook": "input",
               "prio": 0, "policy": "drop"}},
    {"rule": {"family": "ip", "table": "filter", "chain": "INPUT", "handle": 2, "expr": [
      {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "udp"}},
      {"xt": {"type": "match", "name": "multiport"}}, {"counter": {"packets": 0, "bytes": 0}}, {"accept": null}]}},
    {"chain": {"family": "ip", "table": "filter", "name": "input", "handle": 3, "type": "filter", "hook": "input",
               "prio": 0, "policy": "accept"}},
    {"rule": {"family": "ip", "table": "filter", "chain": "input", "handle": 4, "expr": [
      {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "@some"}},
      {"drop": null}]}}]})");
  EXPECT_EQ(judge(tables, {.netdev = "eth0"}).extent, Outcome::kSome);
  complete(tables,
           parse_iptables("*filter\n:INPUT DROP [0:0]\n-A INPUT -p udp -m multiport --dports 53,4791 -j "
                          "ACCEPT\nCOMMIT\n*nat\n:OUTPUT DROP [0:0]\nCOMMIT\n",
                          "ip"));
  EXPECT_EQ(judge(tables, {.direction = Probe::kOutgoing, .netdev = "eth0"}).extent, Outcome::kAll)
      << "by another table";
  EXPECT_THAT(judge(tables, {.netdev = "eth0"}).by, HasSubstr("'input'"));
  EXPECT_THAT(judge(tables, {.netdev = "eth0", .destination_port = 54}).by,
              HasSubstr("policy of chain INPUT"));
}

// Without iptables-save, nft's names are all that is known.
TEST(DoctorFirewall, TargetsOfIptablesHaveNamesAtLeast) {
  const auto tables = parse_nft(R"({"nftables": [
    {"chain": {"family": "ip", "table": "filter", "name": "INPUT", "handle": 1, "type": "filter", "hook": "input",
               "prio": 0, "policy": "accept"}},
    {"rule": {"family": "ip", "table": "filter", "chain": "INPUT", "handle": 2, "expr": [
      {"counter": {"packets": 0, "bytes": 0}}, {"xt": {"type": "target", "name": "REJECT"}}]}}]})");
  EXPECT_EQ(judge(tables, {.netdev = "eth0"}).extent, Outcome::kAll);
}

TEST(DoctorFirewall, AddressesOfNftDependOnThePeer) {
  for (const char* addresses :
       {R"({"prefix": {"addr": "10.0.0.0", "len": 8}})", R"("@peers")",
        R"({"range": ["10.0.0.1", "10.0.0.9"]})", R"({"set": ["10.0.0.1", "10.0.0.9"]})"}) {
    const std::string rules = std::string(R"({"nftables": [
      {"chain": {"family": "inet", "table": "t", "name": "c", "handle": 1, "hook": "input", "policy": "accept"}},
      {"rule": {"family": "inet", "table": "t", "chain": "c", "handle": 2, "expr": [
        {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": )") +
                              addresses + R"(}}, {"drop": null}]}}]})";
    EXPECT_EQ(judge(parse_nft(rules), {.netdev = "eth0"}).extent, Outcome::kSome) << addresses;
    EXPECT_EQ(judge(parse_nft(rules), {.ipv6 = true, .netdev = "eth0"}).extent, Outcome::kNone) << addresses;
  }
}

TEST(DoctorFirewall, WhatIsNoRulesetIsSaidToBeNone) {
  EXPECT_THROW(parse_nft("nonsense"), nlohmann::json::exception);
  EXPECT_THROW(parse_nft("{}"), nlohmann::json::exception);
  EXPECT_TRUE(parse_iptables("nonsense\n-A INPUT -j DROP\n", "ip").empty());
}

// ---- translation of addresses

std::string translation_by_iptables(const std::string& rules) {
  return translation_of(parse_iptables(rules, "ip"),
                        {.direction = Probe::kForwarded, .netdev = "eth0", .source_port = 4791});
}

// Docker's rule for its bridge.
constexpr const char* kMasquerade =
    "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE\nCOMMIT\n";

TEST(DoctorTranslation, MasqueradingTakesThePortAlong) {
  EXPECT_EQ(translation_by_iptables(kMasquerade),
            "'iptables -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE'");
  EXPECT_EQ(translation_of(parse_iptables(kMasquerade, "ip"),
                           {.direction = Probe::kForwarded, .ipv6 = true, .netdev = "eth0"}),
            "");
  EXPECT_THAT(
      translation_by_iptables("*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -o eth0 -j SNAT --to-source "
                              "192.0.2.1\nCOMMIT\n"),
      HasSubstr("--to-source"));
}

TEST(DoctorTranslation, RulesForOthersConcernNobodyElse) {
  for (const char* rule :
       {"-p tcp -j MASQUERADE", "-o eth1 -j MASQUERADE", "-p udp ! --dport 4791 -j MASQUERADE",
        "-p udp --dport 4791 -j ACCEPT\n-A POSTROUTING -j MASQUERADE"}) {
    EXPECT_EQ(translation_by_iptables(std::string("*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING ") + rule +
                                      "\nCOMMIT\n"),
              "")
        << rule;
  }
}

TEST(DoctorTranslation, UntrackedAndDroppedPacketsAreNotTranslated) {
  for (const char* others :
       {"*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -m udp --dport 4791 -j CT --notrack\nCOMMIT\n",
        "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -m udp --dport 4791 -j NOTRACK\nCOMMIT\n",
        "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p udp -m udp --dport 4791 -j DROP\nCOMMIT\n"}) {
    EXPECT_EQ(translation_by_iptables(std::string(others) + kMasquerade), "") << others;
  }
  for (const char* others :
       {"*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -m udp --dport 53 -j CT --notrack\nCOMMIT\n",
        "*raw\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p udp -m udp --dport 4791 -j CT --notrack\nCOMMIT\n",
        "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -m udp --dport 4791 -j CT --zone "
        "1\nCOMMIT\n"}) {
    EXPECT_NE(translation_by_iptables(std::string(others) + kMasquerade), "") << others;
  }
}

// The state of an untracked packet is not "new".
TEST(DoctorTranslation, UntrackedPacketsNeedARuleOfTheirOwn) {
  const Probe untracked{.netdev = "eth0", .is_tracked = false};
  EXPECT_EQ(
      judge_iptables("*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate NEW -j ACCEPT\nCOMMIT\n",
                     untracked)
          .extent,
      Outcome::kAll);
  EXPECT_EQ(judge_iptables("*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate NEW,UNTRACKED -j "
                           "ACCEPT\nCOMMIT\n",
                           untracked)
                .extent,
            Outcome::kNone);
}

// As nft of Debian 12 prints it. %s: a rule of a chain "raw" at the hook prerouting.
constexpr const char* kNftTranslation = R"({"nftables": [
  {"chain": {"family": "inet", "table": "own", "name": "raw", "handle": 1, "type": "filter", "hook": "prerouting",
             "prio": -300, "policy": "accept"}},
  {"rule": {"family": "inet", "table": "own", "chain": "raw", "handle": 2, "expr": [
    {"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 4791}}, %s]}},
  {"chain": {"family": "inet", "table": "own", "name": "post", "handle": 3, "type": "nat", "hook": "postrouting",
             "prio": 100, "policy": "accept"}},
  {"rule": {"family": "inet", "table": "own", "chain": "post", "handle": 4, "expr": [
    {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "br0"}},
    {"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "eth0"}}, {"masquerade": null}]}}]})";

TEST(DoctorTranslation, ReadsWhatNftWrites) {
  const Probe probe{.direction = Probe::kForwarded, .netdev = "eth0", .source_port = 4791};
  const auto rules = [](const char* statements) {
    std::string text = kNftTranslation;
    return parse_nft(text.replace(text.find("%s"), 2, statements));
  };
  EXPECT_THAT(translation_of(rules(R"({"counter": null})"), probe), HasSubstr("table 'inet own' (handle 4)"));
  EXPECT_EQ(translation_of(rules(R"({"notrack": null})"), probe), "");
  EXPECT_EQ(translation_of(rules(R"({"notrack": null}, {"accept": null})"), probe), "");
  EXPECT_EQ(translation_of(rules(R"({"counter": null})"), {.direction = Probe::kForwarded, .netdev = "eth1"}),
            "");
}

// ---- links

control::LinkStatus link_over_eth0() {
  constexpr uint8_t kAddress[] = {192, 0, 2, 1};
  control::LinkStatus one;
  one.link.name = "rxe_eth0";
  one.link.netdev = "eth0";
  one.link.interface_index = 2;
  one.link.mtu = 1500;
  one.link.up = true;
  one.link.gids = {{.index = 1, .gid = roce::Address::from_ipv4(kAddress)}};
  return one;
}

Netdevs machine() {
  return {.all = {{.index = 1, .name = "lo", .mtu = 65'536, .up = true, .carrier = true, .loopback = true},
                  {.index = 2, .name = "eth0", .mtu = 1500, .up = true, .carrier = true}},
          .narrow_routes = {}};
}

std::string everything(const Findings& findings) {
  return as_text(findings);
}

TEST(DoctorLinks, AnOrdinaryLinkIsFine) {
  Findings findings;
  look_at_links({link_over_eth0()}, machine(), findings);
  EXPECT_EQ(exit_status(findings), 0) << everything(findings);
}

TEST(DoctorLinks, WithoutALinkTheDevicesThatHaveNoneAreNamed) {
  Findings findings;
  Netdevs netdevs = machine();
  netdevs.all[1].up = false;
  look_at_links({}, netdevs, findings);
  EXPECT_EQ(exit_status(findings), 1);
  EXPECT_THAT(everything(findings), HasSubstr("eth0 (down)"));
}

TEST(DoctorLinks, ADeviceWithAnAddressHasLostItsLink) {
  Findings findings;
  Netdevs netdevs = machine();
  look_at_links({}, netdevs, findings);
  EXPECT_THAT(everything(findings), HasSubstr("eth0 (has no address)"));
  netdevs.all[1].has_address = true;
  Findings of_a_deleted_one;
  look_at_links({}, netdevs, of_a_deleted_one);
  EXPECT_THAT(everything(of_a_deleted_one), HasSubstr("eth0 (its link was deleted)"));
  EXPECT_THAT(everything(of_a_deleted_one), HasSubstr("-> make one: verbena link add rxe_eth0 eth0"));
}

TEST(DoctorLinks, SaysWhyALinkIsDown) {
  auto link = link_over_eth0();
  link.link.up = false;
  Netdevs netdevs = machine();
  netdevs.all[1].carrier = false;
  Findings findings;
  look_at_links({link}, netdevs, findings);
  EXPECT_THAT(everything(findings), HasSubstr("has no carrier"));
}

TEST(DoctorLinks, AnAutomaticLinkMayBeDownWhereThereIsAnother) {
  auto bridge = link_over_eth0();
  bridge.link.name = "rxe_docker0";
  bridge.link.up = false;
  bridge.link.automatic = true;
  Findings findings;
  look_at_links({link_over_eth0(), bridge}, machine(), findings);
  EXPECT_EQ(exit_status(findings), 0) << everything(findings);
  EXPECT_THAT(everything(findings), HasSubstr("up: rxe_eth0; down: rxe_docker0"));
  bridge.link.automatic = false;
  Findings of_a_wanted_one;
  look_at_links({link_over_eth0(), bridge}, machine(), of_a_wanted_one);
  EXPECT_EQ(exit_status(of_a_wanted_one), 1);
}

TEST(DoctorLinks, FindsRoutesThatAreNarrowerThanThePathMtu) {
  Netdevs netdevs = machine();
  netdevs.narrow_routes = {{.netdev = 2, .destination = "198.51.100.7", .mtu = 1100, .learned = true},
                           {.netdev = 2, .destination = "198.51.100.8", .mtu = 1104, .learned = true}};
  Findings findings;
  look_at_links({link_over_eth0()}, netdevs, findings);
  EXPECT_EQ(findings.count(Level::kCost), 1u) << everything(findings);
  EXPECT_EQ(findings.count(Level::kFault), 0u) << everything(findings);
  EXPECT_THAT(everything(findings), HasSubstr("198.51.100.7 carries 1100 bytes (a router said so)"));
  EXPECT_THAT(everything(findings), HasSubstr("perftest -m 512"));
}

TEST(DoctorLinks, FindsBridgePortsThatAreNarrowerThanTheirBridge) {
  auto link = link_over_eth0();
  link.link.mtu = 9000;
  Netdevs netdevs = machine();
  netdevs.all.push_back({.index = 3, .name = "veth7", .mtu = 1500, .up = true, .carrier = true, .master = 2});
  Findings findings;
  look_at_links({link}, netdevs, findings);
  EXPECT_THAT(everything(findings), HasSubstr("its port veth7 carries 1500"));
}

TEST(DoctorLinks, LinkLocalAddressesAloneReachOneCable) {
  auto link = link_over_eth0();
  link.link.gids[0].gid = roce::Address{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  Findings findings;
  look_at_links({link}, machine(), findings);
  EXPECT_THAT(everything(findings), HasSubstr("link-local address only"));
  link.link.gids.push_back(
      {.index = 1, .gid = roce::Address{{0x20, 0x01, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}});
  Findings with_another;
  look_at_links({link}, machine(), with_another);
  EXPECT_THAT(everything(with_another), HasSubstr("no link has an IPv4 address"));
}

// ---- the report

TEST(DoctorReport, JsonHasWhatIsAmissAndWhatToDo) {
  Findings findings;
  findings.fine("port", "free");
  EXPECT_EQ(nlohmann::json::parse(as_json(findings))["result"], "fine");
  findings.fault("mtu", "too \"small\"\n", "raise it");
  const auto whole = nlohmann::json::parse(as_json(findings));
  EXPECT_EQ(whole["result"], "findings");
  EXPECT_EQ(
      whole["findings"][1],
      nlohmann::json(
          {{"subject", "mtu"}, {"level", "fault"}, {"what", "too \"small\"\n"}, {"to_do", "raise it"}}));
}

TEST(DoctorReport, WhatCouldNotBeSeenIsNoFault) {
  Findings findings;
  findings.unseen("firewall", "only root may");
  EXPECT_EQ(exit_status(findings), 0);
  EXPECT_THAT(as_text(findings), HasSubstr("Not looked at: 1 of 1"));
}

}  // namespace
}  // namespace verbena::commands::doctor
