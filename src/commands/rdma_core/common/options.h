// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace verbena::rdma_core {

// The parser's next step after an option.
enum class Next {
  kGoOn,
  kStop,   // ignore the rest of the command line: the option has done all work
  kWrong,  // wrong usage
};

// An option of a program, and the function that takes its value. A program lists its options in a table, in
// the order of its usage text.
struct Option {
  char letter;       // 0 if the option has only a long name
  const char* name;  // long name; nullptr if the option has only a letter
  bool has_value;
  std::function<Next(const char* value)> take;
};

// Parses a number as strtoll(3) does. Returns nullopt for other words and numbers out of range.
std::optional<long long> read_number(const std::string& word, long long least, long long most, int base = 0);

// Return an option that sets the variable `given` or `value`. The variable must outlive the option.
// `next` is kStop if parsing ends with this option.
Option flag(char letter, const char* name, bool& given, Next next = Next::kGoOn);
Option text(char letter, const char* name, std::string& value);

// Returns an option that passes its value to `take`.
Option taken(char letter, const char* name, std::function<void(const char* value)> take);

// Whether "--json" occurs anywhere. Needed for options that end the parsing, perhaps before "--json".
bool asks_for_json(int argc, char** argv);

// Returns an option that passes its number to `take`. Reports other words and numbers out of range as wrong
// usage.
Option number_to(char letter, const char* name, long long least, long long most,
                 std::function<void(long long)> take, int base = 0);

template <class T>
Option number(char letter, const char* name, T& value, long long least = std::numeric_limits<T>::min(),
              long long most = std::numeric_limits<T>::max()) {
  return number_to(letter, name, least, most, [&value](long long read) { value = static_cast<T>(read); });
}

// The result of parsing a command line, with the operands: the words that are not options.
struct Parsed {
  Next next;  // kGoOn if the command line was parsed to the end
  std::vector<std::string> operands;
};

// Parses a command line with getopt_long(3), which reports errors unless `quiet`: letters may be bundled,
// long names abbreviated, and operands may stand between options. Uses getopt(3) if no option has a long
// name. Not thread-safe.
Parsed parse(int argc, char** argv, const std::vector<Option>& options, bool quiet = false);

}  // namespace verbena::rdma_core
