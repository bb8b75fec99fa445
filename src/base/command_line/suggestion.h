// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace verbena::command_line {

// The candidate closest to a mistyped word: fewest letters added, removed, changed or swapped, and at most
// one in three. Otherwise the only candidate that begins with the word. Empty if there is none.
std::string_view closest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'status'?", or empty if no candidate is close.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace verbena::command_line
