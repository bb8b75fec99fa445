// SPDX-License-Identifier: Apache-2.0
// The tables of the five pingpong programs, with their differences.
#include "commands/rdma_core/verbs/pingpong/settings.h"

#include <climits>
#include <cstdio>
#include <string_view>

#include "base/format.h"
#include "commands/rdma_core/common/options.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/verbs/pingpong/pingpong.h"

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
  options.push_back(last_flag(0, "help", settings.help));
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

namespace {

// Lines of the usage texts, identical to rdma-core's.
constexpr ProgramOption kPort = {'p', "port",
                                 "  -p, --port=<port>      listen on/connect to port <port> (default 18515)"};
constexpr ProgramOption kDevice = {
    'd', "ib-dev", "  -d, --ib-dev=<dev>     use IB device <dev> (default first device found)"};
constexpr ProgramOption kIbPort = {'i', "ib-port",
                                   "  -i, --ib-port=<port>   use port <port> of IB device (default 1)"};
constexpr ProgramOption kSize = {'s', "size",
                                 "  -s, --size=<size>      size of message to exchange (default 4096)"};
constexpr ProgramOption kUdSize = {'s', "size",
                                   "  -s, --size=<size>      size of message to exchange (default 2048)"};
constexpr ProgramOption kMtu = {'m', "mtu", "  -m, --mtu=<size>       path MTU (default 1024)"};
constexpr ProgramOption kXrcMtu = {'m', "mtu", "  -m, --mtu=<size>       path MTU (default 2048)"};
constexpr ProgramOption kQueuePairs = {'q', "num-qp",
                                       "  -q, --num-qp=<num>     number of QPs to use (default 16)"};
constexpr ProgramOption kReceives = {
    'r', "rx-depth", "  -r, --rx-depth=<dep>   number of receives to post at a time (default 500)"};
constexpr ProgramOption kIterations = {'n', "iters",
                                       "  -n, --iters=<iters>    number of exchanges (default 1000)"};
constexpr ProgramOption kIterationsEach = {
    'n', "iters", "  -n, --iters=<iters>    number of exchanges per QP(default 1000)"};
constexpr ProgramOption kClients = {'c', "clients",
                                    "  -c, --clients=<n>      number of clients (on server only, default 1)"};
constexpr ProgramOption kTests = {'n', "num_tests",
                                  "  -n, --num_tests=<n>    number of tests per client (default 5)"};
constexpr ProgramOption kLevel = {'l', "sl", "  -l, --sl=<sl>          service level value"};
constexpr ProgramOption kUdLevel = {
    'l', "sl", "  -l, --sl=<SL>          send messages with service level <SL> (default 0)"};
constexpr ProgramOption kEvents = {'e', "events",
                                   "  -e, --events           sleep on CQ events (default poll)"};
constexpr ProgramOption kGidIndex = {'g', "gid-idx", "  -g, --gid-idx=<gid index> local port gid index"};
constexpr ProgramOption kOdp = {'o', "odp", "  -o, --odp\t\t    use on demand paging"};
constexpr ProgramOption kImplicit = {'O', "iodp", "  -O, --iodp\t\t    use implicit on demand paging"};
constexpr ProgramOption kPrefetch = {'P', "prefetch", "  -P, --prefetch\t    prefetch an ODP MR"};
constexpr ProgramOption kTimestamps = {'t', "ts", "  -t, --ts\t            get CQE with timestamp"};
constexpr ProgramOption kRcCheck = {'c', "chk", "  -c, --chk\t            validate received buffer"};
constexpr ProgramOption kCheck = {'c', "chk", "  -c, --chk              validate received buffer"};
constexpr ProgramOption kDeviceMemory = {'j', "dm", "  -j, --dm\t            use device memory"};
constexpr ProgramOption kNewSend = {'N', "new_send", "  -N, --new_send            use new post send WR API"};

constexpr ProgramOption kRcOptions[] = {kPort,       kDevice,     kIbPort,  kSize,         kMtu,    kReceives,
                                        kIterations, kLevel,      kEvents,  kGidIndex,     kOdp,    kImplicit,
                                        kPrefetch,   kTimestamps, kRcCheck, kDeviceMemory, kNewSend};
constexpr ProgramOption kUcOptions[] = {kPort,       kDevice, kIbPort, kSize,     kMtu,  kReceives,
                                        kIterations, kLevel,  kEvents, kGidIndex, kCheck};
constexpr ProgramOption kUdOptions[] = {kPort,       kDevice,  kIbPort, kUdSize,   kReceives,
                                        kIterations, kUdLevel, kEvents, kGidIndex, kCheck};
constexpr ProgramOption kSrqOptions[] = {kPort,       kDevice,   kIbPort,         kSize,  kMtu,
                                         kQueuePairs, kReceives, kIterationsEach, kLevel, kEvents,
                                         kGidIndex,   kOdp,      kCheck};
constexpr ProgramOption kXsrqOptions[] = {kPort,  kDevice, kIbPort, kSize, kXrcMtu,  kClients,
                                          kTests, kLevel,  kEvents, kOdp,  kGidIndex};

constexpr const char* kLocalGid = "Could not get local gid for gid index ";
constexpr uint32_t kSharedNeeds = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_SRQ_RECV;

}  // namespace

const PingpongProgram kRcPingpong = {
    .name = "ibv_rc_pingpong",
    .transport = "RC",
    .type = IBV_QPT_RC,
    .options = kRcOptions,
    .odp_refusal = "The device isn't ODP capable or does not support RC send and receive with ODP",
    .odp_needs = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV};

const PingpongProgram kUcPingpong = {
    .name = "ibv_uc_pingpong", .transport = "UC", .type = IBV_QPT_UC, .options = kUcOptions};

const PingpongProgram kUdPingpong = {.name = "ibv_ud_pingpong",
                                     .transport = "UD",
                                     .type = IBV_QPT_UD,
                                     .defaults = {.size = 1024},  // the usage text says 2048
                                     .options = kUdOptions,
                                     .gid_complaint = kLocalGid,
                                     .before_gid = ':'};

const PingpongProgram kSrqPingpong = {
    .name = "ibv_srq_pingpong",
    .transport = "RC",
    .type = IBV_QPT_RC,
    .shared_receives = true,
    .defaults = {.queue_pairs = 16},
    .options = kSrqOptions,
    .odp_refusal = "The device isn't ODP capable or does not support RC send, receive and srq with ODP",
    .odp_needs = kSharedNeeds,
    .gid_complaint = kLocalGid};

const PingpongProgram kXsrqPingpong = {
    .name = "ibv_xsrq_pingpong",
    .transport = "XRC",
    .type = IBV_QPT_XRC_SEND,
    .shared_receives = true,
    .defaults = {.iterations = 5},
    .options = kXsrqOptions,
    .odp_refusal = "The device isn't ODP capable or does not support XRC send, receive and srq with ODP",
    .odp_needs = kSharedNeeds,
    .first_byte = 0};

int ibv_rc_pingpong(int argc, char** argv) {
  return run_pingpong(kRcPingpong, argc, argv);
}
int ibv_uc_pingpong(int argc, char** argv) {
  return run_pingpong(kUcPingpong, argc, argv);
}
int ibv_ud_pingpong(int argc, char** argv) {
  return run_pingpong(kUdPingpong, argc, argv);
}
int ibv_srq_pingpong(int argc, char** argv) {
  return run_pingpong(kSrqPingpong, argc, argv);
}
int ibv_xsrq_pingpong(int argc, char** argv) {
  return run_pingpong(kXsrqPingpong, argc, argv);
}

}  // namespace verbena::rdma_core
