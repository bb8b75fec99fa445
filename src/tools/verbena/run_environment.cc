// SPDX-License-Identifier: Apache-2.0
#include "tools/verbena/run_environment.h"

namespace verbena::tools {
namespace {

constexpr std::string_view kDefaultPath = "/bin:/usr/bin";  // execvp(3)'s

// `first`, then the items of `list` that differ from it; items are separated by any of `separators`.
std::string put_first(const std::string& first, std::string_view list, std::string_view separators) {
  std::string result = first;
  while (!list.empty()) {
    const size_t end = std::min(list.find_first_of(separators), list.size());
    const std::string_view item = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    if (item.empty() || item == first) continue;
    result += separators.front();
    result += item;
  }
  return result;
}

}  // namespace

std::string library_path_with(const std::filesystem::path& libraries, std::string_view current) {
  return put_first(libraries.string(), current, ":;");
}

std::string path_with(const std::filesystem::path& commands, std::string_view current) {
  std::string first = commands.string() + ':';
  if (current.starts_with(first)) return std::string(current);
  return first.append(current.empty() ? kDefaultPath : current);
}

std::string path_with_last(const std::filesystem::path& programs, std::string_view current) {
  const std::string last = ':' + programs.string();
  std::string path(current.empty() ? kDefaultPath : current);
  return path.ends_with(last) ? path : path.append(last);
}

std::string preload_with(const std::filesystem::path& preload, std::string_view current) {
  constexpr std::string_view kSeparators = ": ";
  const std::string whole = preload.string();
  const bool separable = whole.find_first_of(kSeparators) != std::string::npos;
  return put_first(separable ? preload.filename().string() : whole, current, kSeparators);
}

}  // namespace verbena::tools
