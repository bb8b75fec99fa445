// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "commands/perf/device.h"
#include "commands/perf/endpoint.h"
#include "commands/perf/exchange.h"
#include "commands/perf/figures.h"
#include "commands/perf/parameters.h"
#include "commands/perf/perftest_file.h"

// Prints tables in perftest's form: scripts that read perftest's tables read these, too.
namespace verbena::perf {

// Measures two things between start() and stop(): the part of the processors' time that was busy
// (--cpu_util), and the processor time of this process.
class ProcessorUse {
 public:
  void start() { began_ = now(); }
  void stop() { ended_ = now(); }
  double percent() const;
  // Returns the processor time of this process between start() and stop(), in microseconds per message.
  double time_of_each(std::uint64_t messages) const {
    return (ended_.own - began_.own) * 1e6 / static_cast<double>(messages);
  }

 private:
  struct Times {
    std::uint64_t busy = 0;
    std::uint64_t idle = 0;
    double own = 0;  // seconds
  };
  static Times now();
  Times began_;
  Times ended_;
};

class Report {
 public:
  explicit Report(const Parameters& parameters) : parameters_(parameters), file_(parameters) {}

  void waiting() const;
  // Prints the settings of a test, and begins the file of --out_json. `mtu`: in bytes.
  void settings(const Device& device, std::uint32_t mtu, std::uint32_t inline_size);
  void address(const Keys& keys, bool is_local) const;
  void heading() const;
  // Print a row, and write its figures into the file of --out_json.
  void row(const LatencyFigures& figures, const ProcessorUse& processor) const;
  void row(const BandwidthFigures& figures, const ProcessorUse& processor) const;
  // Prints both directions of a bidirectional test (--report-both).
  void directions(const BandwidthFigures& own, const BandwidthFigures& peer,
                  const ProcessorUse& processor) const;
  void line() const;
  // Returns whether the figures are within the limits of -w and -y, and complains if they are not.
  bool check_limits(const BandwidthFigures& figures) const;

 private:
  bool is_full() const { return parameters_.shows_tables(); }
  // Returns the busy part of the processors' time in percent, or nullopt without --cpu_util.
  std::optional<double> busy_part(const ProcessorUse& processor) const;
  void print(const BandwidthFigures& figures, const ProcessorUse& processor) const;
  void end_row(const ProcessorUse& processor) const;
  void samples(const LatencyFigures& figures) const;

  const Parameters& parameters_;
  PerftestFile file_;
};

}  // namespace verbena::perf
