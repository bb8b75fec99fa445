// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/configuration.h"

#include <fstream>
#include <string>

#include "base/only_one.h"
#include "libraries/rsockets/flow_control.h"

namespace verbena::rsockets {
namespace {

// Reads a number from a file, and clamps it to the given range. Nothing if there is no file or no valid
// number.
std::optional<uint32_t> number_in(const std::string& path, uint32_t least, uint32_t most) {
  std::ifstream file(path);
  int64_t value;
  if (!(file >> value) || value < 0) return std::nullopt;
  return static_cast<uint32_t>(std::clamp<int64_t>(value, least, most));
}

}  // namespace

Configuration Configuration::read(const char* folder) {
  constexpr uint32_t kMaxBytes = 1u << 30;  // memory for one connection
  Configuration result;
  const struct {
    const char* name;
    uint32_t& value;
    uint32_t least, most;
  } numbers[] = {
      {"mem_default", result.receive_bytes, 2, kMaxBytes},
      {"wmem_default", result.send_bytes, 2 * kSendLowWater, kMaxBytes},
      {"sqsize_default", result.send_queue, 0, kMaxQueueEntries},
      {"rqsize_default", result.receive_queue, 0, kMaxQueueEntries},
      {"inline_default", result.inline_bytes, 0, kMaxQueueEntries},
      {"iomap_size", result.iomap_entries, 0, kMaxIomapEntries},
  };
  const std::string prefix = std::string(folder) + "/";
  for (const auto& number : numbers) {
    if (const auto value = number_in(prefix + number.name, number.least, number.most)) number.value = *value;
  }
  result.iomap_entries = representable_iomap_entries(result.iomap_entries);
  constexpr uint32_t kMaxTime = 1u << 30;
  if (const auto time = number_in(prefix + "polling_time", 0, kMaxTime)) {
    result.polling_time = std::chrono::microseconds(*time);
  }
  if (const auto time = number_in(prefix + "wake_up_interval", 1, kMaxTime)) {
    result.wake_up_interval = std::chrono::milliseconds(*time);
  }
  return result;
}

const Configuration& configuration() {
  static constinit OnlyOne<Configuration> read;
  return read.get([] { return new Configuration(Configuration::read("/etc/rdma/rsocket")); });
}

}  // namespace verbena::rsockets
