// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/checks.h"

#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "commands/verbena/names.h"

namespace verbena::commands::doctor {
namespace {

struct LevelNames {
  std::string_view in_text;
  std::string_view in_json;
};

// Indexed by Level.
constexpr std::array<LevelNames, 4> kLevels = {{
    {"ok", "fine"},
    {"not seen", "unseen"},
    {"COST", "cost"},
    {"FAULT", "fault"},
}};

const LevelNames& names_of(Level level) {
  return kLevels[static_cast<size_t>(level)];
}

std::string conclusion(const Findings& findings) {
  const size_t faults = findings.count(Level::kFault);
  const size_t costs = findings.count(Level::kCost);
  const size_t unseen = findings.count(Level::kUnseen);
  const std::string rest =
      unseen == 0 ? "" : verbena::format(" Not looked at: {} of {}.", unseen, findings.all().size());
  if (faults + costs == 0) return verbena::format("Nothing is amiss.{}\n", rest);
  return verbena::format("Faults: {}. Things that work and cost something: {}.{}\n", faults, costs, rest);
}

}  // namespace

std::string as_text(const Findings& findings) {
  std::string text;
  for (const Finding& one : findings.all()) {
    text +=
        verbena::format("{:<9} {:<10} {}\n", names_of(one.level).in_text, one.subject, printable(one.what));
    if (!one.todo.empty()) text += verbena::format("{:21}-> {}\n", "", printable(one.todo));
  }
  return text + "\n" + conclusion(findings);
}

std::string as_json(const Findings& findings) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson list = OrderedJson::array();
  for (const Finding& one : findings.all()) {
    list.push_back({{"subject", one.subject},
                    {"level", names_of(one.level).in_json},
                    {"what", one.what},
                    {"to_do", one.todo}});
  }
  const OrderedJson whole = {{"version", VERBENA_VERSION},
                             {"result", exit_status(findings) == 0 ? "fine" : "findings"},
                             {"findings", std::move(list)}};
  return whole.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

int exit_status(const Findings& findings) {
  return findings.count(Level::kFault) + findings.count(Level::kCost) == 0 ? 0 : 1;
}

}  // namespace verbena::commands::doctor
