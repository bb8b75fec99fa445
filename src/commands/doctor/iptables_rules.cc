// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <sstream>

#include "base/format.h"
#include "commands/doctor/firewall.h"

namespace verbena::commands::doctor {
namespace {

// Splits a line into words as a shell does: text in quotation marks is one word.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) {
      word += line[++i];
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ' ' && !quoted) {
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
    } else {
      word += line[i];
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

// Parses "4791", "4000:5000" or ":5000".
std::pair<uint32_t, uint32_t> range_of(const std::string& text) {
  const size_t colon = text.find(':');
  const auto number = [](const std::string& digits, uint32_t otherwise) {
    uint32_t value = otherwise;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  };
  const uint32_t first = number(text.substr(0, colon), 0);
  return {first, colon == std::string::npos ? first : number(text.substr(colon + 1), 65'535)};
}

struct Option {
  std::string_view name;
  Field field;
};
constexpr Option kOptions[] = {
    {"-p", Field::kProtocol},
    {"-i", Field::kInputNetdev},
    {"-o", Field::kOutputNetdev},
    {"--dport", Field::kDestinationPort},
    {"--dports", Field::kDestinationPort},
    {"--sport", Field::kSourcePort},
    {"--sports", Field::kSourcePort},
    {"--state", Field::kConnectionState},
    {"--ctstate", Field::kConnectionState},
};
// Options whose values do not restrict the rule. All other unknown options count as conditions.
constexpr std::string_view kNoConditions[] = {"-m",          "--comment",     "--reject-with", "--log-prefix",
                                              "--log-level", "--nflog-group", "--nflog-prefix"};

std::string lower(std::string word) {
  for (char& letter : word) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return word;
}

Condition condition_of(Field field, const std::string& value, bool negated) {
  Condition condition{.field = field, .words = {}, .numbers = {}, .negated = negated};
  for (const std::string& part : split(value)) {
    const bool is_port = field == Field::kSourcePort || field == Field::kDestinationPort;
    const bool is_netdev = field == Field::kInputNetdev || field == Field::kOutputNetdev;
    if (is_port) {
      condition.numbers.push_back(range_of(part));
    } else if (is_netdev) {
      std::string name = part;
      if (name.ends_with('+')) name.back() = '*';
      condition.words.push_back(std::move(name));
    } else {
      condition.words.push_back(lower(part));
    }
  }
  return condition;
}

Condition condition_of(const std::string& option, const std::string& value, bool negated) {
  for (const Option& known : kOptions) {
    if (known.name == option) return condition_of(known.field, value, negated);
  }
  if ((option == "-s" || option == "-d") && (value.starts_with("127.") || value.starts_with("::1"))) {
    return {.field = Field::kLoopbackAddress, .words = {}, .numbers = {}, .negated = negated};
  }
  return {};
}

bool is_no_condition(const std::string& option) {
  for (const std::string_view known : kNoConditions) {
    if (known == option) return true;
  }
  return false;
}

void set_target(const std::string& option, const std::string& target, const Table& table, Rule& rule) {
  if (target == "ACCEPT") {
    rule.verdict = Verdict::kAccept;
  } else if (target == "DROP" || target == "REJECT") {
    rule.verdict = Verdict::kDrop;
  } else if (target == "RETURN") {
    rule.verdict = Verdict::kReturn;
  } else if (table.chains.contains(target)) {
    rule.verdict = option == "-g" ? Verdict::kGoto : Verdict::kJump;
    rule.target = target;
  }
}

// Parses "-A CHAIN [!] OPTION VALUE...".
void add_rule(const std::string& line, Table& table) {
  const std::vector<std::string> words = words_of(line);
  if (words.size() < 2) return;
  Rule rule;
  rule.text = verbena::format("'{} {}'", table.family == "ip6" ? "ip6tables" : "iptables", line);
  bool negated = false;
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "!") {
      negated = true;
      continue;
    }
    const bool has_value = i + 1 < words.size() && !words[i + 1].starts_with('-') && words[i + 1] != "!";
    const std::string& value = has_value ? words[i + 1] : words[i];
    if (words[i] == "-j" || words[i] == "-g") {
      set_target(words[i], value, table, rule);
    } else if (!is_no_condition(words[i])) {
      rule.conditions.push_back(condition_of(words[i], value, negated));
    }
    negated = false;
    if (has_value) ++i;
  }
  if (rule.verdict != Verdict::kNone) table.chains[words[1]].rules.push_back(std::move(rule));
}

// Parses ":INPUT DROP [0:0]". User-defined chains have no policy ("-").
void add_chain(const std::string& line, const std::string& name_of_table, Table& table) {
  const std::vector<std::string> words = words_of(line.substr(1));
  if (words.size() < 2) return;
  Chain& chain = table.chains[words[0]];
  if (words[1] == "-") return;
  chain.hook = lower(words[0]);
  chain.drops_the_rest = words[1] == "DROP";
  chain.text = verbena::format("the policy of chain {} in {}'s table '{}'", words[0],
                               table.family == "ip6" ? "ip6tables" : "iptables", name_of_table);
}

}  // namespace

std::vector<Table> parse_iptables(std::string_view text, const std::string& family) {
  std::vector<Table> tables;
  std::string name;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('*')) {
      name = line.substr(1);
      tables.push_back({family, {}});
    } else if (!tables.empty() && line.starts_with(':')) {
      add_chain(line, name, tables.back());
    } else if (!tables.empty() && line.starts_with("-A ")) {
      add_rule(line, tables.back());
    }
  }
  return tables;
}

}  // namespace verbena::commands::doctor
