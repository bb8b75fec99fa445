// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/pingpong/settings.h"

#include <climits>
#include <cstdio>
#include <string_view>

#include "base/format.h"
#include "commands/rdma_core/common/options.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {
namespace {

constexpr unsigned kMaxQueuePairs = 255;

Option mtu(char letter, const char* name, Settings& settings) {
  return {letter, name, true, [&settings](const char* word) {
            constexpr std::pair<int, ibv_mtu> kSizes[] = {{256, IBV_MTU_256},
                                                          {512, IBV_MTU_512},
                                                          {1024, IBV_MTU_1024},
                                                          {2048, IBV_MTU_2048},
                                                          {4096, IBV_MTU_4096}};
            for (const auto& [size, value] : kSizes) {
              if (read_number(word, size, size)) {
                settings.mtu = value;
                return Next::kGoOn;
              }
            }
            complain(verbena::format("-m, --mtu: '{}' is not 256, 512, 1024, 2048 or 4096", word));
            return Next::kWrong;
          }};
}

Option all_on_demand(char letter, const char* name, Settings& settings) {
  return {letter, name, false, [&settings](const char*) {
            settings.on_demand = settings.implicit = true;
            return Next::kGoOn;
          }};
}

// Returns the option with its handler, chosen by the long name, which means the same in all programs.
Option taker_of(const ProgramOption& option, Settings& settings, unsigned least_size) {
  const std::string_view name = option.name;
  const auto count = [&](unsigned& value, long long least, long long most = INT_MAX) {
    return number(option.letter, option.name, value, least, most);
  };
  const auto given = [&](bool& value) { return flag(option.letter, option.name, value); };
  if (name == "port") return number(option.letter, option.name, settings.tcp_port, 0, 65535);
  if (name == "ib-dev") return text(option.letter, option.name, settings.device);
  if (name == "ib-port") return number(option.letter, option.name, settings.ib_port, 1, 255);
  if (name == "size") return count(settings.size, least_size);
  if (name == "mtu") return mtu(option.letter, option.name, settings);
  if (name == "num-qp") return count(settings.queue_pairs, 1);
  if (name == "rx-depth") return count(settings.receives, 1);
  if (name == "iters") return count(settings.iterations, 0);
  if (name == "clients") return count(settings.clients, 1, 65536);
  if (name == "num_tests") return count(settings.iterations, 1, 65536);
  if (name == "sl") return number(option.letter, option.name, settings.service_level, 0, 15);
  if (name == "events") return given(settings.events);
  if (name == "gid-idx") return number(option.letter, option.name, settings.gid_index);
  if (name == "odp") return given(settings.on_demand);
  if (name == "iodp") return all_on_demand(option.letter, option.name, settings);
  if (name == "prefetch") return given(settings.prefetch);
  if (name == "ts") return given(settings.timestamps);
  if (name == "chk") return given(settings.check);
  if (name == "dm") return given(settings.device_memory);
  return given(settings.new_send);
}

void print_usage(const PingpongProgram& program, const char* name) {
  std::printf("Usage:\n");
  std::printf("  %s            start a server and wait for connection\n", name);
  std::printf("  %s <host>     connect to server at <host>\n", name);
  std::printf("\n");
  std::printf("Options:\n");
  for (const ProgramOption& option : program.options) std::printf("%s\n", option.usage);
  std::printf("      --json             print one JSON object with all figures\n");
  std::printf("      --help             print this and exit\n");
}

// Prints a longer text than the usage of rdma-core's program, for --help only.
void print_help(const PingpongProgram& program, const char* name) {
  print_usage(program, name);
  std::printf("\n");
  std::printf("Sizes are in bytes. An exchange is a message there and one back.\n");
  std::printf("\n");
  std::printf("Examples:\n");
  std::printf("  %s -g 1             a server; 'ibv_devinfo -v' lists the GIDs that -g means\n", name);
  std::printf("  %s -g 1 192.0.2.1   its client\n", name);
  std::printf("  %s -g 1 --json -n 100 192.0.2.1\n", name);
  std::printf("\n");
  std::printf("Exit status: 0 done, 1 could not be done or wrong usage.\n");
}

// Returns a message about contradictory options; empty if there are none.
std::string contradiction(const Settings& settings) {
  if (settings.on_demand && settings.device_memory) return "DM memory region can't be on demand";
  if (settings.prefetch && !settings.on_demand) {
    return "prefetch is valid only with on-demand memory region";
  }
  if (settings.queue_pairs > settings.receives) {
    return verbena::format("rx_depth {} is too small for {} QPs -- must have at least one receive per QP.",
                           settings.receives, settings.queue_pairs);
  }
  if (settings.queue_pairs > kMaxQueuePairs) {
    return verbena::format("num_qp {} must be less than {}", settings.queue_pairs, kMaxQueuePairs);
  }
  return {};
}

}  // namespace

std::optional<Settings> read_settings(const PingpongProgram& program, int argc, char** argv) {
  Settings settings = program.defaults;
  std::vector<Option> options;
  const unsigned least_size = program.shared_receives ? 1 : 0;
  for (const ProgramOption& option : program.options) {
    options.push_back(taker_of(option, settings, least_size));
  }
  options.push_back(flag(0, "json", settings.json));
  options.push_back({0, "help", false, [&settings](const char*) {
                       settings.help = true;
                       return Next::kStop;
                     }});
  const Parsed parsed = parse(argc, argv, options);
  if (settings.help) {
    print_help(program, argv[0]);
    return settings;
  }
  if (parsed.next == Next::kWrong || parsed.operands.size() > 1) {
    print_usage(program, argv[0]);
    return std::nullopt;
  }
  if (!parsed.operands.empty()) settings.server = parsed.operands.front();
  if (const std::string wrong = contradiction(settings); !wrong.empty()) {
    complain(wrong);
    return std::nullopt;
  }
  return settings;
}

}  // namespace verbena::rdma_core
