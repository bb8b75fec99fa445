// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/command_line/usage_errors.h"
#include "base/format.h"
#include "commands/explain/search.h"
#include "commands/explain/table.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/help.h"
#include "commands/verbena/names.h"
#include "commands/verbena/report.h"

namespace verbena::commands {

using namespace command_line;

namespace {

using explanations::Entry;
using Json = nlohmann::ordered_json;

constexpr const char* kExplainExamples =
    "Examples:\n"
    "  verbena explain                          all there are\n"
    "  verbena explain IBV_WC_RETRY_EXC_ERR     a completion's status; also RETRY_EXC_ERR, or 12\n"
    "  verbena explain wc 12                    this kind of number: wc, event, cm, errno, reject, nak, "
    "term\n"
    "  verbena explain RDMA_CM_EVENT_REJECTED\n"
    "  verbena explain ENOMEM                   as from ibv_post_send(); also -12, a librdmacm event's "
    "status\n"
    "  verbena explain NAK                      a term; 'verbena explain nak' lists the kinds of NAK\n"
    "  verbena explain receive buffer           whatever speaks of that\n";

std::string as_text(const Entry& entry) {
  const auto kind = static_cast<size_t>(entry.kind);
  std::string text =
      verbena::format("{} ({}{})\n  {}\n", entry.name, explanations::kKindNames[kind],
                      entry.has_number() ? verbena::format(" {}", entry.number) : "", entry.meaning);
  bool first = true;
  for (const std::string_view cause : entry.causes) {
    if (cause.empty()) continue;
    text += verbena::format("{}  - {}\n", std::exchange(first, false) ? "  Likeliest causes:\n" : "", cause);
  }
  if (!entry.look.empty()) text += verbena::format("  Look at: {}\n", entry.look);
  return text;
}

std::string as_list(const std::vector<const Entry*>& entries) {
  std::string text;
  std::optional<explanations::Kind> kind;
  for (const Entry* entry : entries) {
    if (kind != entry->kind) {
      text += verbena::format("{}{} ('{}'):\n", kind ? "\n" : "",
                              explanations::kKindNames[static_cast<size_t>(entry->kind)],
                              explanations::kKindWords[static_cast<size_t>(entry->kind)]);
    }
    kind = entry->kind;
    const std::string number = entry->has_number() ? std::to_string(entry->number) : "";
    text += verbena::format("{:>4}  {:<32} {}\n", number, entry->name, entry->meaning);
  }
  return text;
}

std::string as_json(const std::vector<const Entry*>& entries) {
  Json list = Json::array();
  for (const Entry* entry : entries) {
    Json causes = Json::array();
    for (const std::string_view cause : entry->causes) {
      if (!cause.empty()) causes.push_back(cause);
    }
    list.push_back({{"kind", explanations::kKindWords[static_cast<size_t>(entry->kind)]},
                    {"number", entry->has_number() ? Json(entry->number) : Json()},
                    {"name", entry->name},
                    {"meaning", entry->meaning},
                    {"causes", std::move(causes)},
                    {"look_at", entry->look}});
  }
  return list.dump(2) + "\n";
}

std::string did_you_mean_a_name(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const Entry& entry : explanations::table()) {
    names.emplace_back(entry.name);
    names.emplace_back(explanations::short_name(entry.name));
  }
  std::string wanted = words.back();
  std::ranges::transform(wanted, wanted.begin(), [](unsigned char letter) { return std::toupper(letter); });
  return did_you_mean(wanted, names);
}

int show(const std::vector<std::string>& words, bool json) {
  const std::vector<const Entry*> found = explanations::search(words);
  if (found.empty()) {
    complain("'{}' is not known; 'verbena explain' lists all names{}", printable(verbena::join(words, " ")),
             did_you_mean_a_name(words));
    return kFailed;
  }
  if (json) {
    verbena::print("{}", as_json(found));
  } else if (words.empty()) {
    verbena::print("{}", as_list(found));
  } else {
    const char* separator = "";
    for (const Entry* entry : found) verbena::print("{}{}", std::exchange(separator, "\n"), as_text(*entry));
  }
  return kDone;
}

}  // namespace

void add_explain(CLI::App& verbena, int& status) {
  CLI::App* command = verbena.add_subcommand(
      "explain", "Say what a status, an event or an errno means, and the likeliest causes");
  explain(*command, "verbena explain [--json] [wc|event|cm|errno|reject|nak|term] [NAME|NUMBER|WORDS...]",
          kExplainExamples);
  const auto words = std::make_shared<std::vector<std::string>>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("WORDS", *words, "a name or a number, or words to look for");
  command->add_flag("--json", *json, "one JSON array, for programs");
  command->callback([words, json, &status] { status = show(*words, *json); });
}

}  // namespace verbena::commands
