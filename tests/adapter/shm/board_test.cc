// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/board.h"

#include <memory>
#include <random>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include "base/seed.h"

namespace verbena::shm {
namespace {

constexpr uint32_t kKey = 0x12345678;
constexpr uint64_t kBase = 0x7f00'0000'1000;
constexpr uint64_t kIova = 0x5000;
constexpr uint64_t kLength = 4096;
constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

class Boarded : public ::testing::Test {
 protected:
  Boarded() { format(*board); }

  static memory::Opening region(uint32_t key = kKey) {
    memory::Opening opening;
    opening.base = reinterpret_cast<std::byte*>(kBase);
    opening.iova = kIova;
    opening.length = kLength;
    opening.access = kAll;
    opening.pd = 7;
    opening.key = key;
    return opening;
  }
  static BoardQp qp() {
    return {.qpn = 0x4321,
            .pd = 7,
            .access = kAll,
            .destination = 0x8765,
            .receive_psn = 0xabc,
            .send_psn = 0xdef,
            .takes_reads = true};
  }
  static AccessRequest request() {
    return {.qpn = 0x4321,
            .from = 0x8765,
            .first_psn = 0xabc,
            .rkey = kKey,
            .address = kIova + 16,
            .bytes = 8,
            .wanted = IBV_ACCESS_REMOTE_READ};
  }
  void publish() {
    writer.publish(region());
    writer.publish(qp());
  }
  template <class Change>
  std::optional<uint64_t> find(Change change) {
    AccessRequest asked = request();
    change(asked);
    const auto found = find_access(*board, asked);
    // Who remembers is told the same, the first time and again.
    finder.find(request());
    EXPECT_EQ(finder.find(asked), found);
    EXPECT_EQ(finder.find(asked), found);
    return found ? std::optional(found->at) : std::nullopt;
  }

  std::unique_ptr<Board> board = std::make_unique<Board>();
  BoardWriter writer{*board};
  AccessFinder finder{*board};
};

TEST_F(Boarded, AllowsWhatTheOwnerWould) {
  publish();
  EXPECT_EQ(find([](AccessRequest&) {}), kBase + 16);
  EXPECT_EQ(find([](AccessRequest& r) { r.wanted = IBV_ACCESS_REMOTE_WRITE; }), kBase + 16);
  EXPECT_EQ(find([](AccessRequest& r) { r.address = kIova, r.bytes = kLength; }), kBase);
}

TEST_F(Boarded, AllowsNothingThatIsNotOnIt) {
  EXPECT_EQ(find([](AccessRequest&) {}), std::nullopt);
  writer.publish(region());
  EXPECT_EQ(find([](AccessRequest&) {}), std::nullopt);
  writer.publish(qp());
  EXPECT_NE(find([](AccessRequest&) {}), std::nullopt);
}

struct Refusal {
  const char* name;
  void (*change)(AccessRequest&);
};
class BoardRefuses : public Boarded, public ::testing::WithParamInterface<Refusal> {};

TEST_P(BoardRefuses, It) {
  publish();
  EXPECT_EQ(find(GetParam().change), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(
    Requests, BoardRefuses,
    ::testing::Values(
        Refusal{"AnotherKeyOfTheIdentity", [](AccessRequest& r) { r.rkey ^= 1; }},
        Refusal{"AnUnknownKey", [](AccessRequest& r) { r.rkey ^= 1 << 20; }},
        Refusal{"NoKey", [](AccessRequest& r) { r.rkey = 0; }},
        Refusal{"NoQp", [](AccessRequest& r) { r.qpn = 0; }},
        Refusal{"AnUnknownQp", [](AccessRequest& r) { r.qpn ^= 1; }},
        Refusal{"AQpThatIsNotThePeer", [](AccessRequest& r) { r.from ^= 1; }},
        Refusal{"AQpOfAnotherConnection", [](AccessRequest& r) { r.first_psn ^= 1; }},
        Refusal{"ARightThatIsNotGiven", [](AccessRequest& r) { r.wanted = IBV_ACCESS_REMOTE_ATOMIC; }},
        Refusal{"NoRight", [](AccessRequest& r) { r.wanted = 0; }},
        Refusal{"NoBytes", [](AccessRequest& r) { r.bytes = 0; }},
        Refusal{"BytesBeforeTheRegion", [](AccessRequest& r) { r.address = kIova - 1; }},
        Refusal{"BytesBehindTheRegion", [](AccessRequest& r) { r.address = kIova + kLength - 7; }},
        Refusal{"MoreThanTheRegion", [](AccessRequest& r) { r.bytes = kLength; }},
        Refusal{"AnAddressFarAway", [](AccessRequest& r) { r.address = UINT64_MAX; }},
        Refusal{"MoreThanThereIs", [](AccessRequest& r) { r.bytes = UINT64_MAX; }}),
    [](const auto& refusal) { return refusal.param.name; });

template <class Change>
bool allows_with(Board& board, BoardWriter& writer, const AccessRequest& asked, memory::Opening opening,
                 BoardQp qp, Change change) {
  change(opening, qp);
  writer.publish(opening);
  writer.publish(qp);
  const bool allowed = find_access(board, asked).has_value();
  writer.withdraw_key(opening.key);
  writer.withdraw_qp(qp.qpn);
  return allowed;
}

TEST_F(Boarded, RefusesWhereRegionOrQpDo) {
  const auto allows = [&](auto change) {
    return allows_with(*board, writer, request(), region(), qp(), change);
  };
  using memory::Opening;
  EXPECT_TRUE(allows([](Opening&, BoardQp&) {}));
  EXPECT_FALSE(allows([](Opening& o, BoardQp&) { o.access &= ~IBV_ACCESS_REMOTE_READ; }));
  EXPECT_FALSE(allows([](Opening& o, BoardQp&) { o.pd = 8; }));
  EXPECT_FALSE(allows([](Opening&, BoardQp& q) { q.access &= ~IBV_ACCESS_REMOTE_READ; }));
  EXPECT_FALSE(allows([](Opening&, BoardQp& q) { q.pd = 8; }));
  EXPECT_FALSE(allows([](Opening&, BoardQp& q) { q.takes_reads = false; }));
  EXPECT_FALSE(allows([](Opening&, BoardQp& q) { q.access = 0; }));
  EXPECT_TRUE(allows([](Opening&, BoardQp&) {}));
}

TEST_F(Boarded, ShowsNoMemoryThatIsNone) {
  writer.publish(qp());
  memory::Opening null = region();
  null.kind = memory::RegionKind::kNull;
  writer.publish(null);
  EXPECT_EQ(find([](AccessRequest&) {}), std::nullopt);
}

TEST_F(Boarded, AWindowThatIsNotBoundHasNoRights) {
  writer.publish(qp());
  memory::Opening unbound;
  unbound.kind = memory::RegionKind::kWindow2;
  unbound.access = memory::kRemoteOnly;
  unbound.pd = 7;
  unbound.key = kKey;
  writer.publish(unbound);
  EXPECT_EQ(find([](AccessRequest&) {}), std::nullopt);
  EXPECT_EQ(find_key(*board, kKey), std::nullopt);
}

TEST_F(Boarded, AWindowOfType1IsForAllQpsOfItsDomain) {
  writer.publish(qp());
  memory::Opening window = region();
  window.kind = memory::RegionKind::kWindow1;
  window.access = IBV_ACCESS_REMOTE_READ | memory::kRemoteOnly;
  writer.publish(window);
  EXPECT_EQ(find([](AccessRequest&) {}), kBase + 16);
  EXPECT_EQ(find([](AccessRequest& r) { r.wanted = IBV_ACCESS_REMOTE_WRITE; }), std::nullopt);
  BoardQp other = qp();
  other.qpn = 0x4322;
  writer.publish(other);
  EXPECT_EQ(find([](AccessRequest& r) { r.qpn = 0x4322; }), kBase + 16);
  other.pd = 8;
  writer.publish(other);
  EXPECT_EQ(find([](AccessRequest& r) { r.qpn = 0x4322; }), std::nullopt);
}

TEST_F(Boarded, AWindowOfType2IsForItsOwnQp) {
  writer.publish(qp());
  BoardQp other = qp();
  other.qpn = 0x4322;
  writer.publish(other);
  memory::Opening window = region();
  window.kind = memory::RegionKind::kWindow2;
  window.access = IBV_ACCESS_REMOTE_READ | memory::kRemoteOnly;
  window.qpn = 0x4321;
  window.qpn_mask = UINT32_MAX;
  writer.publish(window);
  EXPECT_EQ(find([](AccessRequest&) {}), kBase + 16);
  EXPECT_EQ(find([](AccessRequest& r) { r.qpn = 0x4322; }), std::nullopt);
}

TEST_F(Boarded, ForgetsWhatIsWithdrawn) {
  publish();
  writer.withdraw_key(kKey);
  EXPECT_EQ(find([](AccessRequest&) {}), std::nullopt);
  writer.publish(region());
  writer.withdraw_qp(qp().qpn);
  EXPECT_EQ(find([](AccessRequest&) {}), std::nullopt);
  writer.withdraw_qp(qp().qpn);  // once more is harmless
  writer.withdraw_key(kKey ^ 0x100);
}

TEST_F(Boarded, ShowsTheLatest) {
  publish();
  memory::Opening moved = region();
  moved.base += 0x10000;
  writer.publish(moved);
  EXPECT_EQ(find([](AccessRequest&) {}), kBase + 0x10000 + 16);
  BoardQp closed = qp();
  closed.access = IBV_ACCESS_LOCAL_WRITE;
  writer.publish(closed);
  EXPECT_EQ(find([](AccessRequest&) {}), std::nullopt);
}

TEST_F(Boarded, WhoRemembersIsToldWhatTheBoardSaysNow) {
  std::mt19937 random(test::seed());
  const auto pick = [&](uint32_t below) {
    return std::uniform_int_distribution<uint32_t>(0, below - 1)(random);
  };
  uint32_t allowed = 0;
  for (int step = 0; step < 20'000; ++step) {
    // Some of them are remembered in the same place.
    const uint32_t key = kKey + (pick(4) * 8 << 8) + pick(2);
    const uint32_t qpn = 0x4321 + pick(2);
    const memory::Access rights = pick(2) == 0 ? kAll : uint32_t{IBV_ACCESS_REMOTE_WRITE};
    switch (pick(16)) {
      case 0: {
        memory::Opening opening = region();
        opening.key = key;
        opening.base += pick(2) * 0x10000;
        opening.access = rights;
        writer.publish(opening);
        break;
      }
      case 1:
        writer.withdraw_key(key);
        break;
      case 2: {
        BoardQp changed = qp();
        changed.qpn = qpn;
        changed.access = rights;
        changed.receive_psn += pick(2);
        writer.publish(changed);
        break;
      }
      case 3:
        writer.withdraw_qp(qpn);
        break;
      default: {
        AccessRequest asked = request();
        asked.rkey = key;
        asked.qpn = qpn;
        asked.address += pick(4) == 0 ? kLength : pick(64);
        asked.first_psn += pick(2);
        if (pick(2) == 0) asked.wanted = IBV_ACCESS_REMOTE_WRITE;
        const auto found = find_access(*board, asked);
        ASSERT_EQ(finder.find(asked), found) << "step " << step;
        allowed += found ? 1 : 0;
      }
    }
  }
  EXPECT_GT(allowed, 500u);
}

TEST_F(Boarded, AKeyThatCameBackIsOfAnotherGeneration) {
  publish();
  const auto before = find_key(*board, kKey);
  ASSERT_TRUE(before);
  EXPECT_EQ(before->base, kBase);
  EXPECT_EQ(before->length, kLength);
  EXPECT_EQ(before->access, kAll);
  EXPECT_EQ(find_key(*board, kKey), before);
  EXPECT_EQ(find_access(*board, request())->generation, before->generation);
  writer.withdraw_key(kKey);
  EXPECT_EQ(find_key(*board, kKey), std::nullopt);
  writer.publish(region());
  const auto after = find_key(*board, kKey);
  ASSERT_TRUE(after);
  EXPECT_NE(after->generation, before->generation);
}

// In another place its line has been written as often, perhaps.
TEST_F(Boarded, AKeyThatCameBackElsewhereIsOfAnotherGeneration) {
  const uint32_t neighbour = kKey + (kBoardKeys << 8);  // the same home
  writer.publish(region(neighbour));
  writer.publish(region());
  const auto before = find_key(*board, kKey);
  writer.withdraw_key(kKey);
  writer.withdraw_key(neighbour);
  writer.publish(region());
  const auto after = find_key(*board, kKey);
  ASSERT_TRUE(before && after);
  EXPECT_NE(after->generation, before->generation);
}

TEST_F(Boarded, ShowsWhoMayHaveLent) {
  const transport::Connection connection{
      .from = roce::Qpn(0x4321), .to = roce::Qpn(0x8765), .first_psn = roce::Psn(0xdef)};
  EXPECT_FALSE(find_connected(*board, connection));
  BoardQp without_rights = qp();
  without_rights.access = 0;
  writer.publish(without_rights);
  const auto found = find_connected(*board, connection);
  ASSERT_TRUE(found);
  EXPECT_EQ(find_connected(*board, connection), found);
  EXPECT_FALSE(find([](AccessRequest&) {})) << "it takes no requests";
  EXPECT_FALSE(find_connected(
      *board, {.from = roce::Qpn(0x4322), .to = roce::Qpn(0x8765), .first_psn = roce::Psn(0xdef)}));
  EXPECT_FALSE(find_connected(
      *board, {.from = roce::Qpn(0x4321), .to = roce::Qpn(0x8766), .first_psn = roce::Psn(0xdef)}));
  EXPECT_FALSE(find_connected(
      *board, {.from = roce::Qpn(0x4321), .to = roce::Qpn(0x8765), .first_psn = roce::Psn(0xabc)}));
  EXPECT_FALSE(find_connected(*board, {}));
}

TEST_F(Boarded, ALenderThatWasConnectedAgainIsAnother) {
  const transport::Connection connection{
      .from = roce::Qpn(0x4321), .to = roce::Qpn(0x8765), .first_psn = roce::Psn(0xdef)};
  writer.publish(qp());
  const auto before = find_connected(*board, connection);
  writer.withdraw_qp(qp().qpn);
  EXPECT_FALSE(find_connected(*board, connection));
  writer.publish(qp());
  EXPECT_TRUE(find_connected(*board, connection));
  EXPECT_NE(find_connected(*board, connection), before);
}

TEST_F(Boarded, ThereIsNoKeyZero) {
  EXPECT_EQ(find_key(*board, 0), std::nullopt);
}

// Keys with the same home: so many have places, and none of the others is mistaken for one of them.
TEST_F(Boarded, KeysThatFindNoPlaceAreNotShown) {
  writer.publish(qp());
  constexpr uint32_t kMany = kBoardProbes + 3;
  const auto key = [](uint32_t i) { return (kBoardKeys * i + 5) << 8 | 1; };
  for (uint32_t i = 0; i < kMany; ++i) writer.publish(region(key(i)));
  const auto shown = [&](uint32_t i) { return find([&](AccessRequest& r) { r.rkey = key(i); }).has_value(); };
  for (uint32_t i = 0; i < kMany; ++i) EXPECT_EQ(shown(i), i < kBoardProbes);
  writer.withdraw_key(key(2));
  EXPECT_FALSE(shown(2));
  EXPECT_TRUE(shown(kBoardProbes - 1));  // it lies behind a free place now
  writer.publish(region(key(kMany - 1)));
  EXPECT_TRUE(shown(kMany - 1));
}

// A line whose writer died in the midst of it keeps nobody waiting.
TEST_F(Boarded, ALineThatIsBeingWrittenSaysNothing) {
  publish();
  for (auto& line : board->keys) *reinterpret_cast<std::atomic<uint32_t>*>(&line) |= 1;
  EXPECT_EQ(find([](AccessRequest&) {}), std::nullopt);
}

TEST_F(Boarded, IsKnownByItsFirstWords) {
  EXPECT_TRUE(is_formatted(*board));
  ++board->version;
  EXPECT_FALSE(is_formatted(*board));
  EXPECT_FALSE(is_formatted(*std::make_unique<Board>()));
}

}  // namespace
}  // namespace verbena::shm
