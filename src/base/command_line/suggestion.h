// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace verbena::command_line {

// The candidate that a mistyped word most likely stands for: the one with the fewest letters added, left out,
// changed or swapped, at most one in three; or the only one that begins with the word. Empty: there is none.
std::string_view closest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'status'?", or nothing where no candidate is close.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace verbena::command_line
