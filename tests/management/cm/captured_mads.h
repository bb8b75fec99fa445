// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "management/cm/events.h"

namespace verbena::cm {

// A CM datagram captured between two Linux kernels.
struct CapturedMad {
  std::string where;  // such as "cm_rping.pcap packet 3"
  std::string file;   // such as "cm_rping.pcap"
  Arrival arrival;    // as the receiver sees it
  std::vector<std::byte> mad;
  uint32_t qkey = 0;
};

// All CM datagrams of the captures in tests/wire/roce/captures, in the order of each file. Throws if there
// are none.
const std::vector<CapturedMad>& captured_mads();

// The CM datagrams of one file.
std::vector<CapturedMad> captured_mads(const std::string& file);

}  // namespace verbena::cm
