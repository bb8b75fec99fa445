// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"

namespace verbena::rsockets {

// The maximum size of a queue in entries: a credit is a 16-bit sequence number.
inline constexpr uint32_t kMaxQueueEntries = 0xfffe;

// Default sizes and times of new rsockets; queue sizes are in entries. The administrator can set another
// value in a file in /etc/rdma/rsocket that holds one number (rsocket(7)). The comments name the files.
// Values out of range are clamped; files without a number are ignored.
struct Configuration {
  uint32_t receive_bytes = 1 << 17;                       // from mem_default
  uint32_t send_bytes = 1 << 17;                          // from wmem_default
  uint32_t send_queue = 384;                              // from sqsize_default
  uint32_t receive_queue = 384;                           // from rqsize_default
  uint32_t inline_bytes = 64;                             // from inline_default
  uint32_t iomap_entries = 0;                             // from iomap_size
  Duration polling_time = std::chrono::microseconds(10);  // from polling_time (us): busy polling before sleep
  Duration wake_up_interval = std::chrono::milliseconds(5000);  // from wake_up_interval (ms): longest sleep

  static Configuration read(const char* folder);
};

// Returns the configuration, which the first call reads from the files.
const Configuration& configuration();

}  // namespace verbena::rsockets
