// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace verbena::command_line {

// Returns the candidate closest to a mistyped word: the one with the fewest letters added, removed, changed
// or swapped. About a third of the letters may differ, and one always may. If none is that close, returns the
// only candidate that begins with the word. Empty if there is none, or if the word exceeds 40 letters.
std::string_view closest(std::string_view word, std::span<const std::string> candidates);

// Returns "; did you mean 'status'?" with the closest() candidate, to end an error message; else empty.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace verbena::command_line
