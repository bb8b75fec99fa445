// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <verbena/verbs.hpp>

#include "commands/perf/raw_settings.h"
#include "commands/perf/sweep.h"

// The settings of a test: what the command line asks for, and what follows from it.
namespace verbena::perf {

enum class Verb : std::uint8_t { kSend, kWrite, kRead, kAtomic };
// kBurstLatency: latency while bursts of messages are under way.
enum class Measure : std::uint8_t { kLatency, kBandwidth, kBurstLatency };

// A test of perftest, which is chosen by its name.
struct Test {
  const char* name;
  Verb verb;
  Measure measure;
  bool is_raw = false;  // sends raw Ethernet frames
};
std::span<const Test> all_tests();
// Returns the test with this name, or nullptr.
const Test* find_test(std::string_view name);

// The bytes of the units of bandwidth.
inline constexpr double kMebibyte = 1 << 20, kGigabit = 1e9 / 8;

// Which sizes and how long a test runs.
enum class Extent : std::uint8_t { kOneSize, kAllSizes, kForever };
enum class Unit : std::uint8_t { kMebibytes, kGigabits };
// The form of the output: tables, or one figure for scripts.
enum class Output : std::uint8_t { kTables, kBandwidth, kMessageRate, kLatency };
enum class RateUnit : std::uint8_t { kMebibytes, kGigabits, kMessages };

inline constexpr std::uint32_t kDefaultDepth = 128;  // messages under way in bandwidth tests

struct Parameters {
  explicit Parameters(const Test& chosen);

  Test test;
  std::string server;  // empty: this end is the server
  std::uint16_t port = 18515;
  std::uint32_t clients = 1;  // clients that the server serves at once
  std::string source_address;
  bool exchanges_versions = true;
  bool uses_cm = false;  // the queue pairs are connected by librdmacm
  bool exchanges_by_cm = false;

  std::string device;
  std::uint8_t device_port = 1;
  std::optional<std::uint8_t> gid_index;
  bool wants_ipv6 = false;
  int mtu = 0;  // bytes; 0: that of the port

  verbena::transport transport = verbena::rc;
  bool is_multicast = false;
  ibv_gid group{};  // the multicast group in which this end receives; zero without one
  bool has_group = false;
  bool uses_srq = false;
  bool compares = false;  // atomics: compare and swap instead of fetch and add
  std::uint64_t size;
  bool has_size = false;
  std::uint64_t iterations;
  std::chrono::milliseconds duration{0};  // 0: `iterations` messages
  std::chrono::milliseconds margin{-1};   // at each end of `duration`, does not count; -1: a quarter
  Extent extent = Extent::kOneSize;
  bool is_bidirectional = false;
  bool is_reversed = false;
  bool sleeps = false;  // waits for events instead of polling
  bool warms_up = false;

  std::uint32_t queue_pairs = 1;
  std::uint32_t send_depth;
  std::uint32_t receive_depth;
  std::uint32_t moderation = 100;  // messages per completion
  bool has_moderation = false;
  std::uint32_t list_length = 1;  // requests that are posted together
  std::uint32_t receive_list_length = 1;
  std::optional<std::uint32_t> inline_size;
  int reads = 0;  // READs and atomics under way; 0: what the device allows

  std::uint8_t timeout = 14;
  std::uint8_t retries = 7;
  std::uint8_t service_level = 0;
  std::uint8_t traffic_class = 0;
  std::optional<std::uint8_t> type_of_service;
  std::uint16_t destination_lid = 0;
  bool has_region_per_pair = false;
  bool uses_huge_pages = false;
  bool on_demand = false;
  std::string mapped_file;
  std::uint64_t mapped_offset = 0;
  int wait_before_end = 0;  // seconds

  double rate_limit = 0;  // 0: none
  RateUnit rate_unit = RateUnit::kGigabits;
  std::uint32_t burst = 0;
  int latency_gap = 0;  // microseconds between messages

  Unit unit = Unit::kMebibytes;
  Output output = Output::kTables;
  bool has_peak = true;
  bool shows_both = false;
  bool shows_processor = false;
  bool in_cycles = false;
  bool shows_samples = false;
  bool shows_sorted_samples = false;
  double least_bandwidth = 0;
  double least_rate = 0;
  std::string json_file;  // of --out_json; empty: none
  bool json = false;      // one object on standard output
  bool shows_details = false;
  bool verifies = false;
  bool is_quiet = false;  // the caller shows the figures
  std::optional<Sweep> sweep;
  std::optional<RawSettings> raw;  // iff test.is_raw
  bool plots = false;
  std::string plot_file;  // empty: standard output

  bool is_client() const { return raw ? raw->is_client.value_or(false) : !server.empty(); }
  // Whether this end begins: it sends the first message, or all messages if only one end sends.
  bool initiates() const { return is_client() != is_reversed; }
  bool is(Verb verb) const { return test.verb == verb; }
  bool is_latency() const { return test.measure != Measure::kBandwidth; }
  bool is_burst_latency() const { return test.measure == Measure::kBurstLatency; }
  bool is_endless() const { return extent == Extent::kForever; }
  bool is_timed() const { return duration.count() != 0; }
  // Whether perftest shows the depth of this end's send queue, and that of its receive queue.
  bool shows_send_depth() const { return is_client() || shows_both_depths(); }
  bool shows_receive_depth() const { return is(Verb::kSend) && (!is_client() || shows_both_depths()); }
  bool shows_both_depths() const { return is_bidirectional || (raw && is_latency()); }
  // Whether this end posts requests, and whether it posts receives.
  bool sends() const { return initiates() || is_bidirectional || is_latency(); }
  bool receives() const { return is(Verb::kSend) && (!initiates() || is_bidirectional || is_latency()); }
  // Returns the number of receives that are posted for a queue pair before the first message. This is the
  // depth of its receive queue, or its equal share of a shared receive queue's depth. The number is rounded
  // down to whole lists (--recv_post_list).
  std::uint32_t receives_of_pair() const {
    const std::uint32_t most = uses_srq ? receive_depth / queue_pairs : receive_depth;
    return most / receive_list_length * receive_list_length;
  }
  // Whether the test needs percentiles and a histogram. For them, a test with a fixed duration reads the
  // clock at each message.
  bool wants_details() const { return json || shows_details || plots; }
  bool shows_tables() const { return output == Output::kTables && !json && !is_quiet; }
  bool is_datagram() const { return transport == verbena::ud; }
  bool joins_group() const { return is_multicast && receives(); }
  bool is_xrc() const { return transport == verbena::transport::xrc_send; }
  // Returns the number of queue pairs that this end makes. A queue pair of XRC only sends or only receives,
  // so an end that does both makes twice as many.
  std::uint32_t pairs_made() const {
    return is_xrc() && (is_bidirectional || is_latency()) ? 2 * queue_pairs : queue_pairs;
  }
  // Returns the bytes that the adapter adds to each posted message: the frame check sequence of raw Ethernet,
  // else 0.
  std::uint32_t added_bytes() const { return raw ? kFrameCheckBytes : 0; }

  // Derives the settings that depend on others. Throws std::invalid_argument if they contradict each other.
  void settle();

 private:
  void settle_group();
  void settle_sweep() const;
};

// Names as perftest prints them.
const char* name_of(Verb verb);
const char* name_of(verbena::transport transport);

}  // namespace verbena::perf
