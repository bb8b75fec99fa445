// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::commands::doctor {

// A hypothetical packet, to be judged by firewall rules. It is the first of its flow, as all RoCEv2 packets
// are: both ends send to port 4791 from ports of their own. So no packet is a reply in the eyes of connection
// tracking.
struct Probe {
  bool incoming = true;
  bool ipv6 = false;
  std::string netdev;  // through which it arrives or leaves
  uint16_t source_port = 49'200;
  uint16_t destination_port = 4791;
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
  kOther,            // not part of a probe: an address, a rate, a mark
};

struct Condition {
  Field field = Field::kOther;
  std::vector<std::string> words;                      // names; network devices may end in '*'
  std::vector<std::pair<uint32_t, uint32_t>> numbers;  // ranges, both ends included
  bool negated = false;
};

enum class Verdict { kNone, kAccept, kDrop, kReturn, kJump, kGoto };

struct Rule {
  std::vector<Condition> conditions;  // all must hold
  Verdict verdict = Verdict::kNone;
  std::string target;  // the chain for kJump and kGoto
  std::string text;    // as the administrator would recognize it
};

struct Chain {
  std::string hook;  // "input", "output", "prerouting", "postrouting"; empty: reached by jumps only
  int priority = 0;
  bool drops_the_rest = false;  // policy DROP
  std::string text;
  std::vector<Rule> rules;
};

struct Table {
  std::string family;  // "ip", "ip6", "inet"
  std::map<std::string, Chain> chains;
};

struct Outcome {
  enum Kind { kPasses, kMayBeDropped, kDropped } kind = kPasses;
  std::string by;  // the rule or policy that drops it
};

// Judges the packet by the rules of all tables. Pure.
Outcome judge(const std::vector<Table>& tables, const Probe& probe);

// Parses the output of `nft -j list ruleset`. Throws nlohmann::json::exception if it is malformed.
std::vector<Table> parse_nft(std::string_view json);
// Parses the output of `iptables-save` (family "ip") or `ip6tables-save` ("ip6").
std::vector<Table> parse_iptables(std::string_view text, const std::string& family);

}  // namespace verbena::commands::doctor
