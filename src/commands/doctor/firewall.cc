// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/firewall.h"

#include <algorithm>
#include <optional>

#include <netinet/in.h>
#include <strings.h>

#include "base/format.h"

namespace verbena::commands::doctor {
namespace {

enum class Match { kNo, kMaybe, kYes };

// The kernel's limit for nested jumps.
constexpr int kMaxJumps = 16;

bool names(const std::string& pattern, const std::string& name) {
  if (pattern.empty() || pattern.back() != '*') return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

bool has_name(const Condition& condition, const std::string& name) {
  return std::any_of(condition.words.begin(), condition.words.end(),
                     [&](const std::string& pattern) { return names(pattern, name); });
}

bool has_number(const Condition& condition, uint32_t number) {
  return std::any_of(condition.numbers.begin(), condition.numbers.end(),
                     [&](const auto& range) { return range.first <= number && number <= range.second; });
}

// Whether the condition holds, apart from a negation. Nullopt: it depends on a property that a probe lacks.
std::optional<bool> holds(const Condition& condition, const Probe& probe) {
  switch (condition.field) {
    case Field::kFamily:
      return has_name(condition, probe.ipv6 ? "ip6" : "ip");
    case Field::kProtocol:
      return has_name(condition, "udp") || has_number(condition, IPPROTO_UDP);
    case Field::kSourcePort:
      return has_number(condition, probe.source_port);
    case Field::kDestinationPort:
      return has_number(condition, probe.destination_port);
    case Field::kInputNetdev:
      if (probe.direction == Probe::kForwarded) return std::nullopt;
      return probe.direction == Probe::kIncoming && has_name(condition, probe.netdev);
    case Field::kOutputNetdev:
      return probe.direction != Probe::kIncoming && has_name(condition, probe.netdev);
    case Field::kLoopbackAddress:
      return probe.netdev == "lo";
    case Field::kConnectionState:
      return probe.is_tracked ? has_name(condition, "new") || has_name(condition, "NEW")
                              : has_name(condition, "untracked") || has_name(condition, "UNTRACKED");
    case Field::kOther:
      break;
  }
  return std::nullopt;
}

Match match(const Condition& condition, const Probe& probe) {
  const auto held = holds(condition, probe);
  if (!held) return Match::kMaybe;
  return *held != condition.negated ? Match::kYes : Match::kNo;
}

Match match(const Rule& rule, const Probe& probe) {
  Match all = Match::kYes;
  for (const Condition& condition : rule.conditions) all = std::min(all, match(condition, probe));
  return all;
}

// Searches one table for the rules that have a verdict on one packet.
class Walk {
 public:
  Walk(const Table& table, const Probe& probe, Verdict verdict)
      : table_(table), probe_(probe), verdict_(verdict) {}

  Outcome through(const Chain& base) {
    const End end = visit(base, true, 0);
    if (end == End::kOpen && base.drops_the_rest && verdict_ == Verdict::kDrop) found(base.text, true);
    return outcome_;
  }

 private:
  // The result of a chain: a verdict, or the caller continues after the jump.
  enum class End { kDecided, kOpen };

  void found(const std::string& by, bool sure) {
    const Outcome::Extent extent = sure && !some_left_ ? Outcome::kAll : Outcome::kSome;
    if (extent > outcome_.extent) outcome_ = {extent, by};
  }

  // Traverses a chain. `sure`: all packets like the probe come here, not only some of them.
  End visit(const Chain& chain, bool sure, int depth) {
    if (depth > kMaxJumps) return End::kOpen;
    bool some_returned = false;
    for (const Rule& rule : chain.rules) {
      const Match matched = match(rule, probe_);
      if (matched == Match::kNo) continue;
      const bool all = matched == Match::kYes;
      if (rule.verdict == Verdict::kReturn) {
        if (all) return End::kOpen;
        some_returned = true;
        continue;
      }
      const End end = carry_out(rule, sure && all && !some_returned, depth);
      if (all && (end == End::kDecided || rule.verdict == Verdict::kGoto))
        return some_returned ? End::kOpen : end;
    }
    return End::kOpen;
  }

  End carry_out(const Rule& rule, bool sure, int depth) {
    if (rule.verdict == verdict_) {
      found(rule.text, sure);
      return End::kDecided;
    }
    if (rule.verdict == Verdict::kNotrack) return End::kOpen;
    if (rule.verdict != Verdict::kJump && rule.verdict != Verdict::kGoto) {
      if (!sure) some_left_ = true;
      return End::kDecided;
    }
    const auto target = table_.chains.find(rule.target);
    return target == table_.chains.end() ? End::kOpen : visit(target->second, sure, depth + 1);
  }

  const Table& table_;
  const Probe& probe_;
  const Verdict verdict_;
  Outcome outcome_;
  // An earlier rule, with a condition that a probe cannot answer, has another verdict on some packets.
  bool some_left_ = false;
};

bool concerns(const Table& table, const Probe& probe) {
  return table.family == "inet" || table.family == (probe.ipv6 ? "ip6" : "ip");
}

bool is_on_the_way(const std::string& hook, const Probe& probe) {
  if (hook == "prerouting") return probe.direction != Probe::kOutgoing;
  if (hook == "postrouting") return probe.direction != Probe::kIncoming;
  return hook == (probe.direction == Probe::kIncoming   ? "input"
                  : probe.direction == Probe::kOutgoing ? "output"
                                                        : "forward");
}

}  // namespace

Verdict verdict_named(const std::string& name) {
  static constexpr std::pair<const char*, Verdict> kVerdicts[] = {
      {"accept", Verdict::kAccept},        {"drop", Verdict::kDrop},      {"reject", Verdict::kDrop},
      {"return", Verdict::kReturn},        {"jump", Verdict::kJump},      {"goto", Verdict::kGoto},
      {"masquerade", Verdict::kTranslate}, {"snat", Verdict::kTranslate}, {"notrack", Verdict::kNotrack}};
  for (const auto& [known, verdict] : kVerdicts) {
    if (::strcasecmp(known, name.c_str()) == 0) return verdict;
  }
  return Verdict::kNone;
}

void complete(std::vector<Table>& listed, std::vector<Table> saved) {
  for (Table& table : saved) {
    const auto same = std::ranges::find_if(
        listed, [&](const Table& one) { return one.family == table.family && one.name == table.name; });
    if (same == listed.end()) {
      listed.push_back(std::move(table));
      continue;
    }
    for (auto& [name, chain] : same->chains) {
      const auto whole = table.chains.find(name);
      if (!chain.is_complete && whole != table.chains.end()) chain = std::move(whole->second);
    }
  }
}

// Each table can drop a packet that another accepts, so the order of tables does not matter.
Outcome judge(const std::vector<Table>& tables, const Probe& probe, Verdict verdict) {
  Outcome worst;
  for (const Table& table : tables) {
    if (!concerns(table, probe)) continue;
    for (const auto& [name, chain] : table.chains) {
      if (!is_on_the_way(chain.hook, probe)) continue;
      Outcome outcome = Walk(table, probe, verdict).through(chain);
      if (outcome.extent > worst.extent) worst = std::move(outcome);
    }
  }
  return worst;
}

std::string translation_of(const std::vector<Table>& tables, const Probe& probe) {
  for (const Verdict verdict : {Verdict::kDrop, Verdict::kNotrack}) {
    if (judge(tables, probe, verdict).extent == Outcome::kAll) return {};
  }
  return judge(tables, probe, Verdict::kTranslate).by;
}

}  // namespace verbena::commands::doctor
