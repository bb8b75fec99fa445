// SPDX-License-Identifier: Apache-2.0
// Objects of the C++ API: making them, the order in which they end, and what they say of themselves.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "cpp/pair.h"

namespace verbena {
namespace {

using testing::next;
using testing::Pair;

static_assert(std::is_move_constructible_v<qp> && !std::is_copy_constructible_v<qp>);
static_assert(std::is_move_assignable_v<region> && !std::is_copy_assignable_v<region>);

ibv_gid gid_of(const char* text) {
  ibv_gid gid{};
  EXPECT_EQ(inet_pton(AF_INET6, text, gid.raw), 1);
  return gid;
}

TEST(Device, IsOpenedByNameOrByItsActivePort) {
  const auto all = devices();
  ASSERT_FALSE(all.empty());
  const auto named = open(all[0].name());
  ASSERT_TRUE(named);
  EXPECT_EQ(named->name(), all[0].name());
  EXPECT_NE(all[0].guid(), 0U);
  const auto any = open();
  ASSERT_TRUE(any);
  EXPECT_EQ(any->port()->state, IBV_PORT_ACTIVE);
}

TEST(Device, IsNamedInTheErrorIfItIsAbsent) {
  const auto absent = open("rxe_absent");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code(), ENODEV);
  EXPECT_EQ(absent.error().message(), "open rxe_absent: No such device (errno 19): see ibv_devices");
}

TEST(Context, ChoosesAnIpv4AddressOrOneOfThePeersKind) {
  const context device = open().value();
  const auto gids = device.gids();
  ASSERT_TRUE(gids);
  ASSERT_FALSE(gids->empty());
  const bool any_ipv4 =
      std::ranges::any_of(*gids, [](const ibv_gid_entry& each) { return is_ipv4(each.gid); });
  EXPECT_EQ(is_ipv4(device.choose_gid()->gid), any_ipv4);
  for (const ibv_gid_entry& each : *gids) {
    const auto chosen = device.choose_gid(1, &each.gid);
    ASSERT_TRUE(chosen);
    EXPECT_EQ(is_ipv4(chosen->gid), is_ipv4(each.gid)) << to_string(each.gid);
  }
  EXPECT_EQ(device.choose_gid(9).error().code(), EADDRNOTAVAIL);
}

TEST(Gid, IsWrittenAsTheAddressThatItIs) {
  EXPECT_EQ(to_string(gid_of("::ffff:10.0.0.1")), "10.0.0.1");
  EXPECT_EQ(to_string(gid_of("fe80::1")), "fe80::1");
  EXPECT_TRUE(is_link_local(gid_of("fe80::1")));
  EXPECT_FALSE(is_link_local(gid_of("fec0::1")));
}

TEST(Endpoint, ReadsTheSameOnHostsOfBothByteOrders) {
  const endpoint one(gid_of("::ffff:10.0.0.1"), 0x123456, 0xabcdef, 7, IBV_MTU_4096);
  std::array<unsigned char, sizeof one> bytes;
  std::memcpy(bytes.data(), &one, sizeof one);
  EXPECT_EQ(bytes[16 + 1], 0x12);
  EXPECT_EQ(bytes[20 + 3], 0xef);
  EXPECT_EQ(one.qp_num(), 0x123456U);
  EXPECT_EQ(one.psn(), 0xabcdefU);
  EXPECT_EQ(one.lid(), 7);
  EXPECT_EQ(one.mtu(), IBV_MTU_4096);
  EXPECT_EQ(to_string(one.gid()), "10.0.0.1");
}

TEST(Endpoint, OfGarbageConnectsNothing) {
  const context device = open().value();
  const pd domain = device.make_pd().value();
  const cq queue = device.make_cq(4).value();
  const qp pair = domain.make_qp(rc, {.send_cq = queue}).value();
  endpoint garbage;
  std::memset(static_cast<void*>(&garbage), 0xff, sizeof garbage);
  EXPECT_FALSE(garbage.is_valid());
  EXPECT_EQ(pair.connect(garbage).error().code(), EINVAL);
  EXPECT_EQ(pair.connect(endpoint()).error().code(), EINVAL);
  EXPECT_EQ(pair.state().value(), IBV_QPS_RESET);
}

TEST(Objects, KeepWhatTheyDependOn) {
  std::optional<Pair> whole(std::in_place);
  qp near = std::move(whole->near.pair);
  region from = std::move(whole->near.buffer);
  qp far = std::move(whole->far.pair);
  region into = std::move(whole->far.buffer);
  cq near_queue = std::move(whole->near_queue);
  whole.reset();  // drops the context, the domain and the other queue
  ASSERT_TRUE(far.post(recv(into)));
  ASSERT_TRUE(near.post(send(from.first(8)).signaled(1)));
  EXPECT_EQ(next(near_queue).status, IBV_WC_SUCCESS);
}

TEST(Objects, EndInAnyOrder) {
  std::optional<context> device(open().value());
  std::optional<pd> domain(device->make_pd().value());
  std::optional<cq> queue(device->make_cq(4).value());
  std::optional<region> memory(domain->allocate(4096).value());
  std::optional<qp> pair(domain->make_qp(rc, {.send_cq = *queue}).value());
  device.reset();
  domain.reset();
  queue.reset();
  EXPECT_EQ(pair->state().value(), IBV_QPS_RESET);
  pair.reset();
  memory.reset();
}

TEST(Objects, ReportWhyTheyCannotBeMade) {
  const context device = open().value();
  const auto none = device.make_cq(1U << 31);
  ASSERT_FALSE(none);
  EXPECT_STREQ(none.error().tried(), "make a completion queue on");
  const pd domain = device.make_pd().value();
  EXPECT_EQ(domain.make_qp(rc, {}).error().code(), EINVAL);
  EXPECT_EQ(domain.allocate(0).error().code(), EINVAL);
}

TEST(Region, HasPartsWithItsKey) {
  const context device = open().value();
  const pd domain = device.make_pd().value();
  const region memory = domain.allocate(4096).value();
  const slice part = memory.part(16, 32);
  EXPECT_EQ(part.data(), memory.data() + 16);
  EXPECT_EQ(part.size(), 32U);
  EXPECT_EQ(part.last(8).data(), memory.data() + 40);
  EXPECT_EQ(part.get().lkey, memory.lkey());
  EXPECT_EQ(memory.remote().part(16, 8).address, memory.remote().address + 16);
  EXPECT_EQ(memory.as<std::uint64_t>().size(), 512U);
  EXPECT_EQ(memory.as<std::uint64_t>()[0], 0U);
}

TEST(Region, IsOfMemoryThatTheProgramHas) {
  const context device = open().value();
  const pd domain = device.make_pd().value();
  std::array<std::byte, 64> own{};
  const region memory = domain.register_memory(own, access::remote_write).value();
  EXPECT_EQ(memory.data(), own.data());
}

TEST(CompletionChannel, WakesWhoHasArmedTheQueue) {
  const context device = open().value();
  const pd domain = device.make_pd().value();
  const completion_channel channel = device.make_channel().value();
  const cq queue = device.make_cq(8, &channel).value();
  const qp one = domain.make_qp(rc, {.send_cq = queue}).value();
  const qp other = domain.make_qp(rc, {.send_cq = queue}).value();
  const region memory = domain.allocate(4096).value();
  one.connect(other.local_endpoint().value()).value();
  other.connect(one.local_endpoint().value()).value();
  queue.arm().value();
  other.post(recv(memory.first(64)).numbered(5)).value();
  one.post(send(memory.part(64, 8))).value();
  EXPECT_EQ(channel.wait().value(), queue.get());
  EXPECT_EQ(next(queue).wr_id, 5U);
}

TEST(ExtendedCq, ShowsTheFieldsThatItWasMadeWith) {
  const context device = open().value();
  const pd domain = device.make_pd().value();
  constexpr std::uint64_t kStandard = IBV_WC_STANDARD_FLAGS,
                          kTime = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  const extended_cq queue = device.make_extended_cq(8, kStandard | kTime).value();
  const qp one = domain.make_qp(rc, {.send_cq = queue}).value();
  const qp other = domain.make_qp(rc, {.send_cq = queue}).value();
  const region memory = domain.allocate(4096).value();
  one.connect(other.local_endpoint().value()).value();
  other.connect(one.local_endpoint().value()).value();
  other.post(recv(memory.first(64)).numbered(5)).value();
  one.post(send(memory.part(64, 8)).immediate(77).signaled(6)).value();
  std::size_t sent = 0, received = 0;
  while (sent == 0 || received == 0) {
    queue
        .poll([&](const extended_completion& each) {
          ASSERT_TRUE(each);
          EXPECT_NE(each.wallclock_ns(), 0U);
          if (each.id() == 6) return void(++sent);
          EXPECT_EQ(each.id(), 5U);
          EXPECT_EQ(each.bytes(), 8U);
          EXPECT_EQ(each.immediate(), 77U);
          ++received;
        })
        .value();
  }
  EXPECT_EQ(queue.poll([](const extended_completion&) {}).value(), 0U);
}

}  // namespace
}  // namespace verbena
