// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "commands/perf/device.h"
#include "commands/perf/figures.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Returns the name of a test as perftest shows it, such as "RDMA_Write BW Test", with a separator between the
// words.
std::string title(const Parameters& parameters, char separator);
const char* on_off(bool is_on);

// Writes the file of --out_json, for scripts that read perftest's file. The names in it are those of perftest
// 24 and later. Earlier versions write names without quotation marks, which is not JSON. With several sizes,
// the file has only the last size, as perftest's file does. Methods throw std::runtime_error if the file
// cannot be written.
class PerftestFile {
 public:
  explicit PerftestFile(const Parameters& parameters) : parameters_(parameters) {}

  // Creates the file. `mtu`: in bytes.
  void begin(const Device& device, std::uint32_t mtu, std::uint32_t inline_size);
  // Both write() functions replace the figures in the file. `busy`: the part of the processors' time that was
  // busy, in percent; nullopt without --cpu_util. REQUIRES: begin() has been called.
  void write(const LatencyFigures& figures, std::optional<double> busy) const;
  void write(const BandwidthFigures& figures, std::optional<double> busy) const;

 private:
  void write(nlohmann::ordered_json results, std::optional<double> busy) const;

  const Parameters& parameters_;
  nlohmann::ordered_json information_;
};

}  // namespace verbena::perf
