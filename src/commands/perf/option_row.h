// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "base/format.h"
#include "commands/perf/parameters.h"
#include "commands/rdma_core/common/options.h"

// Rows of the tables of options, and what their functions share.
namespace verbena::perf {

// An option with its line of the help. `letter`: 0 if the option has only a name. `value`: the name of its
// value in the help, or nullptr if it takes none. `take` stores the value in the parameters, and throws
// std::invalid_argument if it is wrong.
struct Row {
  char letter;
  const char* name;
  const char* value;
  const char* help;
  rdma_core::Next (*take)(Parameters&, const char*);
};

[[noreturn]] inline void refuse(const char* option, const char* value, const std::string& expected) {
  throw std::invalid_argument(verbena::format("{}: '{}' is not {}", option, value, expected));
}

// Reads a number from `least` to `most`, as strtol(3) reads it. Throws std::invalid_argument for other text.
template <class T>
T number(const char* option, const char* value, long long least, long long most) {
  const auto read = rdma_core::read_number(value, least, most);
  if (!read) refuse(option, value, verbena::format("a number from {} to {}", least, most));
  return static_cast<T>(*read);
}

// A word that an option takes, and the value for which it stands. one_of() returns the value of the word that
// is given. It throws std::invalid_argument if the word is none of `words`.
template <class T>
struct Word {
  const char* word;
  T value;
};
template <class T, std::size_t N>
T one_of(const char* option, const char* value, const Word<T> (&words)[N]) {
  std::string all;
  for (const Word<T>& each : words) {
    if (std::strcmp(each.word, value) == 0) return each.value;
    all += (all.empty() ? "" : ", ") + std::string(each.word);
  }
  refuse(option, value, "one of " + all);
}

// Throws std::invalid_argument unless `holds` is true. `which` names the tests that have the option.
inline void only_for(bool holds, const char* option, const char* which) {
  if (!holds) throw std::invalid_argument(verbena::format("{}: only for {}", option, which));
}

// The options that only tests for raw Ethernet have.
std::span<const Row> raw_rows();

// Makes the function of a row. It runs the statements with the parameters `p` and the option's `value`.
#define TAKE(...)                                                                             \
  []([[maybe_unused]] Parameters& p, [[maybe_unused]] const char* value) -> rdma_core::Next { \
    __VA_ARGS__;                                                                              \
    return rdma_core::Next::kGoOn;                                                            \
  }

}  // namespace verbena::perf
