// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/random.h"
#include "base/seed.h"
#include "control/model/link.h"
#include "control/protocol/messages.h"

namespace verbena::control {
namespace {

LinkSnapshot some_snapshot(Random& random) {
  LinkSnapshot snapshot;
  snapshot.generation = random.next();
  snapshot.next_device_index = static_cast<uint32_t>(random.next());
  for (uint64_t i = random.below(4); i > 0; --i)
    snapshot.deleted.push_back(static_cast<uint32_t>(random.next()));
  for (uint64_t i = random.below(5); i > 0; --i) {
    Link& link = snapshot.links.emplace_back();
    link.name = "rxe_" + std::to_string(random.next());
    link.netdev = "eth" + std::to_string(random.below(1000));
    link.device_index = static_cast<uint32_t>(random.next());
    link.interface_index = static_cast<uint32_t>(random.next());
    link.mtu = static_cast<uint32_t>(random.next());
    link.up = random.one_in(2);
    link.automatic = random.one_in(2);
    for (uint64_t peers = random.below(protocol::kMaxPeersOfLink + 1); peers > 0; --peers) {
      roce::Address address;
      for (uint8_t& byte : address.bytes) byte = static_cast<uint8_t>(random.next());
      const auto bits = static_cast<uint8_t>(random.below(129));
      link.peers.push_back({roce::first_bits(address, bits), bits});
    }
    for (uint8_t& byte : link.mac) byte = static_cast<uint8_t>(random.next());
    uint32_t index = 0;
    for (uint64_t gids = random.below(20); gids > 0; --gids) {
      GidEntry& entry = link.gids.emplace_back();
      entry.index = index;
      for (uint8_t& byte : entry.gid.bytes) byte = static_cast<uint8_t>(random.next());
      index += 1 + static_cast<uint32_t>(random.below(30));
    }
  }
  return snapshot;
}

TEST(LinkTableFile, ComesBackAsItWas) {
  Random random(test::seed());
  for (int i = 0; i < 200; ++i) {
    const LinkSnapshot snapshot = some_snapshot(random);
    const auto file = write_link_file(snapshot);
    ASSERT_TRUE(file);
    const auto back = read_link_file(file->get());
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, snapshot);
  }
}

TEST(LinkTableFile, IsRefusedAtAnyOtherLength) {
  Random random(test::seed());
  const auto bytes = encode_links(some_snapshot(random));
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_links(ConstBytes(bytes).first(length))) << length;
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_links(longer));
}

TEST(LinkTableFile, MayBeDamagedWithoutHarm) {
  Random random(test::seed());
  for (int i = 0; i < 5000; ++i) {
    auto bytes = encode_links(some_snapshot(random));
    for (uint64_t n = 1 + random.below(4); n > 0; --n) {
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.next());
    }
    const auto decoded = decode_links(bytes);
    if (!decoded) continue;
    for (const Link& link : decoded->links) {
      ASSERT_FALSE(link.name.empty());
      ASSERT_LE(link.peers.size(), protocol::kMaxPeersOfLink);
      ASSERT_LE(link.gids.size(), kGidTableLength);
    }
  }
}

// An agent of a later version may append fields to each record.
TEST(LinkTableFile, ReadsLongerRecordsAsFarAsItKnowsThem) {
  LinkSnapshot snapshot;
  snapshot.links.resize(2);
  snapshot.links[0].name = "rxe_eth0";
  snapshot.links[0].gids = {{0, {}}, {3, {}}};
  snapshot.links[1].name = "rxe_eth1";
  const auto bytes = encode_links(snapshot);
  protocol::LinkTableHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  constexpr size_t kMore = 12;
  header.link_record_bytes += kMore;
  header.gid_record_bytes += kMore;
  std::vector<std::byte> longer(sizeof header);
  std::memcpy(longer.data(), &header, sizeof header);
  size_t at = sizeof header;
  const auto copy_record = [&](size_t length) {
    longer.insert(longer.end(), bytes.begin() + at, bytes.begin() + at + length);
    longer.resize(longer.size() + kMore, std::byte{0x5a});
    at += length;
  };
  copy_record(sizeof(protocol::LinkRecord));
  copy_record(sizeof(protocol::GidRecord));
  copy_record(sizeof(protocol::GidRecord));
  copy_record(sizeof(protocol::LinkRecord));
  const auto decoded = decode_links(longer);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, snapshot);

  header.gid_record_bytes = sizeof(protocol::GidRecord) - 1;
  std::memcpy(longer.data(), &header, sizeof header);
  EXPECT_EQ(decode_links(longer).error().code, EPROTO);
}

// Encodes one link whose record has the length of version 4, without peers.
std::vector<std::byte> encode_short_record(const LinkSnapshot& snapshot) {
  auto bytes = encode_links(snapshot);
  constexpr size_t kLength = protocol::kLinkRecordBytesInVersion4;
  const auto end = bytes.begin() + sizeof(protocol::LinkTableHeader);
  bytes.erase(end + kLength, end + sizeof(protocol::LinkRecord));
  const uint16_t length = kLength;
  std::memcpy(bytes.data() + offsetof(protocol::LinkTableHeader, link_record_bytes), &length, sizeof length);
  return bytes;
}

TEST(LinkTableFile, ReadsWhatAnAgentWithoutPeersWrote) {
  LinkSnapshot snapshot;
  snapshot.links.resize(1);
  snapshot.links[0].name = "rxe_eth0";
  snapshot.links[0].gids = {{0, {}}};
  const auto decoded = decode_links(encode_short_record(snapshot));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, snapshot);
}

TEST(LinkTableFile, ReadsWhatAnAgentOfVersionOneWrote) {
  LinkSnapshot snapshot;
  snapshot.links.resize(1);
  snapshot.links[0].name = "rxe_eth0";
  snapshot.links[0].gids = {{0, {}}};
  auto bytes = encode_short_record(snapshot);
  std::memset(bytes.data() + offsetof(protocol::LinkTableHeader, link_record_bytes), 0, 4);
  const auto decoded = decode_links(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, snapshot);
}

TEST(LinkTableFile, MustBeSealed) {
  const UniqueFd file(::memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto bytes = encode_links({});
  ASSERT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(read_link_file(file.get()).error().code, EPROTO);
  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
  EXPECT_TRUE(read_link_file(file.get()));
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(read_link_file(null.get()));
}

TEST(LinkTableFile, CannotBeChangedByItsReaders) {
  const auto file = write_link_file({});
  ASSERT_TRUE(file);
  EXPECT_EQ(::pwrite(file->get(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(file->get(), 0), -1);
}

}  // namespace
}  // namespace verbena::control
