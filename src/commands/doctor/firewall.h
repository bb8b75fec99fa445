// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::commands::doctor {

// A packet that has not come: what would the rules do with it? It is the first of its flow, as RoCEv2's
// always are: either end sends to port 4791 from a port of its own, so nothing is ever an answer to a
// firewall.
struct Probe {
  bool incoming = true;
  bool ipv6 = false;
  std::string netdev;  // by which it comes or leaves
  uint16_t source_port = 49'200;
  uint16_t destination_port = 4791;
};

// What one condition of a rule is about.
enum class Field {
  kFamily,  // "ip" or "ip6"
  kProtocol,
  kSourcePort,
  kDestinationPort,
  kInputNetdev,
  kOutputNetdev,
  kConnectionState,
  kLoopbackAddress,  // as source or destination, which only loopback has
  kOther,            // something that a probe does not say: an address, a rate, a mark
};

struct Condition {
  Field field = Field::kOther;
  std::vector<std::string> words;                      // names; of a netdev also with a '*' at the end
  std::vector<std::pair<uint32_t, uint32_t>> numbers;  // ranges, both ends included
  bool negated = false;
};

enum class Verdict { kNone, kAccept, kDrop, kReturn, kJump, kGoto };

struct Rule {
  std::vector<Condition> conditions;  // all of them must hold
  Verdict verdict = Verdict::kNone;
  std::string target;  // of kJump and kGoto
  std::string text;    // as its owner would know it
};

struct Chain {
  std::string hook;  // "input", "output", "prerouting", "postrouting"; empty: others jump to it
  int priority = 0;
  bool drops_the_rest = false;  // its policy
  std::string text;
  std::vector<Rule> rules;
};

struct Table {
  std::string family;  // "ip", "ip6", "inet"
  std::map<std::string, Chain> chains;
};

struct Outcome {
  enum Kind { kPasses, kMayBeDropped, kDropped } kind = kPasses;
  std::string by;  // the rule or the policy
};

// Pure: what the rules of all tables do with the packet.
Outcome judge(const std::vector<Table>& tables, const Probe& probe);

// The rules as `nft -j list ruleset` writes them. Throws nlohmann::json::exception where it is no such thing.
std::vector<Table> parse_nft(std::string_view json);
// The rules as `iptables-save` (family "ip") or `ip6tables-save` ("ip6") write them.
std::vector<Table> parse_iptables(std::string_view text, const std::string& family);

}  // namespace verbena::commands::doctor
