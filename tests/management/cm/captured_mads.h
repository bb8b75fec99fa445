// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "management/cm/events.h"

namespace verbena::cm {

// One CM datagram between two Linux kernels.
struct CapturedMad {
  std::string where;  // "cm_rping.pcap packet 3"
  std::string file;   // "cm_rping.pcap"
  Arrival arrival;    // as its receiver sees it
  std::vector<std::byte> mad;
  uint32_t qkey = 0;
};

// All of the captures in tests/wire/roce/captures, in the order of each file. Throws where there are none.
const std::vector<CapturedMad>& captured_mads();

// Those of one file.
std::vector<CapturedMad> captured_mads(const std::string& file);

}  // namespace verbena::cm
