// SPDX-License-Identifier: Apache-2.0
#include "base/command_line/suggestion.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "base/format.h"

namespace verbena::command_line {
namespace {

// Longer words resemble none of our names, and the distance takes time in proportion to both lengths.
constexpr size_t kMaxLetters = 40;

// The optimal string alignment distance: Levenshtein's with a swap of neighbours as one step.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> two_back(b.size() + 1);
  std::vector<size_t> back(b.size() + 1);
  std::vector<size_t> now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) back[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = back[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({back[j] + 1, now[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], two_back[j - 2] + 1);
      }
    }
    two_back.swap(back);
    back.swap(now);
  }
  return back[b.size()];
}

std::string_view only_continuation(std::string_view word, std::span<const std::string> candidates) {
  std::string_view found;
  for (const std::string& candidate : candidates) {
    if (!candidate.starts_with(word)) continue;
    if (!found.empty()) return {};
    found = candidate;
  }
  return found;
}

}  // namespace

std::string_view closest(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > kMaxLetters) return {};
  std::string_view best;
  size_t least = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : candidates) {
    const size_t steps = distance(word, candidate);
    if (steps < least) {
      least = steps;
      best = candidate;
    }
  }
  const size_t limit = std::max<size_t>(1, (word.size() + 1) / 3);
  return least <= limit ? best : only_continuation(word, candidates);
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string_view meant = closest(word, candidates);
  return meant.empty() ? std::string() : verbena::format("; did you mean '{}'?", meant);
}

}  // namespace verbena::command_line
