// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <gtest/gtest.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

extern "C" {
void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from);
void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from);
void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from);
void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from);
}

namespace {

// A value whose bytes all differ, so that a field copied from the wrong place shows.
template <class T>
T patterned() {
  T value;
  auto* bytes = reinterpret_cast<unsigned char*>(&value);
  for (size_t i = 0; i < sizeof value; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + 1);
  return value;
}

TEST(Marshall, AddressAttributes) {
  auto from = patterned<ib_uverbs_ah_attr>();
  ibv_ah_attr to{};
  ibv_copy_ah_attr_from_kern(&to, &from);
  EXPECT_EQ(std::memcmp(to.grh.dgid.raw, from.grh.dgid, 16), 0);
  EXPECT_EQ(to.grh.flow_label, from.grh.flow_label);
  EXPECT_EQ(to.grh.sgid_index, from.grh.sgid_index);
  EXPECT_EQ(to.grh.hop_limit, from.grh.hop_limit);
  EXPECT_EQ(to.grh.traffic_class, from.grh.traffic_class);
  EXPECT_EQ(to.dlid, from.dlid);
  EXPECT_EQ(to.sl, from.sl);
  EXPECT_EQ(to.src_path_bits, from.src_path_bits);
  EXPECT_EQ(to.static_rate, from.static_rate);
  EXPECT_EQ(to.is_global, from.is_global);
  EXPECT_EQ(to.port_num, from.port_num);
}

TEST(Marshall, QueuePairAttributesLeaveTheStateAlone) {
  auto from = patterned<ib_uverbs_qp_attr>();
  from.cur_qp_state = IBV_QPS_RTR;
  from.path_mtu = IBV_MTU_2048;
  from.path_mig_state = IBV_MIG_ARMED;
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_SQD;
  ibv_copy_qp_attr_from_kern(&to, &from);
  EXPECT_EQ(to.qp_state, IBV_QPS_SQD);
  EXPECT_EQ(to.cur_qp_state, IBV_QPS_RTR);
  EXPECT_EQ(to.path_mtu, IBV_MTU_2048);
  EXPECT_EQ(to.path_mig_state, IBV_MIG_ARMED);
  EXPECT_EQ(to.qkey, from.qkey);
  EXPECT_EQ(to.rq_psn, from.rq_psn);
  EXPECT_EQ(to.sq_psn, from.sq_psn);
  EXPECT_EQ(to.dest_qp_num, from.dest_qp_num);
  EXPECT_EQ(to.cap.max_inline_data, from.max_inline_data);
  EXPECT_EQ(to.ah_attr.dlid, from.ah_attr.dlid);
  EXPECT_EQ(to.alt_ah_attr.dlid, from.alt_ah_attr.dlid);
  EXPECT_EQ(to.min_rnr_timer, from.min_rnr_timer);
  EXPECT_EQ(to.timeout, from.timeout);
  EXPECT_EQ(to.retry_cnt, from.retry_cnt);
  EXPECT_EQ(to.rnr_retry, from.rnr_retry);
  EXPECT_EQ(to.alt_timeout, from.alt_timeout);
}

TEST(Marshall, PathRecordsGoThereAndBack) {
  auto from = patterned<ib_user_path_rec>();
  from.hop_limit &= 0xff;
  from.mtu &= 0xff;
  ibv_sa_path_rec record{};
  ibv_copy_path_rec_from_kern(&record, &from);
  EXPECT_EQ(record.pkey, from.pkey);
  EXPECT_EQ(record.packet_life_time_selector, from.packet_life_time_selector);
  ib_user_path_rec back{};
  ibv_copy_path_rec_to_kern(&back, &record);
  EXPECT_EQ(std::memcmp(back.dgid, from.dgid, 16), 0);
  EXPECT_EQ(std::memcmp(back.sgid, from.sgid, 16), 0);
  EXPECT_EQ(back.dlid, from.dlid);
  EXPECT_EQ(back.flow_label, from.flow_label);
  EXPECT_EQ(back.hop_limit, from.hop_limit);
  EXPECT_EQ(back.reversible, from.reversible);
  EXPECT_EQ(back.mtu, from.mtu);
  EXPECT_EQ(back.rate, from.rate);
  EXPECT_EQ(back.preference, from.preference);
}

}  // namespace
