// SPDX-License-Identifier: Apache-2.0
// Functions that need neither a device nor a connection, and lists of devices and addresses.
#include <cerrno>

#include <netdb.h>

#include "libraries/librdmacm/support/connection.h"

extern "C" int rdma_write_cm_event(rdma_cm_id*, rdma_cm_event_type, int, uint64_t);
extern "C" int rdma_resolve_addrinfo(rdma_cm_id*, const char*, const char*, const rdma_addrinfo*);
extern "C" int rdma_query_addrinfo(rdma_cm_id*, rdma_addrinfo**);

namespace verbena::rdmacm::testing {
namespace {

constexpr int kUserEvent = 18;
constexpr int kInformationResolved = 16;

TEST(EventNames, AreThoseOfTheHeader) {
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
  EXPECT_STREQ(rdma_event_str(event_type(99)), "UNKNOWN EVENT");
}

TEST(Devices, AreListedOpen) {
  int count = 0;
  ibv_context** const devices = rdma_get_devices(&count);
  ASSERT_NE(devices, nullptr);
  ASSERT_GE(count, 1);
  EXPECT_EQ(devices[count], nullptr);
  ibv_device_attr attributes{};
  EXPECT_EQ(ibv_query_device(devices[0], &attributes), 0);
  const OwnChannel channel = make_channel();
  const OwnId id = make_id(channel.get());
  sockaddr_in address = ipv4("127.0.0.1", 0);
  resolve_to(channel.get(), id.get(), address);
  bool listed = false;
  for (int i = 0; i < count; ++i) listed |= devices[i] == id->verbs;
  EXPECT_TRUE(listed);
  rdma_free_devices(devices);
}

TEST(AddressInformation, HasTheDefaultsOfAPortSpace) {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_UDP;
  rdma_addrinfo* found = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "4711", &hints, &found), 0);
  EXPECT_EQ(found->ai_port_space, RDMA_PS_UDP);
  EXPECT_EQ(found->ai_qp_type, IBV_QPT_UD);
  EXPECT_EQ(found->ai_family, AF_INET);
  EXPECT_EQ(found->ai_dst_len, sizeof(sockaddr_in));
  EXPECT_EQ(found->ai_src_len, 0U);
  rdma_freeaddrinfo(found);
}

TEST(AddressInformation, IsForTheSourceWhenPassive) {
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* found = nullptr;
  ASSERT_EQ(rdma_getaddrinfo(nullptr, "4711", &hints, &found), 0);
  EXPECT_EQ(found->ai_flags, RAI_PASSIVE);
  EXPECT_EQ(found->ai_qp_type, IBV_QPT_RC);
  EXPECT_NE(found->ai_src_len, 0U);
  EXPECT_EQ(found->ai_dst_addr, nullptr);
  rdma_freeaddrinfo(found);
}

TEST(AddressInformation, TakesASourceFromTheHints) {
  sockaddr_in source = ipv4("127.0.0.1", 0);
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_src_addr = generic(source);
  hints.ai_src_len = sizeof source;
  rdma_addrinfo* found = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("::1", "4711", &hints, &found), 0);
  EXPECT_EQ(found->ai_family, AF_INET6);
  ASSERT_EQ(found->ai_src_len, sizeof source);
  EXPECT_EQ(std::memcmp(found->ai_src_addr, &source, sizeof source), 0);
  rdma_freeaddrinfo(found);
}

TEST(AddressInformation, AnswersAsGetaddrinfoDoes) {
  rdma_addrinfo hints{};
  hints.ai_flags = RAI_NUMERICHOST;
  rdma_addrinfo* found = nullptr;
  EXPECT_EQ(rdma_getaddrinfo("not.a.number", "1", &hints, &found), EAI_NONAME);
}

TEST(UserEvents, ComeWithTheirArgument) {
  const OwnChannel channel = make_channel();
  const OwnId id = make_id(channel.get());
  ASSERT_EQ(rdma_write_cm_event(id.get(), event_type(kUserEvent), 5, 0x1122334455667788), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel.get(), &event), 0);
  int type;
  std::memcpy(&type, &event->event, sizeof type);
  EXPECT_EQ(type, kUserEvent);
  EXPECT_EQ(event->status, 5);
  EXPECT_EQ(event->id, id.get());
  uint64_t argument;
  std::memcpy(&argument, &event->param, sizeof argument);
  EXPECT_EQ(argument, 0x1122334455667788U);
  rdma_ack_cm_event(event);
  EXPECT_EQ(rdma_write_cm_event(id.get(), RDMA_CM_EVENT_ESTABLISHED, 0, 0), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(AddressInformation, IsResolvedForAnIdentifier) {
  const OwnChannel channel = make_channel();
  const OwnId id = make_id(channel.get());
  rdma_addrinfo* found = nullptr;
  EXPECT_EQ(rdma_query_addrinfo(id.get(), &found), -1);
  EXPECT_EQ(errno, ENOENT);
  ASSERT_EQ(rdma_resolve_addrinfo(id.get(), "127.0.0.1", "7", nullptr), 0) << std::strerror(errno);
  EXPECT_EQ(rdma_resolve_addrinfo(id.get(), "127.0.0.1", "7", nullptr), -1);
  EXPECT_EQ(errno, EBUSY);
  hear(channel.get(), kInformationResolved);
  ASSERT_EQ(rdma_query_addrinfo(id.get(), &found), 0);
  EXPECT_EQ(found->ai_family, AF_INET);
  rdma_freeaddrinfo(found);
}

}  // namespace
}  // namespace verbena::rdmacm::testing
