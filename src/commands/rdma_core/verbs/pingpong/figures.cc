// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "commands/rdma_core/verbs/pingpong/pingpong.h"

namespace verbena::rdma_core {

void ReceiveClock::received(uint64_t timestamp) {
  if (previous_) {
    const uint64_t passed = (timestamp - *previous_) & mask_;  // correct across a wrap
    max_ = std::max(max_, passed);
    least_ = std::min(least_, passed);
    total_ += passed;
    ++count_;
  }
  previous_ = timestamp;
}

void describe(const PingpongProgram& program, const Settings& settings, ibv_device* device, Output& output) {
  constexpr unsigned kBase = 7;  // IBV_MTU_256 is 1
  auto& object = output.object();
  object["program"] = program.name;
  object["transport"] = program.transport;
  object["role"] = settings.serves() ? "server" : "client";
  if (!settings.serves()) object["server"] = settings.server;
  object["tcp_port"] = settings.tcp_port;
  object["device"] = ibv_get_device_name(device);
  object["ib_port"] = settings.ib_port;
  if (settings.gid_index >= 0) object["gid_index"] = settings.gid_index;
  object["size"] = settings.size;
  if (program.type != IBV_QPT_UD) object["mtu"] = 1U << (settings.mtu + kBase);
  object["events"] = settings.events;
}

Figures add_figures(const Settings& settings, std::chrono::duration<double> took, Output& output) {
  const double microseconds = took.count() * 1e6;
  const unsigned long long bytes = 2ULL * settings.size * settings.clients * settings.iterations;
  const Figures figures = {bytes, took.count(), static_cast<double>(bytes) * 8. / microseconds,
                           microseconds / settings.iterations};
  auto& object = output.object();
  object["iterations"] = settings.iterations;
  object["bytes"] = figures.bytes;
  object["seconds"] = figures.seconds;
  object["mbit_per_second"] = figures.megabits;
  object["usec_per_iteration"] = figures.microseconds_each;
  return figures;
}

void report(const Settings& settings, std::chrono::duration<double> took, const ReceiveClock* clock,
            Output& output) {
  const Figures all = add_figures(settings, took, output);
  output.text("%lld bytes in %.2f seconds = %.2f Mbit/sec\n", all.bytes, all.seconds, all.megabits);
  output.text("%d iters in %.2f seconds = %.2f usec/iter\n", static_cast<int>(settings.iterations),
              all.seconds, all.microseconds_each);
  if (clock == nullptr || clock->count() == 0) return;
  output.text("Max receive completion clock cycles = %llu\n", static_cast<unsigned long long>(clock->most()));
  output.text("Min receive completion clock cycles = %llu\n",
              static_cast<unsigned long long>(clock->least()));
  output.text("Average receive completion clock cycles = %f\n", clock->average());
  output.object()["receive_clock_cycles"] = {
      {"max", clock->most()}, {"min", clock->least()}, {"average", clock->average()}};
}

}  // namespace verbena::rdma_core
