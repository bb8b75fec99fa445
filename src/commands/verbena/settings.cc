// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <unistd.h>

#include "adapter/engine/shard_dealing.h"
#include "base/command_line/usage_errors.h"
#include "base/format.h"
#include "commands/verbena/names.h"

namespace verbena::commands {
namespace {

bool is_shard_count(std::string_view value) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() && end == value.data() + value.size() && number >= 1 &&
         number <= engine::kMaxShards;
}
bool is_on_or_off(std::string_view value) {
  return value == "off" || value == "0" || value == "on" || value == "1";
}
bool is_zero_or_one(std::string_view value) {
  return value == "0" || value == "1";
}
bool is_congestion_control(std::string_view value) {
  return value == "fixed";
}

struct Setting {
  const char* name;
  bool (*is_known)(std::string_view value);
  std::string allowed;
};

const Setting kSettings[] = {
    {"VERBENA_SHARDS", is_shard_count, verbena::format("a number from 1 to {}", engine::kMaxShards)},
    {"VERBENA_LOCAL", is_on_or_off, "'off', or not set"},
    {"VERBENA_HALT_POLLING", is_zero_or_one, "'0', or not set"},
    {"VERBENA_CONGESTION", is_congestion_control, "'fixed', or not set"},
};

bool can_be_executed(const char* file) {
  std::error_code ignored;
  return ::access(file, X_OK) == 0 && std::filesystem::is_regular_file(file, ignored);
}

// Reports a variable "VERBENA_NAME=value" whose name resembles one of ours.
void add_mistyped(std::string_view entry, std::vector<WrongSetting>& wrong) {
  constexpr std::string_view kPrefix = "VERBENA_";
  if (!entry.starts_with(kPrefix)) return;
  const std::string_view name = entry.substr(kPrefix.size(), entry.find('=') - kPrefix.size());
  std::vector<std::string> ours = {"LOG", "AGENT", "SYS_DIR"};
  for (const Setting& setting : kSettings) ours.emplace_back(setting.name + kPrefix.size());
  if (std::ranges::find(ours, name) != ours.end()) return;
  const std::string_view meant = command_line::closest(name, ours);
  if (meant.empty()) return;
  wrong.push_back({verbena::format("{}{}", kPrefix, name), false,
                   verbena::format("{0}{1} is no variable of Verbena's; did you mean {0}{2}?", kPrefix,
                                   printable(name), meant)});
}

}  // namespace

std::vector<WrongSetting> wrong_settings() {
  std::vector<WrongSetting> wrong;
  for (const Setting& setting : kSettings) {
    const char* value = std::getenv(setting.name);
    if (value == nullptr || *value == '\0' || setting.is_known(value)) continue;
    wrong.push_back({setting.name, true,
                     verbena::format("{}={} has no effect: it has to be {}", setting.name, printable(value),
                                     setting.allowed)});
  }
  const char* agent = std::getenv("VERBENA_AGENT");
  if (agent != nullptr && *agent != '\0' && !can_be_executed(agent)) {
    wrong.push_back(
        {"VERBENA_AGENT", false,
         verbena::format("VERBENA_AGENT={} is not an executable file: where no agent runs, none can be "
                         "started",
                         printable(agent))});
  }
  for (char** entry = environ; *entry != nullptr; ++entry) add_mistyped(*entry, wrong);
  return wrong;
}

}  // namespace verbena::commands
