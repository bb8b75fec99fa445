// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

extern "C" const char* ibv_wr_opcode_str(ibv_wr_opcode opcode);  // declared by headers since rdma-core 45

namespace {

TEST(Names, AreThoseProgramsPrint) {
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_UNSPECIFIED), "unspecified");
  EXPECT_STREQ(ibv_port_state_str(IBV_PORT_NOP), "no state change (NOP)");
  EXPECT_STREQ(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_CQ_ERR), "CQ error");
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_QP_LAST_WQE_REACHED), "last WQE reached");
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_GID_CHANGE), "GID table change");
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_WQ_FATAL), "WQ fatal");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_SUCCESS), "success");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR), "Work Request Flushed Error");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_REM_ACCESS_ERR), "remote access error");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE), "TM software rendezvous");
  EXPECT_STREQ(ibv_wr_opcode_str(IBV_WR_RDMA_WRITE), "rdma-write");
  EXPECT_STREQ(ibv_wr_opcode_str(IBV_WR_DRIVER1), "driver1");
  EXPECT_STREQ(ibv_wr_opcode_str(static_cast<ibv_wr_opcode>(14)), "flush");
  EXPECT_STREQ(ibv_wr_opcode_str(IBV_WR_ATOMIC_WRITE), "atomic-write");
}

// Calls a name function as C programs can: with a value outside the enum.
template <class Enum>
const char* name_of(const char* (*name)(Enum), int value) {
  void* address = nullptr;
  std::memcpy(&address, &name, sizeof address);
  return reinterpret_cast<const char* (*)(int)>(address)(value);
}

TEST(Names, TheUnknownIsSaidToBe) {
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
  EXPECT_STREQ(name_of(ibv_node_type_str, 0), "unknown");
  EXPECT_STREQ(name_of(ibv_node_type_str, 8), "unknown");
  EXPECT_STREQ(name_of(ibv_port_state_str, 6), "unknown");
  EXPECT_STREQ(name_of(ibv_event_type_str, 100), "unknown");
  EXPECT_STREQ(name_of(ibv_event_type_str, -1), "unknown");
  EXPECT_STREQ(name_of(ibv_wc_status_str, 24), "unknown");
  EXPECT_STREQ(name_of(ibv_wr_opcode_str, 12), "unknown");
  EXPECT_STREQ(name_of(ibv_wr_opcode_str, 16), "unknown");
}

}  // namespace
