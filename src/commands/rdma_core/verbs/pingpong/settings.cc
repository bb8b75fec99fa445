// SPDX-License-Identifier: Apache-2.0
// The tables of the five pingpong programs, with their differences.
#include <climits>
#include <cstdio>
#include <string_view>

#include "base/format.h"
#include "commands/rdma_core/common/options.h"
#include "commands/rdma_core/verbs/pingpong/pingpong.h"

namespace verbena::rdma_core {
namespace {

constexpr unsigned kMaxQueuePairs = 255;

// The programs, as bits.
enum Program : unsigned { kRc = 1, kUc = 2, kUd = 4, kSrq = 8, kXsrq = 16, kAll = 31 };

// An option of some programs, with its line in the usage text, which is identical to rdma-core's.
struct ProgramOption {
  unsigned programs;
  char letter;
  const char* name;
  const char* usage;
};

constexpr ProgramOption kOptions[] = {
    {kAll, 'p', "port", "  -p, --port=<port>      listen on/connect to port <port> (default 18515)"},
    {kAll, 'd', "ib-dev", "  -d, --ib-dev=<dev>     use IB device <dev> (default first device found)"},
    {kAll, 'i', "ib-port", "  -i, --ib-port=<port>   use port <port> of IB device (default 1)"},
    {kAll & ~kUd, 's', "size", "  -s, --size=<size>      size of message to exchange (default 4096)"},
    {kUd, 's', "size", "  -s, --size=<size>      size of message to exchange (default 2048)"},
    {kRc | kUc | kSrq, 'm', "mtu", "  -m, --mtu=<size>       path MTU (default 1024)"},
    {kXsrq, 'm', "mtu", "  -m, --mtu=<size>       path MTU (default 2048)"},
    {kXsrq, 'c', "clients", "  -c, --clients=<n>      number of clients (on server only, default 1)"},
    {kXsrq, 'n', "num_tests", "  -n, --num_tests=<n>    number of tests per client (default 5)"},
    {kSrq, 'q', "num-qp", "  -q, --num-qp=<num>     number of QPs to use (default 16)"},
    {kAll & ~kXsrq, 'r', "rx-depth",
     "  -r, --rx-depth=<dep>   number of receives to post at a time (default 500)"},
    {kRc | kUc | kUd, 'n', "iters", "  -n, --iters=<iters>    number of exchanges (default 1000)"},
    {kSrq, 'n', "iters", "  -n, --iters=<iters>    number of exchanges per QP(default 1000)"},
    {kAll & ~kUd, 'l', "sl", "  -l, --sl=<sl>          service level value"},
    {kUd, 'l', "sl", "  -l, --sl=<SL>          send messages with service level <SL> (default 0)"},
    {kAll, 'e', "events", "  -e, --events           sleep on CQ events (default poll)"},
    {kXsrq, 'o', "odp", "  -o, --odp\t\t    use on demand paging"},
    {kAll, 'g', "gid-idx", "  -g, --gid-idx=<gid index> local port gid index"},
    {kRc | kSrq, 'o', "odp", "  -o, --odp\t\t    use on demand paging"},
    {kRc, 'O', "iodp", "  -O, --iodp\t\t    use implicit on demand paging"},
    {kRc, 'P', "prefetch", "  -P, --prefetch\t    prefetch an ODP MR"},
    {kRc, 't', "ts", "  -t, --ts\t            get CQE with timestamp"},
    {kRc, 'c', "chk", "  -c, --chk\t            validate received buffer"},
    {kUc | kUd | kSrq, 'c', "chk", "  -c, --chk              validate received buffer"},
    {kRc, 'j', "dm", "  -j, --dm\t            use device memory"},
    {kRc, 'N', "new_send", "  -N, --new_send            use new post send WR API"},
};

Option mtu(char letter, const char* name, Settings& settings) {
  return {letter, name, true, [&settings](const char* word) {
            for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; ++mtu) {
              const int bytes = 128 << mtu;
              if (!read_number(word, bytes, bytes)) continue;
              settings.mtu = static_cast<ibv_mtu>(mtu);
              return Next::kGoOn;
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
  for (const ProgramOption& option : kOptions) {
    if ((option.programs & program.bit) != 0) std::printf("%s\n", option.usage);
  }
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

constexpr const char* kLocalGid = "Could not get local gid for gid index ";
constexpr uint32_t kSharedNeeds = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_SRQ_RECV;

}  // namespace

std::optional<Settings> read_settings(const PingpongProgram& program, int argc, char** argv) {
  Settings settings = program.defaults;
  std::vector<Option> options;
  const unsigned least_size = program.shared_receives ? 1 : 0;
  for (const ProgramOption& option : kOptions) {
    if ((option.programs & program.bit) != 0) options.push_back(taker_of(option, settings, least_size));
  }
  options.push_back(flag(0, "json", settings.json));
  options.push_back(flag(0, "help", settings.help, Next::kStop));
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

const PingpongProgram kRcPingpong = {
    .name = "ibv_rc_pingpong",
    .transport = "RC",
    .type = IBV_QPT_RC,
    .bit = kRc,
    .odp_refusal = "The device isn't ODP capable or does not support RC send and receive with ODP",
    .odp_needs = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV};

const PingpongProgram kUcPingpong = {
    .name = "ibv_uc_pingpong", .transport = "UC", .type = IBV_QPT_UC, .bit = kUc};

const PingpongProgram kUdPingpong = {.name = "ibv_ud_pingpong",
                                     .transport = "UD",
                                     .type = IBV_QPT_UD,
                                     .defaults = {.size = 1024},  // the usage text says 2048
                                     .bit = kUd,
                                     .gid_complaint = kLocalGid,
                                     .before_gid = ':'};

const PingpongProgram kSrqPingpong = {
    .name = "ibv_srq_pingpong",
    .transport = "RC",
    .type = IBV_QPT_RC,
    .shared_receives = true,
    .defaults = {.queue_pairs = 16},
    .bit = kSrq,
    .odp_refusal = "The device isn't ODP capable or does not support RC send, receive and srq with ODP",
    .odp_needs = kSharedNeeds,
    .gid_complaint = kLocalGid};

const PingpongProgram kXsrqPingpong = {
    .name = "ibv_xsrq_pingpong",
    .transport = "XRC",
    .type = IBV_QPT_XRC_SEND,
    .shared_receives = true,
    .defaults = {.iterations = 5},
    .bit = kXsrq,
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
