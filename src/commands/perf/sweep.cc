// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/sweep.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/format.h"
#include "commands/perf/size_text.h"

namespace verbena::perf {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// The end of the range is the last value even if doubling misses it.
std::vector<std::uint64_t> doubled(std::uint64_t first, std::uint64_t last) {
  std::vector<std::uint64_t> values;
  for (std::uint64_t each = first; each < last; each *= 2) values.push_back(each);
  values.push_back(last);
  return values;
}

std::uint64_t read_value(std::string_view word, std::uint64_t most) {
  const auto read = read_size(std::string(word));
  if (!read || *read > most)
    throw std::invalid_argument(verbena::format("--sweep: '{}' is not a number from 1 to {}", word, most));
  return *read;
}

std::vector<std::uint64_t> read_values(std::string_view text, std::uint64_t most) {
  if (const auto dash = text.find('-'); dash != text.npos) {
    const std::uint64_t first = read_value(text.substr(0, dash), most);
    const std::uint64_t last = read_value(text.substr(dash + 1), most);
    if (first > last) throw std::invalid_argument(verbena::format("--sweep: '{}' is an empty range", text));
    return doubled(first, last);
  }
  std::vector<std::uint64_t> values;
  for (const std::string_view each : split(text, '/')) values.push_back(read_value(each, most));
  return values;
}

// A dimension of a sweep: its default values are 1 or 2, doubled up to `last`.
struct Dimension {
  std::string_view name;
  std::vector<std::uint64_t> Sweep::*values;
  std::uint64_t first, last, most;
};
constexpr Dimension kDimensions[] = {
    {"sizes", &Sweep::sizes, 2, 8 << 20, 1 << 30},
    {"qps", &Sweep::queue_pairs, 1, 8, 1024},
    {"depths", &Sweep::depths, 1, 128, 15000},
};

void take(Sweep& sweep, std::string_view word) {
  const std::size_t equals = word.find('=');
  for (const Dimension& each : kDimensions) {
    if (each.name != word.substr(0, equals)) continue;
    std::vector<std::uint64_t>& values = sweep.*each.values;
    if (!values.empty())
      throw std::invalid_argument(verbena::format("--sweep: {} is given twice", each.name));
    if (equals != word.npos) {
      values = read_values(word.substr(equals + 1), each.most);
    } else {
      values = doubled(each.first, each.last);
      sweep.has_all_sizes |= each.values == &Sweep::sizes;
    }
    return;
  }
  throw std::invalid_argument(
      verbena::format("--sweep: '{}' is not one of sizes, qps, depths, perhaps with =VALUES", word));
}

}  // namespace

Sweep Sweep::parse(std::string_view text) {
  Sweep sweep;
  for (const std::string_view each : split(text, ',')) take(sweep, each);
  return sweep;
}

}  // namespace verbena::perf
