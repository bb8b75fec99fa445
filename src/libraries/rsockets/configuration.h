// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"

namespace verbena::rsockets {

// What new rsockets begin with. The administrator may set other values in files of one number each, below
// /etc/rdma/rsocket (rsocket(7)).
struct Configuration {
  uint32_t receive_bytes = 1 << 17;                       // mem_default
  uint32_t send_bytes = 1 << 17;                          // wmem_default
  uint32_t send_queue = 384;                              // sqsize_default
  uint32_t receive_queue = 384;                           // rqsize_default
  uint32_t inline_bytes = 64;                             // inline_default
  uint32_t iomap_entries = 0;                             // iomap_size
  Duration polling_time = std::chrono::microseconds(10);  // polling_time: how long to look before sleeping
  Duration wake_up_interval = std::chrono::milliseconds(5000);  // wake_up_interval: the longest sleep

  static Configuration read(const char* folder);
};

// Read from the files at the first call.
const Configuration& configuration();

}  // namespace verbena::rsockets
