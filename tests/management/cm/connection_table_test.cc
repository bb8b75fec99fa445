// SPDX-License-Identifier: Apache-2.0
#include "management/cm/connection_table.h"

#include <cerrno>

#include <gtest/gtest.h>

namespace verbena::cm {
namespace {

using std::chrono::seconds;

roce::Address address(uint8_t last) {
  roce::Address address;
  address.bytes[0] = 0xfd;
  address.bytes[15] = last;
  return address;
}

roce::Path path_to(uint8_t peer) {
  roce::Path path;
  path.source = address(1);
  path.destination = address(peer);
  return path;
}

class ConnectionTableTest : public testing::Test, private Sink {
 protected:
  static constexpr uint32_t kAccount = 1000;

  ConnectionTableTest() { config.max_waiting = 2; }

  Connection& passive(uint32_t remote_id, uint32_t remote_qpn) {
    Connection& connection = table.create(0, path_to(2), kAccount);
    table.enter(connection, State::kReqReceived);
    connection.info.remote_id = remote_id;
    connection.info.remote_qpn = remote_qpn;
    connection.info.ack_timeout = 18;
    table.insert_remote_numbers(connection);
    return connection;
  }

  ManagerConfig config;
  Counters counters;
  ConnectionTable table{config, *this, counters, Random(1)};
  TimePoint now{seconds(100)};

 private:
  void send(const Mad&, const roce::Path&) override {}
};

TEST_F(ConnectionTableTest, FindsAConnectionByEachOfItsNumbers) {
  Connection& connection = passive(7, 70);
  EXPECT_EQ(table.find(connection.info.local_id), &connection);
  EXPECT_EQ(table.find_by_remote_id({address(2), 7}), &connection);
  EXPECT_EQ(table.find_by_remote_qpn({}, address(2), 70, false), &connection);
  EXPECT_EQ(table.find_by_remote_id({address(3), 7}), nullptr);
  EXPECT_EQ(table.find_by_remote_qpn({}, address(2), 7, false), nullptr);
}

TEST_F(ConnectionTableTest, FreesTheRemoteQpnWhenTheConnectionBeginsToEnd) {
  Connection& connection = passive(7, 70);
  table.enter(connection, State::kEstablished);
  table.enter(connection, State::kDreqSent);
  EXPECT_EQ(table.find_by_remote_qpn({}, address(2), 70, false), nullptr);
  EXPECT_EQ(table.find_by_remote_id({address(2), 7}), &connection);
  table.enter(connection, State::kIdle);
  EXPECT_EQ(table.find_by_remote_id({address(2), 7}), nullptr);
}

TEST_F(ConnectionTableTest, FindsTheConnectionsOfAQpUntilThePeerKnowsThatTheyAreOver) {
  const auto with_qpn = [&](uint32_t qpn) -> Connection& {
    Connection& connection = table.create(0, path_to(2), kAccount);
    connection.info.local_qpn = qpn;
    table.enter(connection, State::kReqSent);
    return connection;
  };
  Connection& later = with_qpn(9);
  Connection& first = with_qpn(5);
  EXPECT_EQ(table.next_by_local_qpn(0, 0), &first);
  EXPECT_EQ(table.next_by_local_qpn(5, first.info.local_id), &first);
  EXPECT_EQ(table.next_by_local_qpn(5, first.info.local_id + 1), &later);
  EXPECT_EQ(table.next_by_local_qpn(10, 0), nullptr);
  for (const State state : {State::kEstablished, State::kDreqSent}) {
    table.enter(first, state);
    EXPECT_EQ(table.next_by_local_qpn(0, 0), &first);
  }
  table.enter_time_wait(first, now);
  EXPECT_EQ(table.next_by_local_qpn(0, 0), &later);
  table.release(later);
  EXPECT_EQ(table.next_by_local_qpn(0, 0), nullptr);
}

TEST_F(ConnectionTableTest, CountsThoseThatAreHalfOpen) {
  Connection& connection = passive(7, 70);
  EXPECT_EQ(table.half_open(), 1u);
  table.enter(connection, State::kRepSent);
  EXPECT_EQ(table.half_open(), 1u);
  table.enter(connection, State::kEstablished);
  EXPECT_EQ(table.half_open(), 0u);
}

TEST_F(ConnectionTableTest, EndsTheTimerOfTheStateThatIsLeft) {
  Connection& connection = passive(7, 70);
  table.set_timer(connection, now);
  EXPECT_EQ(table.deadline(kAccount), now);
  table.enter(connection, State::kEstablished);
  EXPECT_EQ(table.deadline(kAccount), kNever);
}

TEST_F(ConnectionTableTest, FindsForItsOwnerWhatTheOwnerHas) {
  Connection& connection = passive(7, 70);
  const LocalId id = connection.info.local_id;
  EXPECT_EQ(table.find_owned(id, {State::kReqReceived}).value(), &connection);
  EXPECT_EQ(table.find_owned(id, {State::kEstablished}).error().code, EINVAL);
  connection.has_owner = false;
  EXPECT_EQ(table.find_owned(id).error().code, ENOENT);
}

TEST_F(ConnectionTableTest, ForgetsWhatHasNoOwnerOnlyWhenNothingIsLeftToDo) {
  Connection& connection = passive(7, 70);
  const LocalId id = connection.info.local_id;
  connection.has_owner = false;
  table.linger(connection, now);
  table.release_if_done(connection);
  EXPECT_EQ(table.find(id), &connection);
  EXPECT_EQ(table.find_by_remote_id({address(2), 7}), &connection);  // so that its REJ can be repeated
  table.stop_waiting(connection);
  table.release_if_done(connection);
  EXPECT_EQ(table.find(id), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

TEST_F(ConnectionTableTest, CutsTheOldestWaitShortWhenTooManyWait) {
  Connection& oldest = passive(7, 70);
  Connection& second = passive(8, 80);
  Connection& third = passive(9, 90);
  for (Connection* connection : {&oldest, &second, &third}) table.enter_time_wait(*connection, now);
  EXPECT_EQ(table.waiting(), 2u);
  EXPECT_EQ(counters.time_wait_cut_short, 1u);
  EXPECT_EQ(&table.next_due(kAccount), &oldest);  // the timer reports it to the owner
  EXPECT_EQ(table.deadline(kAccount), now);
}

TEST_F(ConnectionTableTest, TakesUpAConnectionUnderItsOldId) {
  ConnectionInfo agreed;
  agreed.local_id = 0x1234;
  agreed.remote_id = 7;
  agreed.remote_qpn = 70;
  agreed.path = path_to(2);
  Connection& connection = table.take_up(agreed, 5);
  EXPECT_EQ(connection.info.state, State::kEstablished);
  EXPECT_EQ(connection.info.context, 5u);
  EXPECT_EQ(table.find(0x1234), &connection);
  EXPECT_EQ(table.find_by_remote_qpn({}, address(2), 70, false), &connection);
}

}  // namespace
}  // namespace verbena::cm
