// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/aeth.h"

#include <array>

namespace verbena::roce {
namespace {

using std::chrono::microseconds;

// IBTA volume 1, table 46: from 0.01 ms in steps of half a power of two. Code 0 is the value that would
// follow code 31.
constexpr std::array<microseconds, 32> kRnrDelays{
    microseconds(655360), microseconds(10),     microseconds(20),     microseconds(30),
    microseconds(40),     microseconds(60),     microseconds(80),     microseconds(120),
    microseconds(160),    microseconds(240),    microseconds(320),    microseconds(480),
    microseconds(640),    microseconds(960),    microseconds(1280),   microseconds(1920),
    microseconds(2560),   microseconds(3840),   microseconds(5120),   microseconds(7680),
    microseconds(10240),  microseconds(15360),  microseconds(20480),  microseconds(30720),
    microseconds(40960),  microseconds(61440),  microseconds(81920),  microseconds(122880),
    microseconds(163840), microseconds(245760), microseconds(327680), microseconds(491520)};

}  // namespace

Duration rnr_delay(uint8_t timer_code) {
  return kRnrDelays[timer_code & 0x1f];
}

}  // namespace verbena::roce
