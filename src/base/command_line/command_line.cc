// SPDX-License-Identifier: Apache-2.0
#include "base/command_line/command_line.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>
#include <strings.h>

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

// Longer words resemble none of our names, and the distance takes time in proportion to both lengths.
constexpr size_t kMaxLetters = 40;

// The optimal string alignment distance: Levenshtein's with a swap of neighbours as one step.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> two_back(b.size() + 1);
  std::vector<size_t> back(b.size() + 1);
  std::vector<size_t> now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) back[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = back[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({back[j] + 1, now[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], two_back[j - 2] + 1);
      }
    }
    two_back.swap(back);
    back.swap(now);
  }
  return back[b.size()];
}

std::string_view only_continuation(std::string_view word, std::span<const std::string> candidates) {
  std::string_view found;
  for (const std::string& candidate : candidates) {
    if (!candidate.starts_with(word)) continue;
    if (!found.empty()) return {};
    found = candidate;
  }
  return found;
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::App* subcommand(const CLI::App& app, const std::string& word) {
  const auto all = subcommands_of(app);
  const auto found = std::ranges::find_if(all, [&](const CLI::App* one) { return one->check_name(word); });
  return found == all.end() ? nullptr : *found;
}

std::vector<std::string> names_of_subcommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* one : subcommands_of(app)) names.push_back(one->get_name());
  return names;
}

std::vector<std::string> names_of_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* one : app.get_options()) {
    if (one->get_group().empty()) continue;  // hidden from users
    for (const std::string& name : one->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : one->get_snames()) names.push_back("-" + name);
  }
  return names;
}

const CLI::App& last_reached(const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return *app;
}

// The option's name at the start of CLI11's message: "--qp: 1 required QPN missing", or "Could not convert:
// --json = please".
std::string subject_of(std::string_view sentence) {
  constexpr std::string_view kPrefix = "Could not convert: ";
  if (sentence.starts_with(kPrefix)) sentence.remove_prefix(kPrefix.size());
  return std::string(sentence.substr(0, sentence.find_first_of(": ")));
}

// The option as the user types it.
std::string with_dashes(const std::string& name) {
  return (name.size() > 1 ? "--" : "-") + name;
}

std::string about_a_word(const CLI::App& app, const std::string& word) {
  const std::string shown = printable(word);
  if (word.starts_with('-') && word.size() > 1) {
    const std::string name = word.substr(0, word.find('='));
    return verbena::format("unknown option '{}'{}", shown, did_you_mean(name, names_of_options(app)));
  }
  return verbena::format("unexpected argument '{}'", shown);
}

std::string about_a_missing_command(const CLI::App& app) {
  return verbena::format("a command is missing: {}", verbena::join(names_of_subcommands(app), ", "));
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

std::string_view closest(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > kMaxLetters) return {};
  std::string_view best;
  size_t least = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : candidates) {
    const size_t steps = distance(word, candidate);
    if (steps < least) {
      least = steps;
      best = candidate;
    }
  }
  const size_t limit = std::max<size_t>(1, (word.size() + 1) / 3);
  return least <= limit ? best : only_continuation(word, candidates);
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string_view meant = closest(word, candidates);
  return meant.empty() ? std::string() : verbena::format("; did you mean '{}'?", meant);
}

std::string reached(const CLI::App& program) {
  std::string name = program.get_name();
  for (const CLI::App* app = &program; !app->get_subcommands().empty();) {
    app = app->get_subcommands().front();
    name += " " + app->get_name();
  }
  return name;
}

std::vector<std::string> words_for_help(const CLI::App& program, const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  const CLI::App* app = &program;
  for (size_t i = 1; i < words.size() && app != nullptr && !subcommands_of(*app).empty(); ++i) {
    kept.push_back(words[i]);
    app = subcommand(*app, words[i]);
  }
  kept.emplace_back("--help");
  return kept;
}

std::optional<UnknownCommand> unknown_command(const CLI::App& program,
                                              const std::vector<std::string>& words) {
  const CLI::App* app = &program;
  std::string name = program.get_name();
  for (const std::string& word : words) {
    if (word.starts_with('-')) continue;
    if (subcommands_of(*app).empty()) break;
    const CLI::App* next = subcommand(*app, word);
    if (next == nullptr) {
      const std::string of = app == &program ? "" : verbena::format(" of '{}'", name);
      return UnknownCommand{verbena::format("unknown command '{}'{}{}", printable(word), of,
                                            did_you_mean(word, names_of_subcommands(*app))),
                            name};
    }
    app = next;
    name += " " + app->get_name();
  }
  return std::nullopt;
}

std::string what_is_wrong(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App& app = last_reached(program);
  const std::vector<std::string> words = program.remaining(true);
  if (!words.empty()) return about_a_word(app, words.front());
  const std::string sentence = error.what();
  const std::string kind = error.get_name();
  if (kind == "RequiredError") {
    return sentence.starts_with("A subcommand") ? about_a_missing_command(app)
                                                : verbena::format("{} is missing", subject_of(sentence));
  }
  if (kind == "ArgumentMismatch") {
    if (sentence.ends_with("disallowed flag override"))
      return verbena::format("{} takes no value", with_dashes(sentence.substr(0, sentence.find(' '))));
    return sentence.ends_with("missing") ? verbena::format("{} needs a value", subject_of(sentence))
                                         : verbena::format("{} can be given only once", subject_of(sentence));
  }
  if (kind == "ConversionError") return verbena::format("{} takes no value", subject_of(sentence));
  return sentence;
}

}  // namespace verbena::command_line
