// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::commands::doctor {

// A hypothetical RoCEv2 packet, to be judged by firewall rules. Connection tracking takes it for the first of
// its flow. Both ends send to port 4791 from ports of their own, so no packet looks like a reply.
struct Probe {
  enum Direction { kIncoming, kOutgoing, kForwarded } direction = kIncoming;
  bool ipv6 = false;
  // The network device through which an incoming packet arrives, or an outgoing or forwarded packet leaves. A
  // forwarded packet may arrive through any device.
  std::string netdev{};
  uint16_t source_port = 49'200;
  uint16_t destination_port = 4791;
  bool is_tracked = true;  // false: a rule exempts it from connection tracking
};

// The property that a condition tests.
enum class Field {
  kFamily,  // "ip" or "ip6"
  kProtocol,
  kSourcePort,
  kDestinationPort,
  kInputNetdev,
  kOutputNetdev,
  kConnectionState,
  kLoopbackAddress,  // source or destination is a loopback address
  kOther,            // a property that Probe lacks: an address, a rate, a mark
};

struct Condition {
  Field field = Field::kOther;
  std::vector<std::string> words{};                      // accepted names; a network device's may end in '*'
  std::vector<std::pair<uint32_t, uint32_t>> numbers{};  // accepted ranges, both ends included
  bool negated = false;
};

enum class Verdict {
  kNone,  // the rule decides nothing, as a counter
  kAccept,
  kDrop,
  kReturn,
  kJump,
  kGoto,
  kTranslate,  // another source address, as by MASQUERADE and SNAT
  kNotrack,    // no connection tracking, so no translation
};

struct Rule {
  std::vector<Condition> conditions;  // all must hold
  Verdict verdict = Verdict::kNone;
  std::string target;  // the chain for kJump and kGoto
  std::string text;    // as the administrator would recognize the rule
};

struct Chain {
  std::string hook;  // "input", "output", "prerouting", ...; empty for a chain that only jumps reach
  bool drops_the_rest = false;  // policy DROP
  bool is_complete = true;      // false if nft names an iptables match or target without its values
  std::string text;
  std::vector<Rule> rules;
};

struct Table {
  std::string family;  // "ip", "ip6", "inet"
  std::string name;
  std::map<std::string, Chain> chains;
};

// Whether a verdict applies to packets such as a probe.
struct Outcome {
  enum Extent { kNone, kSome, kAll } extent = kNone;
  std::string by;  // text of the rule or policy that has the verdict
};

// Finds out to which extent packets such as `probe` get the verdict: kDrop, kTranslate or kNotrack. The
// extent is kSome if the verdict depends on a property that Probe lacks. Returns the largest extent that any
// chain on the packet's way has, in any table. Pure.
Outcome judge(const std::vector<Table>& tables, const Probe& probe, Verdict verdict = Verdict::kDrop);

// Returns the text of a rule that gives packets such as `probe` another source address. Returns an empty
// string if there is none, or if rules drop all of these packets or exempt them from tracking. Pure.
std::string translation_of(const std::vector<Table>& tables, const Probe& probe);

// Returns the verdict of the nft statement or iptables target of this name, such as "accept" or "DROP". Upper
// and lower case make no difference. Returns kNone if the name is unknown.
Verdict verdict_named(const std::string& name);

// Parses the output of `nft -j list ruleset`. Throws nlohmann::json::exception if it is malformed.
std::vector<Table> parse_nft(std::string_view json);
// Parses the output of `iptables-save` (family "ip") or `ip6tables-save` ("ip6").
std::vector<Table> parse_iptables(std::string_view text, const std::string& family);
// Completes the tables `listed` by nft with the tables `saved` by iptables-nft-save, which shows the same
// rules of the kernel. Replaces the chains of `listed` that are incomplete (Chain::is_complete), and adds the
// tables that nft did not list. Keeps all other chains, since iptables-nft-save omits conditions that
// iptables lacks, such as named sets.
void complete(std::vector<Table>& listed, std::vector<Table> saved);

}  // namespace verbena::commands::doctor
