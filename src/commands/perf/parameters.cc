// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/parameters.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace verbena::perf {
namespace {

constexpr std::array kTests{
    Test{"ib_send_lat", Verb::kSend, Measure::kLatency},
    Test{"ib_send_bw", Verb::kSend, Measure::kBandwidth},
    Test{"ib_write_lat", Verb::kWrite, Measure::kLatency},
    Test{"ib_write_bw", Verb::kWrite, Measure::kBandwidth},
    Test{"ib_read_lat", Verb::kRead, Measure::kLatency},
    Test{"ib_read_bw", Verb::kRead, Measure::kBandwidth},
    Test{"ib_atomic_lat", Verb::kAtomic, Measure::kLatency},
    Test{"ib_atomic_bw", Verb::kAtomic, Measure::kBandwidth},
    Test{"raw_ethernet_bw", Verb::kSend, Measure::kBandwidth, true},
    Test{"raw_ethernet_lat", Verb::kSend, Measure::kLatency, true},
    Test{"raw_ethernet_burst_lat", Verb::kSend, Measure::kBurstLatency, true},
};

constexpr std::uint64_t kLargestSize = 8 << 20;  // of --all
constexpr std::uint64_t kAtomicSize = 8;
constexpr std::uint32_t kReceives = 512;
constexpr std::uint32_t kMaxUnreliableReceives = 16000;
// Larger messages complete one by one: a completion for many of them would make the figures coarse.
constexpr std::uint64_t kLargestModerated = 8192;
constexpr std::uint64_t kMaxWithPeak = 20000;
constexpr ibv_gid kGroup{{0xff, 1, 0, 0, 0, 2, 201, 133}};  // perftest's, for the server

void require(bool holds, const char* sentence) {
  if (!holds) throw std::invalid_argument(sentence);
}

}  // namespace

std::span<const Test> all_tests() {
  return kTests;
}

const Test* find_test(std::string_view name) {
  const auto found =
      std::find_if(kTests.begin(), kTests.end(), [&](const Test& each) { return name == each.name; });
  return found != kTests.end() ? &*found : nullptr;
}

Parameters::Parameters(const Test& chosen)
    : test(chosen),
      size(chosen.verb == Verb::kAtomic ? kAtomicSize
           : is_latency()               ? 2
                                        : 65536),
      iterations(chosen.verb == Verb::kWrite && !is_latency() ? 5000 : 1000),
      send_depth(chosen.measure == Measure::kLatency ? 1 : kDefaultDepth),
      receive_depth(chosen.verb == Verb::kSend ? kReceives : 1) {
  if (!chosen.is_raw) return;
  raw.emplace();
  transport = verbena::transport::raw_packet;
}

void Parameters::settle() {
  if (raw) settle_raw(*this);
  settle_group();
  require(transport == verbena::rc || is_xrc() || is(Verb::kSend) ||
              (transport == verbena::uc && is(Verb::kWrite)),
          "-c: UC has SEND and WRITE, UD has only SEND");
  require(!is(Verb::kAtomic) || (size == kAtomicSize && extent != Extent::kAllSizes),
          "-s, -a: atomics have eight bytes");
  require(!is_latency() || list_length == 1, "-l: only bandwidth tests post lists");
  require(receive_list_length == 1 || (is(Verb::kSend) && !is_latency()),
          "--recv_post_list: only SEND bandwidth tests post lists of receives");
  require(!is_latency() || queue_pairs == 1, "-q: latency tests have one queue pair");
  require(!is_latency() || !is_bidirectional, "-b: only bandwidth tests are bidirectional");
  require(!uses_srq || is_xrc() || is(Verb::kSend), "--use-srq: only SEND takes receives");
  if (is_xrc()) uses_srq = true;
  require(!uses_srq || !is(Verb::kSend) || queue_pairs <= receive_depth,
          "-r: a shared queue needs a receive for each queue pair");
  require(!sleeps || !is(Verb::kWrite), "-e: the target of a WRITE has no events");
  require(!uses_cm || transport == verbena::rc || is_datagram(), "-R: librdmacm connects RC and UD");
  require(!type_of_service || uses_cm || raw, "-T: only with -R");
  require(!is_endless() || !is_latency(), "--run_infinitely: only for bandwidth tests");
  require(!is_endless() || !(is_bidirectional && is(Verb::kSend)),
          "--run_infinitely: not for SEND in both directions");
  require(!is_endless() || (!json && !plots),
          "--run_infinitely: not with --json or --plot, which need an end");
  require(rate_limit == 0 || is_burst_latency() ||
              (!is_latency() && !is(Verb::kAtomic) && !(is_bidirectional && is(Verb::kSend))),
          "--rate_limit: only for SEND, WRITE and READ bandwidth, in one direction");
  require(latency_gap == 0 || (is_latency() && !is_burst_latency()),
          "--latency_gap: only for latency tests of one message at a time");

  require(clients == 1 || !(is_client() || is_latency() || raw),
          "--clients: only for the server of a bandwidth test");
  require(clients == 1 || !(uses_cm || exchanges_by_cm || is_endless() || sweep || plots || is_multicast ||
                            !mapped_file.empty()),
          "--clients: not with -g, -R, -z, --mmap, --plot, --run_infinitely or --sweep");

  require(!verifies || (transport == verbena::rc && !uses_srq),
          "--verify: only over RC, without a shared receive queue");
  require(!verifies || (!is_timed() && !warms_up), "--verify: not with -D or --perform_warm_up");
  require(json_file.empty() || (clients == 1 && !sweep),
          "--out_json: not with --clients or --sweep, which have --json");
  require(!plots || output == Output::kTables, "--plot: not with --output, which prints one figure");
  require(!plots || !json || !plot_file.empty(), "--plot: with --json, name a file: --plot FILE.svg");
  if (sweep) settle_sweep();

  if (is_endless()) {
    if (!is_timed()) duration = std::chrono::seconds(5);
    margin = std::chrono::seconds(0);
  }
  if (is_timed()) {
    require(!sleeps, "-D: not together with -e");
    require(extent != Extent::kAllSizes, "-D: not together with -a");
    if (margin.count() < 0) margin = duration / 4;
    require(duration > 2 * margin, "-f: the margins are longer than the duration");
    has_peak = false;
  } else {
    const auto limit = [&](std::uint32_t depth) {
      return static_cast<std::uint32_t>(std::min<std::uint64_t>(depth, iterations));
    };
    send_depth = limit(send_depth);
    if (is(Verb::kSend)) {
      if ((transport == verbena::uc || is_datagram()) && receive_depth == kReceives)
        receive_depth = kMaxUnreliableReceives;
      receive_depth = limit(receive_depth);
    }
    require(iterations % list_length == 0 && iterations % receive_list_length == 0,
            "-n: not a multiple of the list's length");
    if (iterations > kMaxWithPeak) has_peak = false;
  }
  if (is(Verb::kSend) && !initiates() && !is_bidirectional) has_peak = false;
  if (is_latency()) has_peak = false;

  if (size > kLargestModerated && !is_datagram() && extent != Extent::kAllSizes && !sleeps && !has_moderation)
    moderation = 1;
  moderation = std::min(moderation, send_depth);
  if (list_length > 1) {
    require(list_length <= send_depth, "-l: longer than the send queue (-t)");
    if (!has_moderation) moderation = list_length;
    require(list_length % moderation == 0, "-Q: the list's length is not a multiple of it");
  }
  if (extent == Extent::kAllSizes) size = kLargestSize;
  // As in perftest: an odd number of receives is rounded up.
  if (is(Verb::kSend) && extent == Extent::kOneSize) receive_depth += receive_depth % 2;
  require(receive_list_length == 1 || receives_of_pair() != 0,
          "--recv_post_list: longer than the receive queue (-r)");
  if (burst == 0) burst = send_depth;
  exchanges_by_cm = exchanges_by_cm || uses_cm;
}

void Parameters::settle_group() {
  require(is_multicast || !has_group, "-M: only with -g");
  if (!is_multicast) return;
  require(is(Verb::kSend) && !raw, "-g: only for ib_send_bw and ib_send_lat; raw Ethernet has --raw_mcast");
  require(!is_bidirectional && queue_pairs == 1, "-g: one queue pair sends, and not in both directions");
  require(!uses_cm, "-g: not with -R");
  transport = verbena::ud;  // as perftest, whatever -c says
  if (has_group) return;
  group = kGroup;
  if (is_client()) group.raw[sizeof group.raw - 1] = 1;
}

void Parameters::settle_sweep() const {
  require(extent == Extent::kOneSize,
          "--sweep: not with -a or --run_infinitely; --sweep=sizes has its sizes");
  require(!uses_cm && !exchanges_by_cm, "--sweep: not with -R or -z; its exchange goes by TCP");
  require(!is_multicast, "--sweep: not with -g");
  require(exchanges_versions, "--sweep: not with --dont_xchg_versions; the versions show who can sweep");
  require(!is(Verb::kAtomic) || sweep->sizes.empty(), "--sweep: atomics have eight bytes, not several sizes");
  require(!is_latency() || (sweep->queue_pairs.empty() && sweep->depths.empty()),
          "--sweep: latency tests have one queue pair and one message under way; only sizes vary");
  require(output == Output::kTables, "--sweep: not with --output, which prints one figure");
}

const char* name_of(Verb verb) {
  constexpr std::array kNames{"Send", "RDMA_Write", "RDMA_Read", "Atomic"};
  return kNames[static_cast<std::size_t>(verb)];
}

const char* name_of(verbena::transport transport) {
  switch (transport) {
    case verbena::rc:
      return "RC";
    case verbena::uc:
      return "UC";
    case verbena::ud:
      return "UD";
    case verbena::transport::xrc_send:
      return "XRC";
    default:
      return "RawEth";
  }
}

}  // namespace verbena::perf
