// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "commands/doctor/checks.h"
#include "commands/doctor/command_output.h"
#include "commands/doctor/firewall.h"
#include "commands/doctor/netlink_dump.h"

namespace verbena::commands::doctor {
namespace {

constexpr const char* kFirewall = "firewall";
constexpr Duration kListPatience = std::chrono::seconds(10);

int on_table(const nlmsghdr*, void* count) {
  ++*static_cast<size_t*>(count);
  return MNL_CB_OK;
}

// Asks the kernel for the number of nftables tables in this network namespace. Fails with EPERM for users
// other than root, and with other errors if the kernel has no nftables.
Result<size_t> count_nft_tables() {
  size_t tables = 0;
  const auto asked = NetlinkDump(NETLINK_NETFILTER)
                         .ask((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETTABLE, nfgenmsg{}, on_table, &tables);
  if (!asked) return fail(asked.error().code);
  return tables;
}

// Whether this network namespace has tables of legacy iptables (family "ip") or ip6tables ("ip6"), which
// nftables does not list. Returns false also if the tables' names cannot be read.
bool has_legacy_tables(const std::string& family) {
  std::ifstream names("/proc/net/" + family + "_tables_names");
  std::string name;
  return static_cast<bool>(names >> name);
}

struct Rules {
  std::vector<Table> tables;
  bool read = false;    // by at least one tool
  bool failed = false;  // at least one tool failed
};

// Runs a command that lists rules. Returns nullopt if there is no such command or it fails.
std::optional<std::string> listed_by(const std::vector<std::string>& words, Rules& rules) {
  auto ran = run_command(words, kListPatience);
  if (!ran) return std::nullopt;
  if (ran->status != 0) {
    rules.failed = true;
    return std::nullopt;
  }
  rules.read = true;
  return std::move(ran->out);
}

void read_nft(Rules& rules) {
  const auto text = listed_by({"nft", "-j", "list", "ruleset"}, rules);
  if (!text) return;
  try {
    rules.tables = parse_nft(*text);
  } catch (const nlohmann::json::exception&) {
    rules.failed = true;
  }
}

// Reads the rules of iptables ("ip") or ip6tables ("ip6"). The kernel keeps those of iptables-nft in
// nftables, and those of iptables-legacy apart. Plain iptables-save would show one kind only.
void read_iptables(const std::string& family, Rules& rules) {
  if (const auto text = listed_by({family + "tables-nft-save"}, rules)) {
    complete(rules.tables, parse_iptables(*text, family));
  }
  if (!has_legacy_tables(family)) return;
  const auto text = listed_by({family + "tables-legacy-save"}, rules);
  if (!text) rules.failed = true;
  std::ranges::move(parse_iptables(text.value_or(""), family), std::back_inserter(rules.tables));
}

std::string described(const Probe& probe) {
  return verbena::format("{} to UDP port 4791 {} {}", probe.ipv6 ? "IPv6 packets" : "IPv4 packets",
                         probe.direction == Probe::kIncoming ? "that come by" : "that leave by",
                         probe.netdev);
}

const char* remedy(const Probe& probe) {
  return probe.direction == Probe::kIncoming
             ? "let new UDP flows to port 4791 in, as in 'nft insert rule inet filter input udp dport 4791 "
               "accept': that packets leave does not open the way back"
             : "let UDP to port 4791 out";
}

// Returns the worst outcome over all network devices, directions and families, and its packet in `which`.
Outcome worst_of(const std::vector<Table>& tables, const std::vector<std::string>& netdevs, Probe& which) {
  Outcome worst;
  for (const std::string& netdev : netdevs) {
    for (const auto direction : {Probe::kIncoming, Probe::kOutgoing}) {
      for (const bool ipv6 : {false, true}) {
        Probe probe{.direction = direction, .ipv6 = ipv6, .netdev = netdev};
        probe.is_tracked = judge(tables, probe, Verdict::kNotrack).extent != Outcome::kAll;
        Outcome outcome = judge(tables, probe);
        if (outcome.extent <= worst.extent) continue;
        worst = std::move(outcome);
        which = probe;
      }
    }
  }
  return worst;
}

// Reports a rule by which a container takes UDP port 4791 of this host's address (docs/security.md).
void look_at_translation(const std::vector<Table>& tables, const std::vector<std::string>& netdevs, bool ipv6,
                         Findings& findings) {
  for (const std::string& netdev : netdevs) {
    const Probe probe{.direction = Probe::kForwarded, .ipv6 = ipv6, .netdev = netdev, .source_port = 4791};
    const std::string rule = netdev == "lo" ? "" : translation_of(tables, probe);
    if (rule.empty()) continue;
    findings.cost(kFirewall,
                  verbena::format("{} gives forwarded packets from UDP port 4791 an address of this host: a "
                                  "container can speak for this host",
                                  rule),
                  verbena::format(
                      "translate nothing for that port: {}tables -t raw -A PREROUTING -p udp --dport 4791 -j "
                      "CT --notrack, and the same for OUTPUT (nft: 'udp dport 4791 notrack', priority raw)",
                      ipv6 ? "ip6" : "ip"));
    return;
  }
}

}  // namespace

void look_at_firewall(const std::vector<std::string>& netdevs, Findings& findings) {
  const auto nft_tables = count_nft_tables();
  if (!nft_tables && nft_tables.error().code == EPERM) {
    return findings.unseen(kFirewall, "only root may read the rules of nftables and iptables",
                           "if other hosts do not answer, ask again as root: sudo verbena doctor");
  }
  if (!has_legacy_tables("ip") && !has_legacy_tables("ip6") && (!nft_tables || *nft_tables == 0)) {
    return findings.fine(kFirewall, "there are no rules of nftables and iptables");
  }
  Rules rules;
  read_nft(rules);
  for (const char* family : {"ip", "ip6"}) read_iptables(family, rules);
  Probe probe;
  const Outcome outcome = worst_of(rules.tables, netdevs, probe);
  if (outcome.extent == Outcome::kAll) {
    findings.fault(kFirewall, verbena::format("{} drops {}", outcome.by, described(probe)), remedy(probe));
  } else if (outcome.extent == Outcome::kSome) {
    findings.cost(kFirewall, verbena::format("{} drops some {}", outcome.by, described(probe)),
                  verbena::format("if peers are among them, {}", remedy(probe)));
  }
  for (const bool ipv6 : {false, true}) look_at_translation(rules.tables, netdevs, ipv6, findings);
  if (findings.amiss(kFirewall)) return;
  if (rules.read && !rules.failed) {
    findings.fine(kFirewall, "no rule of nftables or iptables drops or translates packets to UDP port 4791");
  } else {
    findings.unseen(
        kFirewall,
        "there are rules of nftables or iptables, and no 'nft -j' or iptables-save here to read them",
        "look at them: do they let new UDP flows to port 4791 in?");
  }
}

}  // namespace verbena::commands::doctor
