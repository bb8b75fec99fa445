// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <chrono>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "commands/doctor/checks.h"
#include "commands/doctor/command_output.h"
#include "commands/doctor/firewall.h"
#include "commands/doctor/nft_tables.h"

namespace verbena::commands::doctor {
namespace {

constexpr const char* kFirewall = "firewall";
constexpr Duration kListPatience = std::chrono::seconds(10);

struct Rules {
  std::vector<Table> tables;
  bool read = false;    // by at least one tool
  bool failed = false;  // at least one tool failed
};

void add(std::vector<Table> more, Rules& rules) {
  rules.read = true;
  for (Table& table : more) rules.tables.push_back(std::move(table));
}

void read_nft(Rules& rules) {
  const auto ran = run_command({"nft", "-j", "list", "ruleset"}, kListPatience);
  if (!ran) return;
  if (ran->status != 0) {
    rules.failed = true;
    return;
  }
  try {
    add(parse_nft(ran->out), rules);
  } catch (const nlohmann::json::exception&) {
    rules.failed = true;
  }
}

void read_iptables(const char* program, const char* family, Rules& rules) {
  const auto ran = run_command({program}, kListPatience);
  if (!ran) return;
  if (ran->status != 0) {
    rules.failed = true;
  } else {
    add(parse_iptables(ran->out, family), rules);
  }
}

std::string described(const Probe& probe) {
  return verbena::format("{} to UDP port 4791 {} {}", probe.ipv6 ? "IPv6 packets" : "IPv4 packets",
                         probe.incoming ? "that come by" : "that leave by", probe.netdev);
}

const char* remedy(const Probe& probe) {
  return probe.incoming ? "let new UDP flows to port 4791 in, as in 'nft insert rule inet filter input udp "
                          "dport 4791 accept': "
                          "that packets leave does not open the way back"
                        : "let UDP to port 4791 out";
}

// Returns the worst outcome over all network devices, directions and families, and its packet in `which`.
Outcome worst_of(const std::vector<Table>& tables, const std::vector<std::string>& netdevs, Probe& which) {
  Outcome worst;
  for (const std::string& netdev : netdevs) {
    for (const bool incoming : {true, false}) {
      for (const bool ipv6 : {false, true}) {
        const Probe probe{.incoming = incoming, .ipv6 = ipv6, .netdev = netdev};
        Outcome outcome = judge(tables, probe);
        if (outcome.kind <= worst.kind) continue;
        worst = std::move(outcome);
        which = probe;
      }
    }
  }
  return worst;
}

}  // namespace

void look_at_firewall(const std::vector<std::string>& netdevs, Findings& findings) {
  const auto nft_tables = count_nft_tables();
  if (!nft_tables && nft_tables.error().code == EPERM) {
    return findings.unseen(kFirewall, "only root may read the rules of nftables and iptables",
                           "if other hosts do not answer, ask again as root: sudo verbena doctor");
  }
  if (!has_legacy_tables() && (!nft_tables || *nft_tables == 0)) {
    return findings.fine(kFirewall, "there are no rules of nftables and iptables");
  }
  Rules rules;
  read_nft(rules);
  read_iptables("iptables-save", "ip", rules);
  read_iptables("ip6tables-save", "ip6", rules);
  Probe probe;
  const Outcome outcome = worst_of(rules.tables, netdevs, probe);
  if (outcome.kind == Outcome::kDropped) {
    findings.fault(kFirewall, verbena::format("{} drops {}", outcome.by, described(probe)), remedy(probe));
  } else if (outcome.kind == Outcome::kMayBeDropped) {
    findings.cost(kFirewall, verbena::format("{} drops some {}", outcome.by, described(probe)),
                  verbena::format("if peers are among them, {}", remedy(probe)));
  } else if (rules.read && !rules.failed) {
    findings.fine(kFirewall, "no rule of nftables or iptables drops packets to UDP port 4791");
  } else {
    findings.unseen(
        kFirewall,
        "there are rules of nftables or iptables, and no 'nft -j' or iptables-save here to read them",
        "look at them: do they let new UDP flows to port 4791 in?");
  }
}

}  // namespace verbena::commands::doctor
