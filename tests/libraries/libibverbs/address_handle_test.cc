// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <gtest/gtest.h>
#include <netinet/ip.h>

#include "base/bytes.h"
#include "libraries/libibverbs/opened_device.h"

namespace verbena::fake {
namespace {

// A datagram's completion, and the 40 bytes before its payload.
class FromCompletion : public OpenedDevice {
 protected:
  FromCompletion() {
    wc_.wc_flags = IBV_WC_GRH;
    wc_.sl = 2;
    wc_.slid = 0x11;
    wc_.dlid_path_bits = 3;
  }

  void set_ipv4(const char* from, const char* to) {
    iphdr header{};
    header.version = 4;
    header.ihl = 5;
    header.tos = 0x28;
    header.ttl = 61;
    header.protocol = IPPROTO_UDP;
    header.tot_len = htons(100);
    header.saddr = ipv4_of(from);
    header.daddr = ipv4_of(to);
    header.check = checksum(header);
    std::memcpy(reinterpret_cast<char*>(&grh_) + 20, &header, sizeof header);
  }

  static uint32_t ipv4_of(const char* address) {
    const ibv_gid_entry entry = gid_entry(0, address);
    uint32_t ipv4;
    std::memcpy(&ipv4, &entry.gid.raw[12], sizeof ipv4);
    return ipv4;
  }

  static uint16_t checksum(const iphdr& header) {
    uint16_t words[10];
    std::memcpy(words, &header, sizeof words);
    uint32_t sum = 0;
    for (const uint16_t word : words) sum += word;
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<uint16_t>(~sum);
  }

  void set_ipv6(const char* from, const char* to, uint8_t next_header) {
    grh_.version_tclass_flow = htobe32(6U << 28 | 0x4aU << 20 | 0x54321);
    grh_.next_hdr = next_header;
    grh_.hop_limit = 77;
    grh_.sgid = gid_entry(0, from).gid;
    grh_.dgid = gid_entry(0, to).gid;
  }

  int init() { return ibv_init_ah_from_wc(context_, 1, &wc_, &grh_, &attr_); }

  void expect_dgid(const char* address) {
    const ibv_gid expected = gid_entry(0, address).gid;
    EXPECT_EQ(std::memcmp(&attr_.grh.dgid, &expected, sizeof expected), 0);
  }

  ibv_wc wc_{};
  ibv_grh grh_{};
  ibv_ah_attr attr_{};
};

TEST_F(FromCompletion, WithoutGrhOnlyTheLocalPartIsFilled) {
  wc_.wc_flags = 0;
  ASSERT_EQ(ibv_init_ah_from_wc(context_, 1, &wc_, nullptr, &attr_), 0);
  EXPECT_EQ(attr_.is_global, 0);
  EXPECT_EQ(attr_.dlid, 0x11);
  EXPECT_EQ(attr_.sl, 2);
  EXPECT_EQ(attr_.src_path_bits, 3);
  EXPECT_EQ(attr_.port_num, 1);
}

TEST_F(FromCompletion, Ipv4LiesInTheLast20Bytes) {
  set_ipv4("::ffff:10.0.0.2", "::ffff:10.0.0.1");
  ASSERT_EQ(init(), 0);
  EXPECT_EQ(attr_.is_global, 1);
  expect_dgid("::ffff:10.0.0.2");
  EXPECT_EQ(attr_.grh.sgid_index, 1);
  EXPECT_EQ(attr_.grh.hop_limit, 61);
  EXPECT_EQ(attr_.grh.traffic_class, 0x28);
  EXPECT_EQ(attr_.sl, 2);
}

TEST_F(FromCompletion, Ipv4IsKnownByItsChecksumWhenTheFirstBytesLookLikeIpv6) {
  grh_.version_tclass_flow = htobe32(6U << 28);
  set_ipv4("::ffff:10.0.0.2", "::ffff:10.0.0.1");
  ASSERT_EQ(init(), 0);
  EXPECT_EQ(attr_.grh.sgid_index, 1);
  expect_dgid("::ffff:10.0.0.2");
}

// Some of these IPv4 header checksums need the end-around carry twice.
TEST_F(FromCompletion, Ipv4ChecksumsAreAddedToTheEnd) {
  grh_.version_tclass_flow = htobe32(6U << 28);
  fake().gids[1] = gid_entry(1, "::ffff:255.255.255.254");
  for (unsigned low = 0; low < 256; ++low) {
    set_ipv4(("::ffff:255.255.255." + std::to_string(low)).c_str(), "::ffff:255.255.255.254");
    ASSERT_EQ(init(), 0) << low;
    ASSERT_EQ(attr_.grh.sgid_index, 1);
  }
}

TEST_F(FromCompletion, TheSourceIndexIsTheOneOfTheRightType) {
  fake().gids[1] = gid_entry(1, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V1);
  fake().gids[4] = gid_entry(4, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2);
  set_ipv4("::ffff:10.0.0.2", "::ffff:10.0.0.1");
  ASSERT_EQ(init(), 0);
  EXPECT_EQ(attr_.grh.sgid_index, 4);
}

TEST_F(FromCompletion, Ipv6IsReadFromTheWholeHeader) {
  set_ipv6("fe80::2", "fe80::1", IPPROTO_UDP);
  ASSERT_EQ(init(), 0);
  expect_dgid("fe80::2");
  EXPECT_EQ(attr_.grh.sgid_index, 0);
  EXPECT_EQ(attr_.grh.hop_limit, 77);
  EXPECT_EQ(attr_.grh.traffic_class, 0x4a);
  EXPECT_EQ(attr_.grh.flow_label, 0x54321U);
}

TEST_F(FromCompletion, RoceV1IsKnownByItsNextHeader) {
  fake().gids[2] = gid_entry(2, "fe80::1", IBV_GID_TYPE_ROCE_V1);
  set_ipv6("fe80::2", "fe80::1", 0x1b);
  ASSERT_EQ(init(), 0);
  EXPECT_EQ(attr_.grh.sgid_index, 2);
}

TEST_F(FromCompletion, RefusesWhatItCannotAnswer) {
  errno = 0;
  EXPECT_EQ(init(), -1) << "neither IPv4 nor IPv6";
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  set_ipv6("fe80::2", "fe80::1", IPPROTO_TCP);
  EXPECT_EQ(init(), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  set_ipv6("fe80::2", "ff0e::1", IPPROTO_UDP);
  EXPECT_EQ(init(), -1) << "sent to a group: no source GID";
  EXPECT_EQ(errno, EINVAL);
  set_ipv6("fe80::2", "fe80::99", IPPROTO_UDP);
  EXPECT_EQ(init(), -1) << "not one of our addresses";
  EXPECT_EQ(errno, EINVAL);
  grh_ = {};
  set_ipv4("::ffff:10.0.0.2", "::ffff:224.0.0.5");
  EXPECT_EQ(init(), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(FromCompletion, AnIndexThatAnAddressHandleCannotHoldIsNotFound) {
  fake().gid_table_length = 1024;
  fake().gids[256] = gid_entry(256, "fe80::256");
  set_ipv6("fe80::2", "fe80::256", IPPROTO_UDP);
  EXPECT_EQ(init(), -1);
}

TEST_F(FromCompletion, MakesTheAddressHandle) {
  ibv_pd* pd = ibv_alloc_pd(context_);
  set_ipv4("::ffff:10.0.0.2", "::ffff:10.0.0.1");
  ibv_ah* ah = ibv_create_ah_from_wc(pd, &wc_, &grh_, 1);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(static_cast<FakeAh*>(ah)->attr.grh.sgid_index, 1);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  grh_ = {};
  EXPECT_EQ(ibv_create_ah_from_wc(pd, &wc_, &grh_, 1), nullptr);
  ibv_dealloc_pd(pd);
}

using AddressHandle = OpenedDevice;

TEST_F(AddressHandle, IsMadeByTheProvider) {
  ibv_pd* pd = ibv_alloc_pd(context_);
  ibv_ah_attr attr{};
  attr.port_num = 1;
  ibv_ah* ah = ibv_create_ah(pd, &attr);
  ASSERT_NE(ah, nullptr);
  fake().refuse_with = EBUSY;
  EXPECT_EQ(ibv_destroy_ah(ah), EBUSY);
  EXPECT_EQ(ibv_create_ah(pd, &attr), nullptr);
  EXPECT_EQ(errno, EBUSY);
  fake().refuse_with = 0;
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  ibv_dealloc_pd(pd);
}

}  // namespace
}  // namespace verbena::fake
