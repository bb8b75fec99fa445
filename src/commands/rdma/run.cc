// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma/run.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <utility>

#include <getopt.h>

#include "commands/rdma/command.h"

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

struct Settings : Options {
  std::optional<std::string> batch;
  bool force = false;  // continue a batch after a failed command
};

void add_usage(Answer& answer, const std::string& program) {
  answer.out += verbena::format(
      "Usage: {0} [ OPTIONS ] OBJECT {{ COMMAND | help }}\n"
      "       {0} [ -f[orce] ] -b[atch] filename\n"
      "where  OBJECT := {{ dev | link | resource | monitor | system | statistic | help }}\n"
      "       OPTIONS := {{ -V[ersion] | -d[etails] | -j[son] | -p[retty] | -r[aw]}}\n",
      program);
}

constexpr option kLongOptions[] = {
    {"version", no_argument, nullptr, 'V'},     {"help", no_argument, nullptr, 'h'},
    {"json", no_argument, nullptr, 'j'},        {"oneline", no_argument, nullptr, 'o'},
    {"pretty", no_argument, nullptr, 'p'},      {"details", no_argument, nullptr, 'd'},
    {"raw", no_argument, nullptr, 'r'},         {"force", no_argument, nullptr, 'f'},
    {"batch", required_argument, nullptr, 'b'}, {nullptr, 0, nullptr, 0},
};

// Parses the options. False: the answer is complete.
bool parse_options(std::vector<char*>& argv, Settings& settings, Answer& answer) {
  bool json = false;
  bool pretty = false;
  const std::map<int, bool*> flags = {
      {'d', &settings.details}, {'r', &settings.raw}, {'p', &pretty}, {'j', &json}, {'f', &settings.force}};
  const int argc = static_cast<int>(argv.size()) - 1;
  optind = 0;  // makes getopt_long() start over
  for (int option; (option = ::getopt_long(argc, argv.data(), ":Vhdropjfb:", kLongOptions, nullptr)) >= 0;) {
    if (const auto flag = flags.find(option); flag != flags.end()) {
      *flag->second = true;
      continue;
    }
    switch (option) {
      case 'V':
        answer.out += verbena::format("{} utility, verbena-{}\n", settings.program, VERBENA_VERSION);
        return false;
      case 'h':
        add_usage(answer, settings.program);
        return false;
      case 'b':
        settings.batch = optarg;
        break;
      case 'o':  // has no effect: the output breaks few lines
        break;
      case ':':
        answer.complaints += verbena::format("-{} option requires an argument\n", static_cast<char>(optopt));
        answer.status = Command::kFailed;
        return false;
      default:
        answer.complaints += "Unknown option.\n";
        add_usage(answer, settings.program);
        answer.status = Command::kFailed;
        return false;
    }
  }
  settings.form = !json ? Printer::Form::kText : pretty ? Printer::Form::kPrettyJson : Printer::Form::kJson;
  return true;
}

int carry_out(const Settings& settings, System& system, std::vector<std::string> words, Answer& answer,
              const Flush& flush) {
  Command command(settings, system, Arguments(std::move(words)), answer.out, answer.complaints);
  command.set_flush([&] { return !flush || flush(answer); });
  const auto usage = [&](Command&) {
    add_usage(answer, settings.program);
    return Command::kDone;
  };
  return choose(command, usage,
                {{"help", usage},
                 {"dev", show_or_change_devices},
                 {"link", show_or_change_links},
                 {"resource", show_resources},
                 {"system", show_or_change_system},
                 {"statistic", show_statistics},
                 {"monitor", monitor}},
                "object");
}

int carry_out_batch(const Settings& settings, System& system, Answer& answer, const Flush& flush) {
  const std::string& name = *settings.batch;
  std::ifstream file;
  if (name != "-") {
    file.open(name);
    if (!file) {
      answer.complaints +=
          verbena::format("Cannot open file \"{}\" for reading: {}\n", name, std::strerror(errno));
      return Command::kFailed;
    }
  }
  std::istream& lines = name != "-" ? static_cast<std::istream&>(file) : std::cin;
  int result = Command::kDone;
  for (BatchLine line; line.read(lines);) {
    if (!line.words()) {
      answer.complaints += line.words().error() + "\n";
      return Command::kFailed;
    }
    if (line.words()->empty()) continue;
    if (carry_out(settings, system, *line.words(), answer, flush) == Command::kDone) continue;
    answer.complaints += verbena::format("Command failed {}:{}\n", name, line.number());
    result = Command::kFailed;
    if (!settings.force) break;
  }
  return result;
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

Answer run(const std::vector<std::string>& words, System& system, const Flush& flush) {
  Answer answer;
  Settings settings;
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  if (!words.empty()) settings.program = words.front().substr(words.front().rfind('/') + 1);
  if (!parse_options(argv, settings, answer)) return answer;
  if (settings.batch) {
    answer.status = carry_out_batch(settings, system, answer, flush);
  } else {
    answer.status = carry_out(settings, system, {argv.begin() + optind, argv.end() - 1}, answer, flush);
  }
  return answer;
}

}  // namespace verbena::commands::rdma
