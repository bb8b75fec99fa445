// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <charconv>
#include <iomanip>
#include <sstream>

#include "base/format.h"
#include "commands/doctor/firewall.h"

// The output of iptables-save, which has no JSON. `nft -j` lists the rules of iptables-nft, too, but only the
// names of matches such as conntrack and multiport.
namespace verbena::commands::doctor {
namespace {

// Splits a line into words; text in quotation marks is one word.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; stream >> std::quoted(word);) words.push_back(word);
  return words;
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

Field field_of(const std::string& option) {
  static const std::map<std::string, Field> kFields = {
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
  const auto found = kFields.find(option);
  return found == kFields.end() ? Field::kOther : found->second;
}

// Options whose values do not restrict the rule. All other unknown options count as conditions.
constexpr std::string_view kNoConditions[] = {"-m",          "--comment",     "--reject-with", "--log-prefix",
                                              "--log-level", "--nflog-group", "--nflog-prefix"};

Condition condition_of(const std::string& option, const std::string& value, bool negated) {
  Condition condition{.field = field_of(option), .negated = negated};
  if ((option == "-s" || option == "-d") && (value.starts_with("127.") || value.starts_with("::1"))) {
    condition.field = Field::kLoopbackAddress;
  }
  std::istringstream parts(value);
  for (std::string part; std::getline(parts, part, ',');) {
    condition.numbers.push_back(range_of(part));
    if (part.ends_with('+')) part.back() = '*';
    condition.words.push_back(std::move(part));
  }
  return condition;
}

// Parses "-A CHAIN [!] OPTION VALUE...".
void add_rule(const std::string& line, Table& table) {
  const std::vector<std::string> words = words_of(line);
  if (words.size() < 2) return;
  Rule rule;
  rule.text = verbena::format("'{}tables{} {}'", table.family,
                              table.name == "filter" ? "" : " -t " + table.name, line);
  bool negated = false;
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "!") {
      negated = true;
      continue;
    }
    const bool has_value = i + 1 < words.size() && !words[i + 1].starts_with('-') && words[i + 1] != "!";
    const std::string& value = has_value ? words[i + 1] : words[i];
    if (words[i] == "-j" || words[i] == "-g") {
      const bool is_chain = table.chains.contains(value);
      rule.verdict = !is_chain ? verdict_named(value) : words[i] == "-g" ? Verdict::kGoto : Verdict::kJump;
      rule.target = value;
    } else if (words[i] == "--notrack") {  // of the target CT
      rule.verdict = Verdict::kNotrack;
    } else if (std::ranges::find(kNoConditions, words[i]) == std::end(kNoConditions)) {
      rule.conditions.push_back(condition_of(words[i], value, negated));
    }
    negated = false;
    if (has_value) ++i;
  }
  if (rule.verdict != Verdict::kNone) table.chains[words[1]].rules.push_back(std::move(rule));
}

// Parses ":INPUT DROP [0:0]". User-defined chains have no policy ("-").
void add_chain(const std::string& line, Table& table) {
  const std::vector<std::string> words = words_of(line.substr(1));
  if (words.size() < 2) return;
  Chain& chain = table.chains[words[0]];
  if (words[1] == "-") return;
  for (const char letter : words[0]) chain.hook += static_cast<char>(std::tolower(letter));
  chain.drops_the_rest = words[1] == "DROP";
  chain.text =
      verbena::format("the policy of chain {} in {}tables's table '{}'", words[0], table.family, table.name);
}

}  // namespace

std::vector<Table> parse_iptables(std::string_view text, const std::string& family) {
  std::vector<Table> tables;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('*')) {
      tables.push_back({family, line.substr(1), {}});
    } else if (!tables.empty() && line.starts_with(':')) {
      add_chain(line, tables.back());
    } else if (!tables.empty() && line.starts_with("-A ")) {
      add_rule(line, tables.back());
    }
  }
  return tables;
}

}  // namespace verbena::commands::doctor
