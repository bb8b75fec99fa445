// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/common/options.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include <getopt.h>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {
namespace {

// The first of getopt_long()'s numbers for long options; larger than any letter.
constexpr int kFirst = 256;

std::string shown(char letter, const char* name) {
  if (letter == 0) return verbena::format("--{}", name);
  return name == nullptr ? verbena::format("-{}", letter) : verbena::format("-{}, --{}", letter, name);
}

struct Grammar {
  std::string letters;
  std::vector<option> names;
};

Grammar grammar_of(const std::vector<Option>& options) {
  Grammar grammar;
  for (size_t i = 0; i < options.size(); ++i) {
    const Option& each = options[i];
    if (each.letter != 0) grammar.letters.append(1, each.letter).append(each.has_value ? ":" : "");
    if (each.name != nullptr) {
      grammar.names.push_back({each.name, each.has_value, nullptr, kFirst + static_cast<int>(i)});
    }
  }
  if (!grammar.names.empty()) grammar.names.push_back({});
  return grammar;
}

const Option* find(const std::vector<Option>& options, int found) {
  if (found >= kFirst) return &options[static_cast<size_t>(found - kFirst)];
  for (const Option& each : options) {
    if (each.letter == found) return &each;
  }
  return nullptr;  // '?': unknown option
}

}  // namespace

std::optional<long long> read_number(const std::string& word, long long least, long long most, int base) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(word.c_str(), &end, base);
  const bool whole = !word.empty() && end == word.c_str() + word.size();
  if (!whole || errno != 0 || value < least || value > most) return std::nullopt;
  return value;
}

Option flag(char letter, const char* name, bool& given, Next next) {
  return {letter, name, false, [&given, next](const char*) {
            given = true;
            return next;
          }};
}

Option text(char letter, const char* name, std::string& value) {
  return taken(letter, name, [&value](const char* word) { value = word; });
}

Option taken(char letter, const char* name, std::function<void(const char*)> take) {
  return {letter, name, true, [take = std::move(take)](const char* word) {
            take(word);
            return Next::kGoOn;
          }};
}

bool asks_for_json(int argc, char** argv) {
  return std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
}

Option number_to(char letter, const char* name, long long least, long long most,
                 std::function<void(long long)> take, int base) {
  return {letter, name, true, [=](const char* word) {
            const auto value = read_number(word, least, most, base);
            if (!value) {
              complain(verbena::format("{}: '{}' is not a number from {} to {}", shown(letter, name), word,
                                       least, most));
              return Next::kWrong;
            }
            take(*value);
            return Next::kGoOn;
          }};
}

Parsed parse(int argc, char** argv, const std::vector<Option>& options, bool quiet) {
  const Grammar grammar = grammar_of(options);
  const option* names = grammar.names.empty() ? nullptr : grammar.names.data();
  Parsed parsed{Next::kGoOn, {}};
  opterr = quiet ? 0 : 1;
  optind = 0;  // makes getopt_long() start over
  while (parsed.next == Next::kGoOn) {
    const int found = getopt_long(argc, argv, grammar.letters.c_str(), names, nullptr);
    if (found == -1) break;
    const Option* matched = find(options, found);
    parsed.next = matched ? matched->take(optarg) : Next::kWrong;
  }
  parsed.operands.assign(argv + optind, argv + argc);
  return parsed;
}

}  // namespace verbena::rdma_core
