// SPDX-License-Identifier: Apache-2.0
#include "tools/verbena/settings.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "engine/shard_dealing.h"
#include "tools/verbena/names.h"

namespace verbena::tools {
namespace {

bool is_shard_count(std::string_view value) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() && end == value.data() + value.size() && number >= 1 &&
         number <= engine::kMostShards;
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
    {"VERBENA_SHARDS", is_shard_count, fmt::format("a number from 1 to {}", engine::kMostShards)},
    {"VERBENA_LOCAL", is_on_or_off, "'off', or not set"},
    {"VERBENA_HALT_POLLING", is_zero_or_one, "'0', or not set"},
    {"VERBENA_CONGESTION", is_congestion_control, "'fixed', or not set"},
};

}  // namespace

std::vector<WrongSetting> wrong_settings() {
  std::vector<WrongSetting> wrong;
  for (const Setting& setting : kSettings) {
    const char* value = std::getenv(setting.name);
    if (value == nullptr || *value == '\0' || setting.is_known(value)) continue;
    wrong.push_back({setting.name, fmt::format("{}={} has no effect: it has to be {}", setting.name,
                                               printable(value), setting.allowed)});
  }
  return wrong;
}

}  // namespace verbena::tools
