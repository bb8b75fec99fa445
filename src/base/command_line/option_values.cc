// SPDX-License-Identifier: Apache-2.0
#include "base/command_line/option_values.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <strings.h>

#include "base/command_line/usage_errors.h"
#include "base/format.h"
#include "base/text.h"

namespace verbena::command_line {
namespace {

// Converts the whole text, or returns nothing.
std::optional<uint64_t> number_in(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  }
  uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> decimal_in(const std::string& text) {
  const bool is_plain = !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos;
  if (!is_plain) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (*end != '\0') return std::nullopt;
  return number;
}

std::string is_not(const std::string& value, std::string_view what) {
  return verbena::format("'{}' is not {}", printable(value), what);
}

}  // namespace

CLI::Validator whole_number(std::string what, uint64_t least, uint64_t most) {
  return {[=, what = std::move(what)](std::string& value) -> std::string {
            const auto number = number_in(value);
            if (!number || *number < least || *number > most) return is_not(value, what);
            value = std::to_string(*number);
            return {};
          },
          ""};
}

CLI::Validator process_id() {
  return whole_number("a process ID", 1, INT32_MAX);
}

CLI::Validator qp_number() {
  return whole_number("a QP number, as 17 or 0x11", 0, 0xffffff);
}

CLI::Validator decimal_number(std::string what, double least, double most) {
  return {[=, what = std::move(what)](std::string& value) -> std::string {
            const auto number = decimal_in(value);
            return number && *number >= least && *number <= most ? std::string() : is_not(value, what);
          },
          ""};
}

CLI::Validator one_of(std::vector<std::string> words) {
  return {[words = std::move(words)](std::string& value) -> std::string {
            const auto found = std::ranges::find_if(words, [&](const std::string& word) {
              return ::strcasecmp(word.c_str(), value.c_str()) == 0;
            });
            if (found == words.end()) {
              return is_not(value, verbena::format("one of {}{}", verbena::join(words, ", "),
                                                   did_you_mean(value, words)));
            }
            value = *found;
            return {};
          },
          ""};
}

std::string choice(const std::vector<std::string>& words) {
  return verbena::join(words, "|");
}

}  // namespace verbena::command_line
