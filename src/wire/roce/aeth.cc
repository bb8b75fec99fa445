// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/aeth.h"

#include <array>
#include <chrono>

namespace verbena::roce {
namespace {

// IBTA volume 1, table 46, in microseconds: from 0.01 ms in steps of half a power of two. Code 0 is the value
// that would follow code 31.
constexpr std::array<uint32_t, 32> kRnrDelays{655360, 10,    20,    30,     40,     60,     80,     120,
                                              160,    240,   320,   480,    640,    960,    1280,   1920,
                                              2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
                                              40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};

}  // namespace

Duration rnr_delay(uint8_t timer_code) {
  return std::chrono::microseconds(kRnrDelays[timer_code & 0x1f]);
}

}  // namespace verbena::roce
