// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "adapter/queues/status_words.h"
#include "base/command_line/command_line.h"
#include "base/format.h"
#include "commands/explain/table.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/help.h"
#include "commands/verbena/names.h"
#include "commands/verbena/report.h"

namespace verbena::commands {

using namespace command_line;

namespace {

using explanations::Entry;
using explanations::Kind;
using explanations::kKindNames;
using explanations::kKindWords;
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

std::string lower(std::string_view text) {
  std::string small(text);
  for (char& letter : small) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return small;
}

std::vector<const Entry*> those(const std::function<bool(const Entry&)>& fit) {
  std::vector<const Entry*> found;
  for (const Entry& entry : explanations::table()) {
    if (fit(entry)) found.push_back(&entry);
  }
  return found;
}

std::optional<Kind> kind_named(const std::string& word) {
  const auto found = std::find(kKindWords.begin(), kKindWords.end(), word);
  if (found == kKindWords.end()) return std::nullopt;
  return static_cast<Kind>(found - kKindWords.begin());
}

// Parses "12", "-12" or "0xc".
std::optional<int> number_in(std::string_view word) {
  const bool negative = word.starts_with('-');
  if (negative) word.remove_prefix(1);
  const int base = word.starts_with("0x") ? 16 : 10;
  if (base == 16) word.remove_prefix(2);
  int number = 0;
  const auto read = std::from_chars(word.data(), word.data() + word.size(), number, base);
  if (word.empty() || read.ec != std::errc() || read.ptr != word.data() + word.size()) return std::nullopt;
  return negative ? -number : number;
}

// Whether `word` names the entry: "IBV_WC_RETRY_EXC_ERR", "wc_retry_exc_err", "RETRY_EXC_ERR".
bool is_name(const Entry& entry, const std::string& word) {
  const std::string name = lower(entry.name);
  if (name == word) return true;
  for (const std::string_view prefix : {"ibv_", "ibv_wc_", "ibv_event_", "rdma_cm_", "rdma_cm_event_"}) {
    if (name.starts_with(prefix) && name.substr(prefix.size()) == word) return true;
  }
  return false;
}

// The entry's text as the libraries print it.
std::string_view printed(const Entry& entry) {
  if (entry.kind == Kind::kErrno) return std::strerror(entry.number);
  const auto index = static_cast<size_t>(entry.number);
  if (entry.kind == Kind::kCompletion && index < std::size(queues::kCompletionStatuses))
    return queues::kCompletionStatuses[index];
  if (entry.kind == Kind::kEvent && index < std::size(queues::kEventTypes)) return queues::kEventTypes[index];
  return {};
}

bool speaks_of(const Entry& entry, const std::string& words) {
  std::string text = verbena::format("{} {} {} {}", entry.name, printed(entry), entry.meaning, entry.look);
  for (const std::string_view cause : entry.causes) text += verbena::format(" {}", cause);
  return lower(text).find(words) != std::string::npos;
}

// Returns a name without the common prefix of its kind: "RETRY_EXC_ERR" for "IBV_WC_RETRY_EXC_ERR".
std::string_view short_name(std::string_view name) {
  for (const std::string_view prefix : {"IBV_WC_", "IBV_EVENT_", "RDMA_CM_EVENT_"}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

// Finds the entries that the words of a command line ask for, ignoring case. The words may be a name with or
// without its prefix ("IBV_WC_RETRY_EXC_ERR", "RETRY_EXC_ERR"), or a number, optionally after a word for its
// kind ("wc 12"). If they match no name or number, finds entries that contain the words, or whose text from
// ibv_wc_status_str() or a similar function does. Returns all entries if `words` is empty.
std::vector<const Entry*> search(const std::vector<std::string>& words) {
  if (words.empty()) return those([](const Entry&) { return true; });
  std::optional<Kind> kind = kind_named(lower(words.front()));
  const size_t first = kind && words.size() > 1 ? 1 : 0;
  const auto fits = [&](const Entry& entry) { return !kind || entry.kind == *kind; };
  if (kind && words.size() == 1) {
    const std::string word = lower(words.front());
    return those([&](const Entry& entry) { return fits(entry) || is_name(entry, word); });
  }

  const std::string wanted = lower(verbena::join(std::span(words).subspan(first), " "));
  if (const auto number = number_in(wanted)) {
    if (*number < 0 && !kind) kind = Kind::kErrno;  // events of librdmacm hold negative errno values
    return those([&](const Entry& entry) { return fits(entry) && entry.number == std::abs(*number); });
  }
  auto found = those([&](const Entry& entry) { return fits(entry) && is_name(entry, wanted); });
  if (!found.empty()) return found;
  return those([&](const Entry& entry) { return fits(entry) && speaks_of(entry, wanted); });
}

std::string as_text(const Entry& entry) {
  const auto kind = static_cast<size_t>(entry.kind);
  std::string text =
      verbena::format("{} ({}{})\n  {}\n", entry.name, kKindNames[kind],
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
  std::optional<Kind> kind;
  for (const Entry* entry : entries) {
    if (kind != entry->kind) {
      text +=
          verbena::format("{}{} ('{}'):\n", kind ? "\n" : "", kKindNames[static_cast<size_t>(entry->kind)],
                          kKindWords[static_cast<size_t>(entry->kind)]);
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
    list.push_back({{"kind", kKindWords[static_cast<size_t>(entry->kind)]},
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
    names.emplace_back(short_name(entry.name));
  }
  std::string wanted = words.back();
  std::ranges::transform(wanted, wanted.begin(), [](unsigned char letter) { return std::toupper(letter); });
  return did_you_mean(wanted, names);
}

int show(const std::vector<std::string>& words, bool json) {
  const std::vector<const Entry*> found = search(words);
  if (found.empty()) {
    return complain("'{}' is not known; 'verbena explain' lists all names{}",
                    printable(verbena::join(words, " ")), did_you_mean_a_name(words));
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
