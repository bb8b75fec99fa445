// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "libraries/libibverbs/opened_device.h"

extern "C" int ibv_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed);

namespace verbena::fake {
namespace {

using Queries = OpenedDevice;

TEST_F(Queries, DeviceAttributesStopWhereTheOldStructEnds) {
  ibv_device_attr attr[2];
  std::memset(attr, 0xab, sizeof attr);
  ASSERT_EQ(ibv_query_device(context_, attr), 0);
  EXPECT_EQ(attr[0].max_cqe, 1 << 22);
  EXPECT_EQ(attr[0].phys_port_cnt, 1);
  EXPECT_EQ(*reinterpret_cast<unsigned char*>(&attr[1]), 0xab);
}

TEST_F(Queries, ExtendedDeviceAttributesFitTheCallersStruct) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &attr), 0);
  EXPECT_EQ(attr.orig_attr.max_qp, 1000);
  EXPECT_EQ(attr.max_dm_size, 77U);

  // A program with older headers than ours...
  std::vector<unsigned char> bytes(1000, 0xab);
  auto* shorter = reinterpret_cast<ibv_device_attr_ex*>(bytes.data());
  const size_t old_size = offsetof(ibv_device_attr_ex, max_dm_size);
  ASSERT_EQ(verbs_get_ctx(context_)->query_device_ex(context_, nullptr, shorter, old_size), 0);
  EXPECT_EQ(shorter->orig_attr.max_qp, 1000);
  EXPECT_EQ(bytes[old_size], 0xab);
  // ... and one with newer headers, which must find zeros in the additional fields.
  ASSERT_EQ(verbs_get_ctx(context_)->query_device_ex(context_, nullptr, shorter, 500), 0);
  EXPECT_EQ(bytes[sizeof attr], 0);
  EXPECT_EQ(bytes[499], 0);
  EXPECT_EQ(bytes[500], 0xab);
  EXPECT_EQ(verbs_get_ctx(context_)->query_device_ex(context_, nullptr, shorter, 100), EINVAL);
}

TEST_F(Queries, RefusesAnUnknownExtensionOfTheDeviceQuery) {
  ibv_query_device_ex_input input{};
  input.comp_mask = 1;
  ibv_device_attr_ex attr{};
  EXPECT_EQ(verbs_get_ctx(context_)->query_device_ex(context_, &input, &attr, sizeof attr), EINVAL);
}

TEST_F(Queries, PortAttributesAreWhole) {
  ibv_port_attr attr{};
  ASSERT_EQ(ibv_query_port(context_, 1, &attr), 0);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(attr.port_cap_flags2, 0x1234);
  errno = 0;
  EXPECT_EQ(ibv_query_port(context_, 2, &attr), EINVAL);
  EXPECT_EQ(errno, EINVAL);
}

#undef ibv_query_port

TEST_F(Queries, TheOldPortQueryWrites48BytesOnly) {
  unsigned char bytes[sizeof(ibv_port_attr)];
  std::memset(bytes, 0xab, sizeof bytes);
  ASSERT_EQ(ibv_query_port(context_, 1, reinterpret_cast<_compat_ibv_port_attr*>(bytes)), 0);
  EXPECT_EQ(reinterpret_cast<ibv_port_attr*>(bytes)->flags, IBV_QPF_GRH_REQUIRED);
  for (size_t i = 48; i < sizeof bytes; ++i) EXPECT_EQ(bytes[i], 0xab) << i;

  std::memset(bytes, 0xab, sizeof bytes);
  ASSERT_EQ(context_->ops._compat_query_port(context_, 1, reinterpret_cast<_compat_ibv_port_attr*>(bytes)),
            0);
  EXPECT_EQ(bytes[48], 0xab);
}

TEST_F(Queries, ThePortOperationTakesAnySize) {
  unsigned char bytes[100];
  for (const size_t size : {size_t{4}, size_t{48}, sizeof(ibv_port_attr), size_t{80}}) {
    std::memset(bytes, 0xab, sizeof bytes);
    auto* attr = reinterpret_cast<ibv_port_attr*>(bytes);
    ASSERT_EQ(verbs_get_ctx(context_)->query_port(context_, 1, attr, size), 0);
    EXPECT_EQ(attr->state, IBV_PORT_ACTIVE);
    EXPECT_EQ(bytes[size], 0xab) << size;
    if (size > sizeof(ibv_port_attr)) {
      EXPECT_EQ(bytes[size - 1], 0) << size;
    }
  }
}

TEST_F(Queries, PortSpeedIsWidthTimesLaneSpeed) {
  uint64_t speed = 0;
  ASSERT_EQ(ibv_query_port_speed(context_, 1, &speed), 0);
  EXPECT_EQ(speed, 1000U);  // 4 x EDR: 100 Gb/s in units of 100 Mb/s
  EXPECT_EQ(ibv_query_port_speed(context_, 2, &speed), EINVAL);
  EXPECT_EQ(ibv_query_port_speed(context_, 257, &speed), EINVAL);
}

TEST_F(Queries, PkeysAreFoundByIndexAndByValue) {
  __be16 pkey = 0;
  ASSERT_EQ(ibv_query_pkey(context_, 1, 1, &pkey), 0);
  EXPECT_EQ(pkey, htobe16(0x8001));
  EXPECT_EQ(ibv_query_pkey(context_, 1, 2, &pkey), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_get_pkey_index(context_, 1, htobe16(0xffff)), 0);
  EXPECT_EQ(ibv_get_pkey_index(context_, 1, htobe16(0x8001)), 1);
  EXPECT_EQ(ibv_get_pkey_index(context_, 1, htobe16(0x1234)), -1);
}

TEST_F(Queries, RefuseNull) {
  ibv_device_attr attr;
  EXPECT_EQ(ibv_query_device(nullptr, &attr), EINVAL);
  ibv_gid gid;
  EXPECT_EQ(ibv_query_gid(nullptr, 1, 0, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace verbena::fake
