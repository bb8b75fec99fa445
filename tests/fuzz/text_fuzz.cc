// SPDX-License-Identifier: Apache-2.0
// Arbitrary text for our parsers: command lines of `verbena`, values of environment variables, names of
// links, lines of /proc. Promises: parsing is fast, text is parsed or refused, and the values are within the
// parser's limits.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "adapter/engine/processor_demand.h"
#include "adapter/engine/shard_dealing.h"
#include "adapter/shm/process_map.h"
#include "agent/links/link_table.h"
#include "base/text.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/link_arguments.h"
#include "commands/verbena/run_environment.h"
#include "control/protocol/messages.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"

namespace verbena {
namespace {

using fuzz::Choices;

// On the heap with its exact size, so that the sanitizer sees reads beyond it.
struct Text {
  explicit Text(ConstBytes bytes) : size(bytes.size()), characters(new char[size]) {
    if (size > 0) std::memcpy(characters.get(), bytes.data(), size);
  }
  std::string_view view() const { return {characters.get(), size}; }
  const size_t size;
  const std::unique_ptr<char[]> characters;
};

std::vector<std::string> words_from(Choices& choices) {
  static constexpr const char* kWords[] = {"run",
                                           "link",
                                           "status",
                                           "capture",
                                           "agent",
                                           "add",
                                           "delete",
                                           "show",
                                           "type",
                                           "rxe",
                                           "netdev",
                                           "eth0",
                                           "--",
                                           "-",
                                           "--json",
                                           "--help",
                                           "-h",
                                           "--version",
                                           "--shared-memory",
                                           "start",
                                           "stop",
                                           "-w",
                                           "-i",
                                           "-c",
                                           "-s",
                                           "0",
                                           "-1",
                                           "99999999999",
                                           "1.5",
                                           "",
                                           "name=a",
                                           "--snap",
                                           "--count",
                                           "--all",
                                           "--write=x",
                                           "-abc",
                                           "--=",
                                           "a b",
                                           "status",
                                           "\n",
                                           "%s"};
  std::vector<std::string> words;
  while (!choices.empty() && words.size() < 12) {
    const uint8_t which = choices.byte();
    if (which < std::size(kWords)) {
      words.emplace_back(kWords[which]);
    } else {
      const ConstBytes own = choices.bytes(which % 16);
      words.emplace_back(reinterpret_cast<const char*>(own.data()), own.size());
    }
  }
  return words;
}

// The commands are not executed: each ends when its words have been parsed.
void disarm(CLI::App& app) {
  for (CLI::App* each : app.get_subcommands({})) {
    disarm(*each);
    each->parse_complete_callback([] { throw CLI::Success(); });
  }
}

class CommandLine {
 public:
  CommandLine() {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", "1");
    commands::add_run(app_, program_, status_);
    commands::add_link(app_, status_);
    commands::add_status(app_, status_);
    commands::add_capture(app_, status_);
    commands::add_agent(app_, status_);
    disarm(app_);
  }
  void parse(Choices& choices) {
    std::vector<std::string> words = words_from(choices);
    std::erase_if(words, [](const std::string& word) { return word.find('\0') != std::string::npos; });
    commands::Words cut = commands::cut_words(words);
    VERBENA_REQUIRE(cut.ours.size() + cut.program.size() <= words.size());
    std::ranges::reverse(cut.ours);
    try {
      app_.parse(std::move(cut.ours));
    } catch (const CLI::Error& error) {
      VERBENA_REQUIRE(error.what() != nullptr);
    }
  }

 private:
  CLI::App app_{"", "verbena"};
  const std::vector<std::string> program_;
  int status_ = 0;
};

void check_links(Choices& choices) {
  const auto addition = commands::parse_link_addition(words_from(choices));
  if (!addition) {
    VERBENA_REQUIRE(!addition.error().empty());
    return;
  }
  agent::LinkTable table;
  table.netdev_changed({.index = 1, .name = "eth0", .up = true, .carrier = true, .mtu = 1500});
  if (!table.add_link(addition->name, addition->netdev)) return;
  table.settle();
  for (const control::Link& link : table.snapshot().links) {
    // The name becomes a file name.
    VERBENA_REQUIRE(link.name.find('/') == std::string::npos && link.name != "." && link.name != "..");
    VERBENA_REQUIRE(!link.name.empty() && link.name.size() < protocol::kLinkNameBytes);
  }
}

void check_process_map(Choices& choices) {
  const uint64_t begin = choices.yes() ? choices.byte() * 4096u : choices.number<uint64_t>();
  const uint64_t end = begin + 1 + (choices.yes() ? choices.byte() * 4096u : choices.number<uint32_t>());
  std::string text;
  while (!choices.empty()) {
    if (choices.below(8) == 0) {
      const ConstBytes own = choices.bytes(choices.byte());
      text.append(reinterpret_cast<const char*>(own.data()), own.size());
      continue;
    }
    static constexpr const char* kPaths[] = {"", "/memfd:a (deleted)", "/SYSV00000000 (deleted)",
                                             "/dev/shm/x", "[heap]"};
    const uint64_t from = choices.byte() * 4096u;
    char line[160];
    std::snprintf(line, sizeof line, "%lx-%lx rw-%c %08x 00:%02x %u   %s\n", from,
                  from + choices.byte() * 4096u, choices.yes() ? 's' : 'p', choices.byte() * 4096u,
                  choices.below(3), choices.below(4), kPaths[choices.below(std::size(kPaths))]);
    text += line;
  }
  const engine::ProcessMap map(text);
  if (begin >= end) return;
  const auto found = map.find(begin, end);
  if (!found) return;
  VERBENA_REQUIRE(found->mapping_begin <= begin && found->mapping_begin < found->mapping_end);
  VERBENA_REQUIRE(text.find(found->path) != std::string::npos);
  if (found->writable) VERBENA_REQUIRE(map.maps_for_writing(found->file));
  if (const auto segment = engine::segment_behind(*found)) VERBENA_REQUIRE(*segment >= 0);
}

void check_values(Choices& choices) {
  const uint32_t which = choices.below(4);
  const Text text(choices.rest());
  switch (which) {
    case 0: {
      const size_t shards = engine::max_shards(text.view(), 4);
      VERBENA_REQUIRE(shards >= 1 && shards <= engine::kMaxShards);
      break;
    }
    case 1:
      engine::ProcessorDemand::runnable_in(text.view());
      break;
    case 2: {
      const std::string path = commands::library_path_with("/lib/verbena", text.view());
      VERBENA_REQUIRE(path.starts_with("/lib/verbena") &&
                      commands::library_path_with("/lib/verbena", path) == path);
      break;
    }
    default: {
      const std::string preload = commands::preload_with("/lib/v.so", text.view());
      VERBENA_REQUIRE(preload.starts_with("/lib/v.so") &&
                      commands::preload_with("/lib/v.so", preload) == preload);
    }
  }
}

}  // namespace
}  // namespace verbena

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace verbena;
  static CommandLine command_line;
  Choices choices(data, size);
  switch (choices.below(4)) {
    case 0:
      command_line.parse(choices);
      break;
    case 1:
      check_links(choices);
      break;
    case 2:
      check_process_map(choices);
      break;
    default:
      check_values(choices);
  }
  return 0;
}
