// SPDX-License-Identifier: Apache-2.0
// Compares a UdpPort's throughput and latency with plain UDP sockets. Raw and port runs alternate, and the
// best of each counts, because other load on a shared machine disturbs both.
#include <algorithm>
#include <string>

#include <CLI/CLI.hpp>

#include "base/format.h"
#include "net/measure.h"

using namespace verbena;
using namespace verbena::bench;

namespace {

struct Options {
  bool veth = false;
  bool ipv6 = false;
  std::string from;
  std::string to;
  int mtu = 9000;
  uint32_t payload = 4096;
  uint32_t window_kib = 128;
  double seconds = 0.5;
  uint32_t rounds = 3;
  uint32_t count = 20000;
};

Ends make_ends(const Options& options) {
  if (!options.from.empty()) return Ends::between(options.from, options.to);
  return options.veth ? Ends::veth(options.ipv6, options.mtu) : Ends::loopback(options.ipv6);
}

void print(const char* name, const Rate& rate) {
  verbena::print("{:<5} {:7.1f} Gb/s {:7.2f} Mpkt/s", name, rate.gigabits_per_second,
                 rate.packets_per_second / 1e6);
  if (rate.sender_ns > 0) {
    verbena::print("   busy per packet: sender {:.0f} ns, receiver {:.0f} ns", rate.sender_ns,
                   rate.receiver_ns);
  }
  verbena::print("{}\n", rate.lost == 0 ? "" : verbena::format("   lost {}", rate.lost));
}

void blast(const Options& options, bool with_raw, bool with_port) {
  const Ends ends = make_ends(options);
  Load load;
  load.packet_bytes = options.payload + roce::kBthBytes + roce::kIcrcBytes;
  load.window_bytes = options.window_kib << 10;
  load.duration = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds));
  Rate raw, port;
  const auto keep_best = [](Rate& best, const Rate& rate) {
    if (rate.gigabits_per_second > best.gigabits_per_second) best = rate;
  };
  for (uint32_t i = 0; i < options.rounds; ++i) {
    if (with_raw) keep_best(raw, raw_blast(ends, load));
    if (with_port) keep_best(port, port_blast(ends, load));
  }
  if (with_raw) print("raw", raw);
  if (with_port) print("port", port);
  if (with_raw && with_port) {
    verbena::print("ratio {:.2f}\n", port.gigabits_per_second / raw.gigabits_per_second);
  }
}

void ping_pong(const Options& options) {
  const Ends ends = make_ends(options);
  RoundTrip raw{1e12, 1e12}, port{1e12, 1e12};
  for (uint32_t i = 0; i < options.rounds; ++i) {
    const RoundTrip r = raw_round_trip(ends, options.count);
    if (r.median_ns < raw.median_ns) raw = r;
    const RoundTrip p = port_round_trip(ends, options.count);
    if (p.median_ns < port.median_ns) port = p;
  }
  verbena::print("raw   half round trip {:.2f} us, p99 {:.2f} us\n", raw.median_ns / 1e3, raw.p99_ns / 1e3);
  verbena::print("port  half round trip {:.2f} us, p99 {:.2f} us\n", port.median_ns / 1e3, port.p99_ns / 1e3);
  verbena::print("ratio {:.2f}\n", port.median_ns / raw.median_ns);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Compares a UdpPort with the kernel's UDP on this machine: throughput and latency");
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--veth", options.veth, "over a veth pair between two namespaces of its own (as root)");
  app.add_flag("--ipv6", options.ipv6, "IPv6 instead of IPv4");
  CLI::Option* from = app.add_option("--from", options.from, "address of the sender, one of this host's");
  from->needs(app.add_option("--to", options.to, "address of the receiver, one of this host's")->needs(from));
  app.add_option("--mtu", options.mtu, "MTU of the veth pair")->capture_default_str();
  app.add_option("--payload", options.payload, "RoCE payload of a packet: 4096 or 1024")
      ->capture_default_str()
      ->check(CLI::Range(4u, 8192u));
  app.add_option("--window", options.window_kib, "KiB in flight")->capture_default_str();
  app.add_option("--seconds", options.seconds, "length of one measurement")->capture_default_str();
  app.add_option("--rounds", options.rounds, "measurements; the best counts")->capture_default_str();
  app.add_option("--count", options.count, "round trips of a ping-pong")->capture_default_str();
  app.add_subcommand("raw", "bare sockets, UDP_SEGMENT and UDP_GRO")->callback([&] {
    blast(options, true, false);
  });
  app.add_subcommand("port", "UdpPort to UdpPort")->callback([&] { blast(options, false, true); });
  app.add_subcommand("both", "raw and port in turn, and their ratio")->callback([&] {
    blast(options, true, true);
  });
  app.add_subcommand("pingpong", "half round trips of both")->callback([&] { ping_pong(options); });
  CLI11_PARSE(app, argc, argv);
  return 0;
}
