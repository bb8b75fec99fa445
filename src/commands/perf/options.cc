// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/options.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>
#include <string_view>

#include <arpa/inet.h>

#include "base/format.h"
#include "commands/perf/option_row.h"
#include "commands/perf/size_text.h"
#include "commands/rdma_core/common/options.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::perf {
namespace {

using rdma_core::Next;
using rdma_core::Option;

double fraction(const char* option, const char* value) {
  char* end = nullptr;
  const double read = std::strtod(value, &end);
  if (end == value || *end != 0 || !(read > 0)) refuse(option, value, "a positive number");
  return read;
}

// A size with an optional K or M behind it.
std::uint64_t size_of(const char* value) {
  const auto read = read_size(value);
  if (!read) refuse("-s", value, verbena::format("a number of bytes from 1 to {}", kLargestMessage));
  return *read;
}

// A multicast group, also in perftest's form: sixteen numbers.
ibv_gid group_of(const char* value) {
  ibv_gid group{};
  if (::inet_pton(AF_INET6, value, group.raw) == 1) return group;
  const char* rest = value;
  for (std::uint8_t& byte : group.raw) {
    char* end = nullptr;
    const unsigned long read = std::strtoul(rest, &end, 0);
    const bool is_last = &byte == std::end(group.raw) - 1;
    if (end == rest || read > 255 || *end != (is_last ? '\0' : ':'))
      refuse("-M", value,
             "a GID such as ff0e::1 or ::ffff:239.1.2.3, or its 16 bytes as numbers between colons");
    byte = static_cast<std::uint8_t>(read);
    rest = end + 1;
  }
  return group;
}

constexpr Word<verbena::transport> kTransports[] = {
    {"RC", verbena::rc}, {"UC", verbena::uc}, {"UD", verbena::ud}, {"XRC", verbena::transport::xrc_send}};
constexpr Word<bool> kAtomics[] = {{"FETCH_AND_ADD", false}, {"CMP_AND_SWAP", true}};
constexpr Word<Output> kOutputs[] = {
    {"bandwidth", Output::kBandwidth}, {"message_rate", Output::kMessageRate}, {"latency", Output::kLatency}};
constexpr Word<RateUnit> kRateUnits[] = {
    {"M", RateUnit::kMebibytes}, {"g", RateUnit::kGigabits}, {"p", RateUnit::kMessages}};
constexpr Word<bool> kLinks[] = {{"Ethernet", true}};
constexpr Word<bool> kRateTypes[] = {{"SW", true}};

constexpr long long kMaxMessages = 100000000;

// In the order of the help.
constexpr Row kRows[] = {
    {'a', "all", nullptr, "Run sizes from 2 till 2^23", TAKE(p.extent = Extent::kAllSizes)},
    {'A', "atomic_type", "type", "FETCH_AND_ADD or CMP_AND_SWAP (default FETCH_AND_ADD)",
     TAKE(only_for(p.is(Verb::kAtomic), "-A", "atomics"), p.compares = one_of("-A", value, kAtomics))},
    {'b', "bidirectional", nullptr, "Measure both directions at once", TAKE(p.is_bidirectional = true)},
    {'c', "connection", "RC/UC/UD/XRC", "Connection type (default RC)",
     TAKE(p.transport = one_of("-c", value, kTransports))},
    {'C', "report-cycles", nullptr, "Report latencies in cycles of the processor's clock",
     TAKE(only_for(p.is_latency(), "-C", "latency tests"), p.in_cycles = true)},
    {'d', "ib-dev", "dev", "Use this device (default: the first with an active port)",
     TAKE(p.device = value)},
    {'D', "duration", "seconds", "Run for this time instead of a number of messages",
     TAKE(p.duration = std::chrono::seconds(number<int>("-D", value, 1, 1000000)))},
    {'e', "events", nullptr, "Sleep until there are completions (default: poll)", TAKE(p.sleeps = true)},
    {'f', "margin", "seconds", "Time at both ends of the duration that does not count (default a quarter)",
     TAKE(p.margin = std::chrono::seconds(number<int>("-f", value, 0, 1000000)))},
    {'F', "CPU-freq", nullptr, "Accepted: the clock does not depend on the processor's frequency", TAKE()},
    {'g', "mcg", nullptr, "Send datagrams to a multicast group", TAKE(p.is_multicast = true)},
    {'H', "report-histogram", nullptr, "Print all latencies, sorted",
     TAKE(only_for(p.is_latency(), "-H", "latency tests"), p.shows_sorted_samples = true)},
    {'i', "ib-port", "port", "Use this port of the device (default 1)",
     TAKE(p.device_port = number<std::uint8_t>("-i", value, 1, 255))},
    {'I', "inline_size", "size", "Send messages up to this size inline (default 0)",
     TAKE(only_for(p.is(Verb::kSend) || p.is(Verb::kWrite), "-I", "SEND and WRITE"),
          p.inline_size = number<std::uint32_t>("-I", value, 0, 912))},
    {'l', "post_list", "length", "Post this many requests at once",
     TAKE(p.list_length = number<std::uint32_t>("-l", value, 1, 15000))},
    {'m', "mtu", "bytes", "Path MTU, 256 to 4096 (default: the port's); for frames up to 9600 (default 1518)",
     TAKE(p.mtu = p.raw ? number<int>("-m", value, 64, 9600) : number<int>("-m", value, 256, 4096))},
    {'M', "MGID", "gid", "Receive in this group, with -g; latency: another one at each end",
     TAKE(p.group = group_of(value), p.has_group = true)},
    {'n', "iters", "number", "Number of messages, at least 5 (default 1000, WRITE bandwidth 5000)",
     TAKE(p.iterations = number<std::uint64_t>("-n", value, 5, kMaxMessages))},
    {'N', "noPeak", nullptr, "Do not calculate the peak bandwidth",
     TAKE(only_for(!p.is_latency(), "-N", "bandwidth tests"), p.has_peak = false)},
    {'o', "outs", "number", "READs or atomics under way (default: what the device allows)",
     TAKE(only_for(p.is(Verb::kRead) || p.is(Verb::kAtomic), "-o", "READ and atomics"),
          p.reads = number<int>("-o", value, 1, 255))},
    {'p', "port", "port", "Listen on or connect to this TCP port (default 18515)",
     TAKE(p.port = number<std::uint16_t>("-p", value, 1, 65535))},
    {'q', "qp", "number", "Number of queue pairs (default 1)",
     TAKE(p.queue_pairs = number<std::uint32_t>("-q", value, 1, 16384))},
    {'Q', "cq-mod", "number", "Messages per completion (default 100, 1 above 8 KiB)",
     TAKE(p.moderation = number<std::uint32_t>("-Q", value, 1, 1024), p.has_moderation = true)},
    {'r', "rx-depth", "depth", "Receives that are posted (default 512)",
     TAKE(p.receive_depth = number<std::uint32_t>("-r", value, 1, p.is(Verb::kSend) ? 16384 : 1))},
    {'s', "size", "size", "Bytes of a message, also with K or M (default 65536, latency 2)",
     TAKE(p.size = size_of(value), p.has_size = true)},
    {'R', "rdma_cm", nullptr, "Connect the queue pairs by librdmacm, and exchange data by it; for both ends",
     TAKE(p.uses_cm = true)},
    {'S', "sl", "sl", "Service level (default 0)",
     TAKE(p.service_level = number<std::uint8_t>("-S", value, 0, 15))},
    {'t', "tx-depth", "depth", "Messages under way (default 128)",
     TAKE(p.send_depth = number<std::uint32_t>("-t", value, 1, 15000))},
    {'T', "tos", "type", "Type of service, with -R or raw Ethernet",
     TAKE(p.type_of_service = number<std::uint8_t>("-T", value, 0, 255))},
    {'u', "qp-timeout", "timeout", "Time until a repetition, 4 us * 2^timeout (default 14)",
     TAKE(p.timeout = number<std::uint8_t>("-u", value, 0, 31))},
    {'U', "report-unsorted", nullptr, "Print all latencies in their order",
     TAKE(only_for(p.is_latency(), "-U", "latency tests"), p.shows_samples = true)},
    {'w', "limit_bw", "value", "Fail if the bandwidth is less",
     TAKE(p.least_bandwidth = fraction("-w", value))},
    {'x', "gid-index", "index",
     "Use the GID with this index (default: the first of RoCEv2, IPv4 before IPv6)",
     TAKE(p.gid_index = number<std::uint8_t>("-x", value, 0, 255))},
    {'y', "limit_msgrate", "value", "Fail if the message rate is less",
     TAKE(p.least_rate = fraction("-y", value))},
    {'z', "com_rdma_cm", nullptr, "Exchange data by librdmacm; for both ends",
     TAKE(p.exchanges_by_cm = true)},
    {0, "burst_size", "number", "Messages that --rate_limit lets go at once (default: --tx-depth)",
     TAKE(p.burst = number<std::uint32_t>("--burst_size", value, 1, 15000))},
    {0, "clients", "number", "Serve this many clients at once, and show each and their sum (bandwidth)",
     TAKE(p.clients = number<std::uint32_t>("--clients", value, 1, 256))},
    {0, "cpu_util", nullptr, "Show how busy the processors were; with -D", TAKE(p.shows_processor = true)},
    {0, "details", nullptr, "Show percentiles up to 99.999 %, a histogram, and processor time per message",
     TAKE(p.shows_details = true)},
    {0, "disable_pcie_relaxed", nullptr, "Accepted: memory is registered without relaxed ordering", TAKE()},
    {0, "dlid", "lid", "Destination LID",
     TAKE(p.destination_lid = number<std::uint16_t>("--dlid", value, 0, 65535))},
    {0, "dont_xchg_versions", nullptr, "Do not exchange versions and MTU; for both ends",
     TAKE(p.exchanges_versions = false)},
    {0, "force-link", "Ethernet", "Accepted: the link of a Verbena device",
     TAKE(one_of("--force-link", value, kLinks))},
    {0, "inline_recv", "size", "Accepted: receives are not inline",
     TAKE(number<int>("--inline_recv", value, 0, 65536))},
    {0, "ipv6", nullptr, "Use a GID of IPv6", TAKE(p.wants_ipv6 = true)},
    {0, "json", nullptr, "Print only one JSON object", TAKE(p.json = true)},
    {0, "latency_gap", "usec", "Wait between messages of a latency test",
     TAKE(p.latency_gap = number<int>("--latency_gap", value, 0, 1000000))},
    {0, "mmap", "file", "Use a file as the buffer", TAKE(p.mapped_file = value)},
    {0, "mmap-offset", "offset", "Where the buffer begins in the file",
     TAKE(p.mapped_offset =
              number<std::uint64_t>("--mmap-offset", value, 0, std::numeric_limits<long long>::max()))},
    {0, "mr_per_qp", nullptr, "Register memory for each queue pair", TAKE(p.has_region_per_pair = true)},
    {0, "odp", nullptr, "Register memory for paging on demand", TAKE(p.on_demand = true)},
    {0, "out_json", nullptr, "Write the settings and figures to a file, with perftest's names",
     TAKE(if (p.json_file.empty()) p.json_file = "perftest_out.json")},
    {0, "out_json_file", "file", "Name of that file (default: perftest_out.json in the working directory)",
     TAKE(p.json_file = value)},
    {0, "output", "what", "Print only one figure: bandwidth, message_rate or latency",
     TAKE(p.output = one_of("--output", value, kOutputs))},
    {0, "perform_warm_up", nullptr, "Send some messages before measuring; READ, WRITE, atomic bandwidth",
     TAKE(p.warms_up = true)},
    {0, "pkey_index", "index", "Accepted: a Verbena device has one partition key, 0",
     TAKE(number<int>("--pkey_index", value, 0, 0))},
    {0, "plot", nullptr, "Draw charts in the terminal, or with FILE.svg behind it in this file",
     TAKE(p.plots = true)},
    {0, "rate_limit", "rate", "Send at most at this rate, in Gb/s or --rate_units",
     TAKE(p.rate_limit = fraction("--rate_limit", value))},
    {0, "rate_limit_type", "SW", "Accepted: the program limits the rate, not the adapter",
     TAKE(one_of("--rate_limit_type", value, kRateTypes))},
    {0, "rate_units", "M/g/p", "Unit of --rate_limit: MiB/s, Gb/s or messages per second",
     TAKE(p.rate_unit = one_of("--rate_units", value, kRateUnits))},
    {0, "recv_post_list", "length", "Post this many receives at once",
     TAKE(p.receive_list_length = number<std::uint32_t>("--recv_post_list", value, 1, 16384))},
    {0, "report-both", nullptr, "With -b: show both directions, too", TAKE(p.shows_both = true)},
    {0, "report_gbits", nullptr, "Report Gb/s instead of MiB/s", TAKE(p.unit = Unit::kGigabits)},
    {0, "retry_count", "number", "Repetitions of a packet, with -R (default 7)",
     TAKE(p.retries = number<std::uint8_t>("--retry_count", value, 0, 7))},
    {0, "reversed", nullptr, "Let the server send to the client; for both ends", TAKE(p.is_reversed = true)},
    {0, "run_infinitely", nullptr, "Print a row each --duration (default 5 s) until it is interrupted",
     TAKE(p.extent = Extent::kForever)},
    {0, "source_ip", "address", "Own address for the exchange", TAKE(p.source_address = value)},
    {0, "sweep", "what", "Run all of sizes, qps, depths; also with values: sizes=64-1M,qps=1/4",
     TAKE(p.sweep = Sweep::parse(value))},
    {0, "tclass", "class", "Traffic class",
     TAKE(p.traffic_class = number<std::uint8_t>("--tclass", value, 0, 255))},
    {0, "use-srq", nullptr, "Use a shared receive queue of --rx-depth receives", TAKE(p.uses_srq = true)},
    {0, "use_hugepages", nullptr, "Allocate huge pages", TAKE(p.uses_huge_pages = true)},
    {0, "use_old_post_send", nullptr, "Accepted: ibv_post_send(3) is what is used", TAKE()},
    {0, "verify", nullptr, "Check each byte of what arrives, over RC; for both ends",
     TAKE(p.verifies = true)},
    {0, "wait_destroy", "seconds", "Wait before the end",
     TAKE(p.wait_before_end = number<int>("--wait_destroy", value, 0, 1000000))},
};

// Options of perftest that this program refuses, and the reason.
struct Refused {
  char letter;
  const char* name;
  bool has_value;
  const char* reason;
};
constexpr const char* kHardware = "only adapters by Mellanox have it";
constexpr const char* kOnePort = "a Verbena device has one port";
constexpr Refused kRefused[] = {
    {0, "log_dci_streams", true, kHardware},
    {0, "log_active_dci_streams", true, kHardware},
    {0, "aes_xts", false, kHardware},
    {0, "encrypt_on_tx", false, kHardware},
    {0, "sig_before", false, kHardware},
    {0, "aes_block_size", true, kHardware},
    {0, "data_enc_keys_number", true, kHardware},
    {0, "kek_path", true, kHardware},
    {0, "credentials_path", true, kHardware},
    {0, "data_enc_key_app_path", true, kHardware},
    {0, "typical_pkt_size", true, kHardware},
    {'G', "use_rss", false, kHardware},
    {'O', "dualport", false, kOnePort},
    {0, "report-per-port", false, kOnePort},
    {'L', "hop_limit", true, "perftest has it for raw Ethernet only"},
    {'W', "report-counters", true, "'verbena metrics' and 'verbena top' show the counters"},
    {'X', "vector", true, "a Verbena device has one completion vector"},
};

std::string shown(char letter, const char* name) {
  return letter != 0 ? verbena::format("-{}, --{}", letter, name) : verbena::format("--{}", name);
}

// Whether an option of raw Ethernet tests has this letter or name.
bool is_raw_option(char letter, const char* name) {
  return std::ranges::any_of(raw_rows(), [&](const Row& each) {
    return (letter != 0 && each.letter == letter) || std::strcmp(each.name, name) == 0;
  });
}

Option refusing(char letter, const char* name, bool has_value, const char* reason) {
  return {letter, name, has_value,
          [=](const char*) -> Next { throw std::invalid_argument(shown(letter, name) + ": " + reason); }};
}

// Tests for raw Ethernet give some options another meaning.
std::vector<Option> table(Parameters& parameters, NoTest& reason) {
  std::vector<Option> all;
  const bool is_raw = parameters.raw.has_value();
  const auto add = [&](const Row& each) {
    all.push_back({each.letter, each.name, each.value != nullptr,
                   [&parameters, take = each.take](const char* value) { return take(parameters, value); }});
  };
  for (const Row& each : kRows) {
    if (!is_raw || !is_raw_option(each.letter, each.name)) add(each);
  }
  for (const Refused& each : kRefused) {
    if (!is_raw || !is_raw_option(each.letter, each.name))
      all.push_back(refusing(each.letter, each.name, each.has_value, each.reason));
  }
  if (is_raw) std::ranges::for_each(raw_rows(), add);
  const auto stop = [&reason](NoTest why) {
    return [&reason, why](const char*) {
      reason = why;
      return Next::kStop;
    };
  };
  all.push_back({'h', "help", false, stop(NoTest::kHelp)});
  all.push_back({'V', "version", false, stop(NoTest::kVersion)});
  return all;
}

void print_row(char letter, const char* name, const char* value, const char* help) {
  const std::string given = value != nullptr ? verbena::format("=<{}>", value) : "";
  if (letter != 0) {
    std::printf("  -%c, --%s%s  %s\n", letter, name, given.c_str(), help);
  } else {
    std::printf("      --%s%s  %s\n", name, given.c_str(), help);
  }
}

}  // namespace

void print_options() {
  for (const Row& each : kRows) print_row(each.letter, each.name, each.value, each.help);
  std::printf("\nOptions of raw Ethernet tests:\n");
  for (const Row& each : raw_rows()) print_row(each.letter, each.name, each.value, each.help);
  std::printf("\nOther options:\n");
  print_row('h', "help", nullptr, "Show this help");
  print_row('V', "version", nullptr, "Show the version of the protocol between the two ends");
}

namespace {

// --plot may have a file, as no option of getopt_long(3) without a `=` may: takes it from the operands.
void take_plot_file(Parameters& parameters, std::vector<std::string>& operands) {
  if (!parameters.plots) return;
  const auto found =
      std::ranges::find_if(operands, [](const std::string& each) { return each.ends_with(".svg"); });
  if (found == operands.end()) return;
  parameters.plot_file = *found;
  operands.erase(found);
}

}  // namespace

Parsed parse(const Test& test, const std::string& program, int argc, char** argv) {
  Parameters parameters(test);
  NoTest reason = NoTest::kWrong;
  rdma_core::Parsed parsed = rdma_core::parse(argc, argv, table(parameters, reason));
  if (parsed.next == Next::kStop) return {std::nullopt, reason};
  if (parsed.next == Next::kWrong) return {std::nullopt, NoTest::kWrong};
  take_plot_file(parameters, parsed.operands);
  if (parsed.operands.size() > 1) {
    rdma_core::complain(
        verbena::format("'{}' is one word too many: {} [OPTION...] [SERVER]", parsed.operands[1], program));
    return {std::nullopt, NoTest::kWrong};
  }
  if (!parsed.operands.empty()) parameters.server = parsed.operands.front();
  if (parameters.sweep) {
    Parameters(parameters).settle();  // each point derives its settings
  } else {
    parameters.settle();
  }
  return {std::move(parameters), reason};
}

}  // namespace verbena::perf
