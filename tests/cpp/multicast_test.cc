// SPDX-License-Identifier: Apache-2.0
// Multicast groups of the C++ API.
#include <cerrno>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <verbena/async/join.hpp>
#include <verbena/cm/multicast.hpp>

#include "cpp/code_of.h"
#include "cpp/suspensions.h"

namespace verbena {
namespace {

using testing::code_of;

constexpr const char* kGroup = "239.1.2.3";
constexpr const char* kInterface = "127.0.0.1";

class Multicast : public ::testing::Test {
 protected:
  loop io_;
};

TEST_F(Multicast, ReachesTheOtherMembers) {
  io_.run([this](loop&) -> task<> {
    multicast_group one = co_await join_multicast(io_, kGroup, kInterface);
    multicast_group other = co_await join_multicast(io_, kGroup, kInterface);
    for (const char* text : {"hello", "a datagram"}) {
      co_await one.send(text);
      const buffer got = co_await other.receive();
      EXPECT_EQ(got.text(), text);
    }
    co_await one.close();
    co_await other.close();
  }(io_));
}

TEST_F(Multicast, WaitsForRoomInTheSendQueue) {
  io_.run([this](loop&) -> task<> {
    multicast_group one = co_await join_multicast(io_, kGroup, kInterface, {.sends = 2});
    for (int i = 0; i < 100; ++i) co_await one.send(std::to_string(i));
    co_await one.close();
  }(io_));
}

TEST_F(Multicast, DropsDatagramsThatTheProgramDoesNotTake) {
  io_.run([this](loop&) -> task<> {
    multicast_group one = co_await join_multicast(io_, kGroup, kInterface);
    multicast_group other = co_await join_multicast(io_, kGroup, kInterface, {.receives = 4});
    for (int i = 0; i < 100; ++i) co_await one.send(std::to_string(i));
    co_await one.close();
    co_await other.close();
    int kept = 0;
    while (const buffer each = co_await other.receive()) ++kept;
    EXPECT_LE(kept, 4);
  }(io_));
}

TEST_F(Multicast, EndsTheReceivingThatIsUnderWay) {
  io_.run([this](loop&) -> task<> {
    multicast_group one = co_await join_multicast(io_, kGroup, kInterface);
    const auto receive = [&]() -> task<bool> {
      const buffer end = co_await one.receive();
      co_return !end;
    };
    const auto [has_ended, unused] = co_await when_all(receive(), one.close());
    EXPECT_TRUE(has_ended);
    EXPECT_EQ(co_await code_of(one.send("late")), ENOTCONN);
  }(io_));
}

TEST_F(Multicast, RefusesWhatIsTooLongOrNoGroup) {
  io_.run([this](loop&) -> task<> {
    multicast_group one = co_await join_multicast(io_, kGroup, kInterface);
    EXPECT_EQ(co_await code_of(one.send(std::string(one.max_message_size(), 'x'))), 0);
    EXPECT_EQ(co_await code_of(one.send(std::string(one.max_message_size() + 1, 'x'))), EMSGSIZE);
    EXPECT_EQ(co_await code_of(join_multicast(io_, "nonsense", kInterface)), EADDRNOTAVAIL);
    EXPECT_NE(co_await code_of(join_multicast(io_, "127.0.0.1", kInterface)), 0);
    EXPECT_NE(co_await code_of(join_multicast(io_, kGroup, "192.0.2.1")), 0);
  }(io_));
}

TEST_F(Multicast, MayBeDestroyedAtAnySuspension) {
  const auto work = [this]() -> task<> {
    multicast_group one = co_await join_multicast(io_, kGroup, kInterface);
    multicast_group other = co_await join_multicast(io_, kGroup, kInterface);
    co_await one.send("hello");
    co_await other.receive();
    co_await one.close();
  };
  testing::destroy_at_each_suspension(io_, work);
}

}  // namespace
}  // namespace verbena
