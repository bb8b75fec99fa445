// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace verbena::rdma_core {

// What is to be done after an option.
enum class Next {
  kGoOn,
  kStop,   // the rest of the command line does not matter any more: what was asked is done
  kWrong,  // wrong usage
};

// One option of a program, and who takes its value. A program keeps its options in a table, in the order of
// its usage text.
struct Option {
  char letter;       // 0: it has no letter
  const char* name;  // of the long form; nullptr: it has none
  bool has_value;
  std::function<Next(const char* value)> take;
};

// A number as strtoll(3) reads it with base 0, if that is the whole word and lies between the two.
std::optional<long long> read_number(const std::string& word, long long least, long long most);

// Options that fill a variable, which outlives them.
Option flag(char letter, const char* name, bool& given);
Option text(char letter, const char* name, std::string& value);

// Whether "--json" stands anywhere, for options that stop the reading before it.
bool asks_for_json(int argc, char** argv);

// Hands on a number; complains of a word that is none, or lies outside, which is wrong usage.
Option number_to(char letter, const char* name, long long least, long long most,
                 std::function<void(long long)> take);

template <class T>
Option number(char letter, const char* name, T& value, long long least = std::numeric_limits<T>::min(),
              long long most = std::numeric_limits<T>::max()) {
  return number_to(letter, name, least, most, [&value](long long read) { value = static_cast<T>(read); });
}

// How the reading of a command line ended, and its words that are no options.
struct Parsed {
  Next next;  // kGoOn: all of it was read
  std::vector<std::string> operands;
};

// Reads a command line by getopt_long(3), which complains in its own words: letters may be bundled, long
// names cut short, operands stand between options. Not to be called by two threads at a time.
Parsed parse(int argc, char** argv, const std::vector<Option>& options);

}  // namespace verbena::rdma_core
