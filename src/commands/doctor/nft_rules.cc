// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "commands/doctor/firewall.h"

namespace verbena::commands::doctor {
namespace {

using Json = nlohmann::json;

// Statements that do not affect whether the packet passes.
constexpr std::array<std::string_view, 12> kHarmless = {"counter",   "log",  "mangle", "notrack",
                                                        "ct helper", "meta", "set",    "dup",
                                                        "quota",     "xt",   "flow",   "ct count"};

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? std::string() : text_of(*found);
}

// The field that a `left` operand of libnftables-json(5) refers to.
Field field_of(const Json& left) {
  struct Row {
    std::string_view kind, about, of;
    Field field;
  };
  static constexpr Row kRows[] = {
      {"meta", "key", "l4proto", Field::kProtocol},
      {"meta", "key", "iifname", Field::kInputNetdev},
      {"meta", "key", "iif", Field::kInputNetdev},
      {"meta", "key", "oifname", Field::kOutputNetdev},
      {"meta", "key", "oif", Field::kOutputNetdev},
      {"ct", "key", "state", Field::kConnectionState},
      {"payload", "field", "dport", Field::kDestinationPort},
      {"payload", "field", "sport", Field::kSourcePort},
  };
  for (const Row& row : kRows) {
    const auto found = left.find(std::string(row.kind));
    if (found == left.end() || !found->is_object()) continue;
    if (member(*found, std::string(row.about).c_str()) == row.of) return row.field;
  }
  const auto payload = left.find("payload");
  if (payload == left.end() || !payload->is_object()) {
    const auto meta = left.find("meta");
    return meta != left.end() && member(*meta, "key") == "nfproto" ? Field::kFamily : Field::kOther;
  }
  const std::string protocol = member(*payload, "protocol");
  const std::string field = member(*payload, "field");
  const bool is_protocol =
      (protocol == "ip" && field == "protocol") || (protocol == "ip6" && field == "nexthdr");
  return is_protocol ? Field::kProtocol : Field::kOther;
}

// Converts the names "ipv4" and "ipv6" of nftables.
std::string plain_word(const std::string& word) {
  if (word == "ipv4") return "ip";
  return word == "ipv6" ? "ip6" : word;
}

// Adds the values of a `right` operand. False if they cannot be compared with a probe (a named set, a
// prefix).
bool add_values(const Json& right, Condition& condition) {
  if (right.is_number_unsigned()) {
    const auto number = right.get<uint32_t>();
    condition.numbers.emplace_back(number, number);
    return true;
  }
  if (right.is_string()) {
    const auto word = right.get<std::string>();
    if (word.starts_with('@')) return false;
    condition.words.push_back(plain_word(word));
    return true;
  }
  if (right.is_object() && right.contains("range") && right["range"].size() == 2 &&
      right["range"][0].is_number() && right["range"][1].is_number()) {
    condition.numbers.emplace_back(right["range"][0].get<uint32_t>(), right["range"][1].get<uint32_t>());
    return true;
  }
  const Json& list = right.is_object() && right.contains("set") ? right["set"] : right;
  if (!list.is_array()) return false;
  for (const Json& one : list) {
    if (!add_values(one, condition)) return false;
  }
  return true;
}

Condition condition_of(const Json& left, const Json& right, const std::string& comparison) {
  Condition condition;
  condition.field = field_of(left);
  condition.negated = comparison == "!=";
  const bool plain = comparison == "==" || comparison == "!=" || comparison == "in";
  if (!plain || !add_values(right, condition)) condition.field = Field::kOther;
  return condition;
}

// Returns the implied condition of a match: `udp dport` matches only UDP, and `ip saddr` only IPv4.
std::optional<Condition> implied(const Json& left) {
  const auto payload = left.find("payload");
  if (payload == left.end() || !payload->is_object()) return std::nullopt;
  const std::string protocol = member(*payload, "protocol");
  if (protocol.empty() || protocol == "th" || protocol == "ether") return std::nullopt;
  const bool is_family = protocol == "ip" || protocol == "ip6";
  return Condition{
      .field = is_family ? Field::kFamily : Field::kProtocol, .words = {protocol}, .numbers = {}};
}

void add_condition(const Json& left, const Json& right, const std::string& comparison, Rule& rule) {
  if (const auto before = implied(left)) rule.conditions.push_back(*before);
  rule.conditions.push_back(condition_of(left, right, comparison));
}

// Reads a verdict. False if the statement has none.
bool read_verdict(const Json& statement, Rule& rule) {
  struct Row {
    const char* name;
    Verdict verdict;
  };
  static constexpr Row kRows[] = {{"accept", Verdict::kAccept}, {"drop", Verdict::kDrop},
                                  {"reject", Verdict::kDrop},   {"return", Verdict::kReturn},
                                  {"jump", Verdict::kJump},     {"goto", Verdict::kGoto}};
  for (const Row& row : kRows) {
    const auto found = statement.find(row.name);
    if (found == statement.end()) continue;
    rule.verdict = row.verdict;
    if (found->is_object()) rule.target = member(*found, "target");
    return true;
  }
  return false;
}

bool is_harmless(const std::string& name) {
  return std::find(kHarmless.begin(), kHarmless.end(), name) != kHarmless.end();
}

// Adds a rule for each element of a verdict map.
void add_map(const Json& map, const Rule& before, std::vector<Rule>& rules) {
  const Json& data = map.contains("data") ? map["data"] : Json();
  const Json& elements = data.is_object() && data.contains("set") ? data["set"] : data;
  if (!elements.is_array() || !map.contains("key")) return;
  for (const Json& element : elements) {
    if (!element.is_array() || element.size() != 2 || !element[1].is_object()) continue;
    Rule rule = before;
    add_condition(map["key"], element[0], "==", rule);
    if (read_verdict(element[1], rule)) rules.push_back(std::move(rule));
  }
}

void add_rule(const Json& described, Chain& chain) {
  Rule rule;
  rule.text =
      verbena::format("a rule of chain '{}' in table '{} {}' (handle {})", member(described, "chain"),
                      member(described, "family"), member(described, "table"), member(described, "handle"));
  for (const Json& statement : described.value("expr", Json::array())) {
    if (!statement.is_object() || statement.empty()) continue;
    if (const auto found = statement.find("match"); found != statement.end()) {
      add_condition(found->at("left"), found->at("right"), member(*found, "op"), rule);
    } else if (const auto map = statement.find("vmap"); map != statement.end()) {
      return add_map(*map, rule, chain.rules);
    } else if (!read_verdict(statement, rule) && !is_harmless(statement.begin().key())) {
      rule.conditions.push_back({});
    }
    // For iptables matches, nft shows only the name, so they count as unknown conditions.
    if (statement.contains("xt")) rule.conditions.push_back({});
  }
  if (rule.verdict != Verdict::kNone) chain.rules.push_back(std::move(rule));
}

}  // namespace

std::vector<Table> parse_nft(std::string_view json) {
  std::map<std::string, Table> tables;
  const Json whole = Json::parse(json);
  for (const Json& object : whole.at("nftables")) {
    if (const auto found = object.find("chain"); found != object.end()) {
      Table& table = tables[member(*found, "family") + " " + member(*found, "table")];
      table.family = member(*found, "family");
      Chain& chain = table.chains[member(*found, "name")];
      chain.hook = member(*found, "hook");
      chain.drops_the_rest = member(*found, "policy") == "drop";
      chain.text = verbena::format("the policy of chain '{}' in table '{} {}'", member(*found, "name"),
                                   table.family, member(*found, "table"));
    } else if (const auto rule = object.find("rule"); rule != object.end()) {
      Table& table = tables[member(*rule, "family") + " " + member(*rule, "table")];
      add_rule(*rule, table.chains[member(*rule, "chain")]);
    }
  }
  std::vector<Table> list;
  for (auto& [name, table] : tables) list.push_back(std::move(table));
  return list;
}

}  // namespace verbena::commands::doctor
