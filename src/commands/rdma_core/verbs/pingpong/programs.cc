// SPDX-License-Identifier: Apache-2.0
// The tables of the five pingpong programs, with their differences.
#include "commands/rdma_core/verbs/programs.h"

#include "commands/rdma_core/verbs/pingpong/pingpong.h"
#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {
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
