// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/run_environment.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "commands/verbena/program_file.h"
#include "commands/verbena/sanitizers.h"

namespace verbena::commands {
namespace {

constexpr std::string_view kPreloadSeparators = ": ";

// Splits a list at any of `separators`. Omits empty items and items equal to `left_out`.
std::vector<std::string_view> items(std::string_view list, std::string_view separators,
                                    std::string_view left_out) {
  std::vector<std::string_view> found;
  while (!list.empty()) {
    const size_t end = std::min(list.find_first_of(separators), list.size());
    const std::string_view item = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    if (!item.empty() && item != left_out) found.push_back(item);
  }
  return found;
}

std::string join(const std::vector<std::string_view>& items, char separator) {
  std::string list;
  for (const std::string_view item : items) {
    if (!list.empty()) list += separator;
    list += item;
  }
  return list;
}

bool is_runtime(std::string_view library) {
  return sanitizer_of(library).has_value();
}

std::string preload_item(const std::filesystem::path& preload) {
  const std::string whole = preload.string();
  const bool is_separable = whole.find_first_of(kPreloadSeparators) != std::string::npos;
  return is_separable ? preload.filename().string() : whole;
}

}  // namespace

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string library_path_with(const std::filesystem::path& libraries, std::string_view current) {
  const std::string first = libraries.string();
  std::vector<std::string_view> folders = items(current, ":;", first);
  folders.insert(folders.begin(), first);
  return join(folders, ':');
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
  const std::string ours = preload_item(preload);
  std::vector<std::string_view> libraries = items(current, kPreloadSeparators, ours);
  const auto behind_runtimes = std::stable_partition(libraries.begin(), libraries.end(), is_runtime);
  libraries.insert(behind_runtimes, ours);
  return join(libraries, kPreloadSeparators.front());
}

bool preloads_only(const std::filesystem::path& preload, std::string_view current) {
  const std::string ours = preload_item(preload);
  const std::vector<std::string_view> libraries = items(current, kPreloadSeparators, ours);
  return std::all_of(libraries.begin(), libraries.end(), is_runtime);
}

}  // namespace verbena::commands
