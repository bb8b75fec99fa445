// SPDX-License-Identifier: Apache-2.0
// The end of a slot's lease: who is told, and when another user may have the slot.
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include <gtest/gtest.h>

#include "agent/pausing_loop.h"
#include "agent/sessions/client_events.h"
#include "agent/slots/slot_requests.h"
#include "control/model/message_socket.h"

namespace verbena::agent {
namespace {

using protocol::MessageType;

constexpr uid_t kOwn = 0;
constexpr uid_t kAttacker = 1'000'001;
constexpr uid_t kVictim = 1'000'002;
constexpr uid_t kHonest = 1'000'003;
constexpr Duration kLongRest = std::chrono::minutes(1);

class ChannelRequestsTest : public ::testing::Test, private AgentHost {
 protected:
  // The agent's part of a session, and the client's event socket.
  struct Program final : ClientEvents::Client {
    Program(ChannelRequestsTest& all, uint64_t id, uid_t user)
        : test(all), session(id), events(all.loop_, all.sockets_, user, all.publisher_, *this) {
      auto end = events.open(protocol::kProtocolVersion);
      EXPECT_TRUE(end);
      if (end) socket = std::move(*end);
    }
    void on_ask_peer(uint64_t, uint32_t) override {}
    void on_ask_channel(uint32_t own_slot, uint32_t peer_slot) override {
      test.channels_.ask_for_channel(session, own_slot, peer_slot);
    }
    void on_end_heard(uint32_t own_slot, uint32_t ended) override {
      test.channels_.end_heard(session, own_slot, ended);
    }
    void on_room() override { test.channels_.has_room(session); }
    void on_end() override {}

    // Returns the next message about a channel, or nullopt if none has come.
    std::optional<protocol::ChannelMessage> hear() const {
      protocol::ChannelMessage message{};
      const auto got = control::receive_message(socket.get(), std::as_writable_bytes(std::span(&message, 1)));
      return got && got->bytes > 0 ? std::optional(message) : std::nullopt;
    }
    void acknowledge(const protocol::ChannelMessage& message) const {
      const auto seen = protocol::request_header(MessageType::kChannelSeen, message.header.sequence);
      EXPECT_TRUE(control::send_message(socket.get(), protocol::bytes_of(seen)));
    }

    ChannelRequestsTest& test;
    const uint64_t session;
    ClientEvents events;
    UniqueFd socket;
  };

  ClientEvents* events_of(uint64_t session) override {
    const auto found = programs_.find(session);
    return found != programs_.end() ? &found->second->events : nullptr;
  }
  Program& start(uid_t user) {
    const uint64_t id = programs_.size() + 1;
    return *(programs_[id] = std::make_unique<Program>(*this, id, user));
  }
  uint32_t take_slot(const Program& program, uid_t user) {
    Lessee lessee;
    lessee.session = program.session;
    lessee.uid = user;
    lessee.protocol_version = protocol::kProtocolVersion;
    const auto slot = table_.lease(lessee, now_);
    EXPECT_TRUE(slot);
    return slot ? slot->index : 0;
  }
  void return_slot(const Program& program, uint32_t slot) {
    channels_.lease_ending(slot);
    EXPECT_TRUE(table_.take_back(slot, program.session, now_));
  }
  // Joins the slots, and has both processes receive their ends.
  void join(const Program& a, uint32_t slot_a, const Program& b, uint32_t slot_b) {
    channels_.ask_for_channel(a.session, slot_a, slot_b);
    ASSERT_TRUE(a.hear());
    ASSERT_TRUE(b.hear());
  }
  void run() {
    do {
      loop_.in_next_round([] {});
      loop_.run_round();
    } while (loop_.has_work_for(kAttacker) || loop_.has_work_for(kVictim));
  }

  TimePoint now_{std::chrono::hours(1)};
  PausingLoop pausing_;
  EventLoop& loop_ = pausing_.loop();
  LinkTable links_;
  LinkPublisher publisher_{links_, *this};
  ClientSockets sockets_{loop_, {.all = 1000, .reserve = 0}, kOwn};
  Wire wire_{4791};
  SlotTable table_{wire_, kOwn, [this](uint32_t slot, bool to_another_user) {
                     return !(to_another_user && channels_.is_awaited(slot));
                   }};
  CounterPublisher counters_{loop_, table_, links_, sockets_.closer(), kOwn};
  DomainTable domains_{sockets_.closer(), kOwn, DomainTable::room_with(1024)};
  SlotLeases leases_{loop_, wire_, table_, counters_, domains_, *this};
  ChannelRequests channels_{loop_, leases_, *this};
  std::map<uint64_t, std::unique_ptr<Program>> programs_;
  Program& attacker_ = start(kAttacker);
  Program& victim_ = start(kVictim);
  Program& honest_ = start(kHonest);
};

// The former holder may have kept its end of the channel.
TEST_F(ChannelRequestsTest, ASlotGoesToAnotherUserOnlyWhenItsPeersHaveAcknowledgedItsEnd) {
  const uint32_t slot = take_slot(attacker_, kAttacker);
  join(attacker_, slot, victim_, take_slot(victim_, kVictim));
  return_slot(attacker_, slot);
  now_ += kLongRest;
  EXPECT_NE(take_slot(honest_, kHonest), slot) << "not told yet";
  run();
  const auto end = victim_.hear();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->header.error, ESTALE);
  EXPECT_NE(take_slot(honest_, kHonest), slot) << "told, but not acknowledged";
  victim_.acknowledge(*end);
  run();
  EXPECT_EQ(take_slot(honest_, kHonest), slot);
}

TEST_F(ChannelRequestsTest, ItsFormerUserGetsASlotThatAPeerHasNotAcknowledged) {
  const uint32_t slot = take_slot(attacker_, kAttacker);
  join(attacker_, slot, victim_, take_slot(victim_, kVictim));
  return_slot(attacker_, slot);
  now_ += kLongRest;
  EXPECT_EQ(take_slot(attacker_, kAttacker), slot);
}

TEST_F(ChannelRequestsTest, APeerWhoseLeaseHasEndedNeedNotAcknowledge) {
  const uint32_t slot = take_slot(attacker_, kAttacker);
  const uint32_t peer = take_slot(victim_, kVictim);
  join(attacker_, slot, victim_, peer);
  return_slot(attacker_, slot);
  return_slot(victim_, peer);
  now_ += kLongRest;
  EXPECT_EQ(take_slot(honest_, kHonest), slot);
}

// A program must not confirm that the end of another program's slot is known.
TEST_F(ChannelRequestsTest, ASessionAcknowledgesForItsOwnSlotsOnly) {
  const uint32_t slot = take_slot(attacker_, kAttacker);
  join(attacker_, slot, victim_, take_slot(victim_, kVictim));
  return_slot(attacker_, slot);
  run();
  const auto end = victim_.hear();
  ASSERT_TRUE(end);
  attacker_.acknowledge(*end);
  run();
  EXPECT_TRUE(channels_.is_awaited(slot));
}

// Else the end of the former lease would end the channel of the new one, or its acknowledgement be mistaken.
TEST_F(ChannelRequestsTest, ThereIsNoNewChannelBeforeTheEndOfTheFormerOneIsAcknowledged) {
  const uint32_t slot = take_slot(attacker_, kAttacker);
  const uint32_t peer = take_slot(victim_, kVictim);
  join(attacker_, slot, victim_, peer);
  return_slot(attacker_, slot);
  now_ += kLongRest;
  ASSERT_EQ(take_slot(attacker_, kAttacker), slot);
  run();
  const auto end = victim_.hear();
  ASSERT_TRUE(end);
  channels_.ask_for_channel(attacker_.session, slot, peer);
  const auto refused = attacker_.hear();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->header.error, EAGAIN);
  EXPECT_FALSE(victim_.hear());
  victim_.acknowledge(*end);
  run();
  join(attacker_, slot, victim_, peer);
}

// Messages to the victim take long, perhaps because others made them so.
TEST_F(ChannelRequestsTest, AUserThatPausesIsToldOfAnEndAfterwards) {
  const uint32_t slot = take_slot(attacker_, kAttacker);
  join(attacker_, slot, victim_, take_slot(victim_, kVictim));
  pausing_.make_pause(kVictim);
  return_slot(attacker_, slot);
  for (int round = 0; round < 3; ++round) {
    loop_.in_next_round([] {});
    loop_.run_round();
  }
  EXPECT_FALSE(victim_.hear());
  pausing_.end_pauses();
  run();
  EXPECT_TRUE(victim_.hear());
}

TEST_F(ChannelRequestsTest, ASocketThatIsFullTakesTheEndsWhenItHasRoom) {
  const uint32_t slot = take_slot(attacker_, kAttacker);
  const uint32_t peer = take_slot(victim_, kVictim);
  join(attacker_, slot, victim_, peer);
  while (victim_.events.tell_channel({peer, 999, false, ESTALE, {}, kNobody})) {
  }
  return_slot(attacker_, slot);
  run();
  std::optional<uint32_t> last;
  while (const auto end = victim_.hear()) last = end->peer_slot;
  EXPECT_EQ(last, 999u);
  run();
  const auto end = victim_.hear();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->peer_slot, slot);
}

}  // namespace
}  // namespace verbena::agent
