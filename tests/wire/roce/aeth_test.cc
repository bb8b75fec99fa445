// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/aeth.h"

#include <gtest/gtest.h>

namespace verbena::roce {
namespace {

using namespace std::chrono_literals;

// IBTA volume 1, table 46, in units of 0.01 ms.
TEST(Aeth, RnrTimerTable) {
  const int hundredths[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                              48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                              2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  for (uint8_t code = 0; code < 32; ++code) EXPECT_EQ(rnr_delay(code), hundredths[code] * 10us) << int{code};
  EXPECT_EQ(rnr_delay(0x20 | 12), 640us) << "a whole syndrome may be given";
}

TEST(Aeth, AckTimeouts) {
  EXPECT_EQ(ack_timeout(0), 0ns);
  EXPECT_EQ(ack_timeout(1), 8192ns);
  EXPECT_EQ(ack_timeout(14), 67108864ns);
  EXPECT_EQ(ack_timeout(31), 8796093022208ns);  // 2.4 hours
}

// The syndromes that Linux rxe sent: captures rc_rnr (44), rc_nak_* (98, 99), rc_reorder_netem (96).
TEST(Aeth, Syndromes) {
  EXPECT_EQ(ack_syndrome(), 31);
  EXPECT_EQ(rnr_syndrome(12), 44);
  EXPECT_EQ(nak_syndrome(NakCode::kSequenceError), 96);
  EXPECT_EQ(nak_syndrome(NakCode::kInvalidRequest), 97);
  EXPECT_EQ(nak_syndrome(NakCode::kRemoteAccess), 98);
  EXPECT_EQ(nak_syndrome(NakCode::kRemoteOperational), 99);
  EXPECT_EQ(nak_syndrome(NakCode::kInvalidRdRequest), 100);
  EXPECT_EQ(aeth_kind(31), AethKind::kAck);
  EXPECT_EQ(aeth_kind(44), AethKind::kRnrNak);
  EXPECT_EQ(aeth_kind(0x40), AethKind::kReserved);
  EXPECT_EQ(aeth_kind(98), AethKind::kNak);
  EXPECT_EQ(aeth_value(44), 12);
  EXPECT_EQ(aeth_value(98), static_cast<uint8_t>(NakCode::kRemoteAccess));
}

}  // namespace
}  // namespace verbena::roce
