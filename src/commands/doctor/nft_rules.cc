// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "commands/doctor/firewall.h"

// The JSON of nft, as libnftables-json(5) describes it.
namespace verbena::commands::doctor {
namespace {

using Json = nlohmann::json;

// Statements that do not affect whether the packet passes.
constexpr std::array<std::string_view, 10> kHarmless = {"counter", "log", "mangle", "ct helper", "meta",
                                                        "set",     "dup", "quota",  "flow",      "ct count"};

// Names the left side of a comparison as nft's rules do: "meta iifname", "ct state", "udp dport".
std::string name_of(const Json& left) {
  for (const std::string kind : {"meta", "ct"}) {
    if (left.contains(kind)) return kind + " " + left[kind].value("key", "");
  }
  if (!left.contains("payload")) return {};
  return left["payload"].value("protocol", "") + " " + left["payload"].value("field", "");
}

Field field_of(const std::string& name) {
  static const std::map<std::string, Field> kFields = {
      {"meta nfproto", Field::kFamily},       {"meta l4proto", Field::kProtocol},
      {"ip protocol", Field::kProtocol},      {"ip6 nexthdr", Field::kProtocol},
      {"meta iifname", Field::kInputNetdev},  {"meta iif", Field::kInputNetdev},
      {"meta oifname", Field::kOutputNetdev}, {"meta oif", Field::kOutputNetdev},
      {"udp sport", Field::kSourcePort},      {"th sport", Field::kSourcePort},
      {"udp dport", Field::kDestinationPort}, {"th dport", Field::kDestinationPort},
      {"ct state", Field::kConnectionState},
  };
  const auto found = kFields.find(name);
  return found == kFields.end() ? Field::kOther : found->second;
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
    condition.words.push_back(word == "ipv4" ? "ip" : word == "ipv6" ? "ip6" : word);
    return true;
  }
  if (right.contains("range")) {
    if (!right["range"].at(0).is_number()) return false;
    condition.numbers.push_back(right["range"].get<std::pair<uint32_t, uint32_t>>());
    return true;
  }
  const Json& list = right.contains("set") ? right["set"] : right;
  return list.is_array() &&
         std::ranges::all_of(list, [&](const Json& one) { return add_values(one, condition); });
}

// Adds the conditions of a comparison. `udp dport` holds only for UDP, and `ip saddr` only for IPv4.
void add_conditions(const Json& left, const Json& right, const std::string& comparison, Rule& rule) {
  const std::string name = name_of(left);
  const std::string header = left.contains("payload") ? name.substr(0, name.find(' ')) : "";
  if (!header.empty() && header != "th" && header != "ether") {
    const bool is_family = header == "ip" || header == "ip6";
    rule.conditions.push_back({.field = is_family ? Field::kFamily : Field::kProtocol, .words = {header}});
  }
  Condition condition{.field = field_of(name), .negated = comparison == "!="};
  const bool is_plain = comparison == "==" || comparison == "!=" || comparison == "in";
  if (!is_plain || !add_values(right, condition)) condition.field = Field::kOther;
  rule.conditions.push_back(std::move(condition));
}

// Adds a rule with the conditions of `rule` and this verdict. False if `name` is no verdict.
bool add_verdict(const std::string& name, const Json& value, Rule rule, std::vector<Rule>& rules) {
  rule.verdict = verdict_named(name);
  if (rule.verdict == Verdict::kNone) return false;
  if (value.is_object()) rule.target = value.value("target", "");
  rules.push_back(std::move(rule));
  return true;
}

// Adds a rule for each element of a verdict map.
void add_map(const Json& map, const Rule& before, std::vector<Rule>& rules) {
  const Json& data = map.at("data");
  const Json& elements = data.contains("set") ? data["set"] : data;
  if (!elements.is_array()) return;  // a named map
  for (const Json& element : elements) {
    Rule rule = before;
    add_conditions(map.at("key"), element.at(0), "==", rule);
    for (const auto& [name, value] : element.at(1).items()) add_verdict(name, value, rule, rules);
  }
}

// Adds what nft shows of an extension of iptables: at most its type and name.
void add_extension(const Json& extension, Rule& rule, Chain& chain) {
  chain.is_complete = false;
  const bool is_target = extension.is_object() && extension.value("type", "") == "target";
  if (is_target) {
    add_verdict(extension.value("name", ""), {}, rule, chain.rules);
  } else {
    rule.conditions.push_back({});
  }
}

void add_rule(const Json& described, Chain& chain) {
  Rule rule;
  rule.text = verbena::format("a rule of chain '{}' in table '{} {}' (handle {})",
                              described.value("chain", ""), described.value("family", ""),
                              described.value("table", ""), described.value("handle", 0));
  for (const Json& statement : described.value("expr", Json::array())) {
    if (!statement.is_object() || statement.empty()) continue;
    const std::string& name = statement.begin().key();
    const Json& value = *statement.begin();
    if (name == "match") {
      add_conditions(value.at("left"), value.at("right"), value.value("op", ""), rule);
    } else if (name == "vmap") {
      add_map(value, rule, chain.rules);
    } else if (name == "xt") {
      add_extension(value, rule, chain);
    } else if (!add_verdict(name, value, rule, chain.rules) &&
               std::ranges::find(kHarmless, name) == kHarmless.end()) {
      rule.conditions.push_back({});
    }
  }
}

}  // namespace

std::vector<Table> parse_nft(std::string_view json) {
  std::map<std::string, Table> tables;
  const Json whole = Json::parse(json);
  for (const Json& object : whole.at("nftables")) {
    const bool is_chain = object.contains("chain");
    if (!is_chain && !object.contains("rule")) continue;
    const Json& described = is_chain ? object["chain"] : object["rule"];
    const std::string family = described.value("family", "");
    const std::string name = described.value("table", "");
    Table& table = tables[family + " " + name];
    table.family = family;
    table.name = name;
    Chain& chain = table.chains[described.value(is_chain ? "name" : "chain", "")];
    if (!is_chain) {
      add_rule(described, chain);
      continue;
    }
    chain.hook = described.value("hook", "");
    chain.drops_the_rest = described.value("policy", "") == "drop";
    chain.text = verbena::format("the policy of chain '{}' in table '{} {}'", described.value("name", ""),
                                 family, name);
  }
  std::vector<Table> list;
  for (auto& [name, table] : tables) list.push_back(std::move(table));
  return list;
}

}  // namespace verbena::commands::doctor
