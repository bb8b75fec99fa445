// SPDX-License-Identifier: Apache-2.0
// Mapped buffers: one side maps, the other writes into them.
#include <algorithm>
#include <numeric>

#include "libraries/rsockets/support/rsockets.h"

namespace verbena::rsockets::testing {
namespace {

class Iomapping : public ::testing::Test {
 protected:
  static Rsocket mapping_listener() {
    Rsocket from = listener();
    set_option(from, SOL_RDMA, RDMA_IOMAPSIZE, 4);
    return from;
  }
  // The server's mappings go into the client's table, so the client needs one.
  static Pair mapping_pair() {
    Rsocket from = mapping_listener();
    Pair pair;
    pair.client = Rsocket(::rsocket(AF_INET, SOCK_STREAM, 0));
    set_option(pair.client, SOL_RDMA, RDMA_IOMAPSIZE, 2);
    EXPECT_EQ(connect_to(pair.client, port_of(from)), 0) << errno;
    pair.server = Rsocket(::raccept(from, nullptr, nullptr));
    return pair;
  }
  // After this the client knows all mappings of the server.
  void tell() {
    send_text(pair_.server, "mapped");
    ASSERT_EQ(receive_text(pair_.client), "mapped");
  }
  // After this everything that the client has written has arrived.
  void arrive() {
    send_text(pair_.client, "written");
    ASSERT_EQ(receive_text(pair_.server), "written");
  }

  Pair pair_ = mapping_pair();
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(300000);
};

TEST_F(Iomapping, WritesGoStraightIntoTheBuffer) {
  ASSERT_EQ(::riomap(pair_.server, memory_.data(), memory_.size(), PROT_WRITE, 0, 1000), 1000);
  tell();
  std::vector<uint8_t> data(200000);
  std::iota(data.begin(), data.end(), uint8_t{0});
  ASSERT_EQ(::riowrite(pair_.client, data.data(), data.size(), 1000 + 50, 0), data.size());
  arrive();
  EXPECT_TRUE(std::equal(data.begin(), data.end(), memory_.begin() + 50));
  EXPECT_EQ(memory_[49], 0);
}

TEST_F(Iomapping, OffsetIsTheAddressWhereNoneIsGiven) {
  const off_t offset = ::riomap(pair_.server, memory_.data(), memory_.size(), PROT_WRITE, 0, -1);
  EXPECT_EQ(offset, static_cast<off_t>(reinterpret_cast<uintptr_t>(memory_.data())));
}

TEST_F(Iomapping, WriteEndsWhereTheMappingEnds) {
  ASSERT_EQ(::riomap(pair_.server, memory_.data(), 100, PROT_WRITE, 0, 0), 0);
  tell();
  const std::vector<uint8_t> data(150, 7);
  EXPECT_EQ(::riowrite(pair_.client, data.data(), data.size(), 0, 0), 100u);
  EXPECT_EQ(::riowrite(pair_.client, data.data(), data.size(), 100, 0), 0u);
  arrive();
  EXPECT_EQ(memory_[99], 7);
  EXPECT_EQ(memory_[100], 0);
}

TEST_F(Iomapping, NeighbouringBuffersAreOneRange) {
  std::vector<uint8_t> other(100);
  ASSERT_EQ(::riomap(pair_.server, memory_.data(), 100, PROT_WRITE, 0, 0), 0);
  ASSERT_EQ(::riomap(pair_.server, other.data(), 100, PROT_WRITE, 0, 100), 100);
  tell();
  const std::vector<uint8_t> data(200, 7);
  EXPECT_EQ(::riowrite(pair_.client, data.data(), data.size(), 0, 0), 200u);
  arrive();
  EXPECT_EQ(memory_[99], 7);
  EXPECT_EQ(other[99], 7);
}

TEST_F(Iomapping, PeersTableHasSoManyPlacesAndNoMore) {
  ASSERT_EQ(::riomap(pair_.server, memory_.data(), 10, PROT_WRITE, 0, 0), 0);
  ASSERT_EQ(::riomap(pair_.server, memory_.data() + 10, 10, PROT_WRITE, 0, 10), 10);
  EXPECT_EQ(::riomap(pair_.server, memory_.data() + 20, 10, PROT_WRITE, 0, 20), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(::riomap(pair_.server, memory_.data() + 20, 10, PROT_NONE, 0, 20), 20) << "local ones need none";
  ASSERT_EQ(::riounmap(pair_.server, memory_.data(), 10), 0);
  EXPECT_EQ(::riomap(pair_.server, memory_.data() + 20, 10, PROT_WRITE, 0, 20), 20);
}

TEST_F(Iomapping, UnmappedBufferIsOutOfReach) {
  ASSERT_EQ(::riomap(pair_.server, memory_.data(), 100, PROT_WRITE, 0, 0), 0);
  tell();
  ASSERT_EQ(::riounmap(pair_.server, memory_.data(), 100), 0);
  const uint8_t byte = 7;
  (void)::riowrite(pair_.client, &byte, 1, 0, 0);
  EXPECT_NE(poll_for(pair_.client, 0) & (POLLERR | POLLHUP), 0)
      << "a key that is no more ends the connection";
  EXPECT_EQ(memory_[0], 0);
}

TEST_F(Iomapping, WhatWasNotMappedCannotBeUnmapped) {
  EXPECT_EQ(::riounmap(pair_.server, memory_.data(), 100), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(::riomap(pair_.server, memory_.data(), 100, PROT_READ, 0, 0), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(IomappingWithoutTable, HasNoPlaces) {
  Pair pair;
  char memory[100];
  EXPECT_EQ(::riomap(pair.server, memory, sizeof memory, PROT_WRITE, 0, 0), -1);
  EXPECT_EQ(errno, ENOMEM);
}

// The request comes first, then the listener, then its options, as with riostream.
TEST(IomappingOfAListener, MayBeSaidAfterListeningEvenToAClientThatWaits) {
  Rsocket from(::rsocket(AF_INET, SOCK_STREAM, 0));
  Loopback any(AF_INET);
  ASSERT_EQ(::rbind(from, any.get(), any.size()), 0) << errno;
  Rsocket client(::rsocket(AF_INET, SOCK_STREAM, 0));
  set_nonblocking(client);
  ASSERT_EQ(connect_to(client, port_of(from)), -1);
  ASSERT_EQ(errno, EINPROGRESS);
  ASSERT_EQ(::rlisten(from, 1), 0) << errno;
  (void)poll_for(client, POLLOUT, 20);  // time for a wrong, early answer
  set_option(from, SOL_RDMA, RDMA_IOMAPSIZE, 1);
  const Rsocket server(::raccept(from, nullptr, nullptr));
  ASSERT_GE(server, 0) << errno;
  ASSERT_EQ(poll_for(client, POLLOUT), POLLOUT);
  char memory[16];
  EXPECT_EQ(::riomap(client, memory, sizeof memory, PROT_WRITE, 0, 0), 0) << errno;
}

TEST(Accepting, ListenerThatNobodyLooksAtTakesConnectionsAllTheSame) {
  const Rsocket from = listener();
  EXPECT_EQ(option(connected_to(port_of(from)), SOL_SOCKET, SO_ERROR), 0);
}

}  // namespace
}  // namespace verbena::rsockets::testing
