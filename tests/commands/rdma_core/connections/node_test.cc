// SPDX-License-Identifier: Apache-2.0
#include <endian.h>
#include <gtest/gtest.h>

#include "commands/rdma_core/connections/trial/trial.h"

namespace verbena::rdma_core {
namespace {

TEST(NumberToAnswer, IsTheImmediateData) {
  ibv_wc completion = {};
  completion.opcode = IBV_WC_RECV;
  completion.wc_flags = IBV_WC_GRH | IBV_WC_WITH_IMM;
  completion.imm_data = htobe32(0x123456);
  EXPECT_EQ(number_to_answer(completion), 0x123456U);
}

TEST(NumberToAnswer, IsNoneOfAStrangersMessageWithoutImmediateData) {
  ibv_wc completion = {};
  completion.opcode = IBV_WC_RECV;
  completion.wc_flags = IBV_WC_GRH;
  completion.imm_data = htobe32(0x123456);
  EXPECT_FALSE(number_to_answer(completion));
}

TEST(NumberToAnswer, IsNoneOfWhatWasSent) {
  ibv_wc completion = {};
  completion.opcode = IBV_WC_SEND;
  completion.wc_flags = IBV_WC_WITH_IMM;
  EXPECT_FALSE(number_to_answer(completion));
}

}  // namespace
}  // namespace verbena::rdma_core
