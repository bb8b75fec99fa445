// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma/batch_line.h"

#include <algorithm>

namespace verbena::commands::rdma {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

tl::expected<std::vector<std::string>, std::string> split(const std::string& line) {
  std::vector<std::string> words;
  for (size_t at = line.find_first_not_of(kBlanks); at < line.size();
       at = line.find_first_not_of(kBlanks, at)) {
    const char quote = line[at];
    const bool is_quoted = quote == '\'' || quote == '"';
    if (is_quoted) ++at;
    const size_t end =
        is_quoted ? line.find(quote, at) : std::min(line.find_first_of(kBlanks, at), line.size());
    if (end == std::string::npos) return tl::unexpected(std::string("Unterminated quoted string"));
    words.push_back(line.substr(at, end - at));
    at = end + (is_quoted ? 1 : 0);
  }
  return words;
}

}  // namespace

bool BatchLine::read(std::istream& lines) {
  std::string whole;
  for (std::string part; std::getline(lines, part);) {
    ++number_;
    part.erase(std::min(part.find('#'), part.size()));
    const bool goes_on = part.ends_with('\\');
    if (goes_on) part.pop_back();
    whole += part;
    if (goes_on) continue;
    words_ = split(whole);
    return true;
  }
  if (whole.empty()) return false;
  words_ = tl::unexpected(std::string("Missing continuation line"));
  return true;
}

}  // namespace verbena::commands::rdma
