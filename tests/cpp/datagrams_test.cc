// SPDX-License-Identifier: Apache-2.0
// Datagrams of the C++ API.
#include <cerrno>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <verbena/async/join.hpp>
#include <verbena/cm/datagrams.hpp>

#include "cpp/code_of.h"
#include "cpp/suspensions.h"

namespace verbena {
namespace {

using testing::code_of;

class Datagrams : public ::testing::TestWithParam<const char*> {
 protected:
  datagram_socket make_socket(const datagram_options& options = {}) {
    return datagram_socket(io_, std::string(GetParam()) + ":0", options);
  }
  static std::string where(const datagram_socket& socket) {
    return std::string(GetParam()) + ":" + std::to_string(socket.port());
  }

  loop io_;
};

TEST_P(Datagrams, ReachAResolvedSocketWhichAnswers) {
  io_.run([this](loop&) -> task<> {
    datagram_socket server = make_socket(), client = make_socket();
    const auto serve = [&]() -> task<> {
      for (int i = 0; i < 3; ++i) {
        const datagram asked = co_await server.receive();
        co_await server.send(asked.from, asked.payload.bytes());
      }
    };
    const auto ask = [&]() -> task<> {
      const datagram_address to = co_await client.resolve(where(server));
      for (const char* text : {"hello", "", "again"}) {
        co_await client.send(to, text);
        const datagram answer = co_await client.receive();
        EXPECT_TRUE(answer);
        EXPECT_EQ(answer.text(), text);
        EXPECT_EQ(answer.from.qp_num(), to.qp_num());
      }
    };
    co_await when_all(serve(), ask());
    co_await client.close();
    co_await server.close();
  }(io_));
}

TEST_P(Datagrams, HaveAtMostOnePacket) {
  io_.run([this](loop&) -> task<> {
    datagram_socket one = make_socket();
    const datagram_address self = co_await one.resolve(where(one));
    const std::string longest(one.max_message_size(), 'x');
    co_await one.send(self, longest);
    const datagram got = co_await one.receive();
    EXPECT_EQ(got.text(), longest);
    EXPECT_EQ(co_await code_of(one.send(self, longest + "x")), EMSGSIZE);
    EXPECT_EQ(co_await code_of(one.send(datagram_address(), "to nobody")), EDESTADDRREQ);
  }(io_));
}

TEST_P(Datagrams, AreDroppedIfTheProgramDoesNotTakeThem) {
  io_.run([this](loop&) -> task<> {
    datagram_socket sender = make_socket(), receiver = make_socket({.receives = 4});
    const datagram_address to = co_await sender.resolve(where(receiver));
    for (int i = 0; i < 100; ++i) co_await sender.send(to, std::to_string(i));
    co_await sender.close();
    co_await receiver.close();
    int kept = 0;
    while (const datagram each = co_await receiver.receive()) ++kept;
    EXPECT_LE(kept, 4);
  }(io_));
}

TEST_P(Datagrams, EndTheReceivingThatIsUnderWay) {
  io_.run([this](loop&) -> task<> {
    datagram_socket one = make_socket();
    const datagram_address self = co_await one.resolve(where(one));
    const auto receive = [&]() -> task<bool> {
      const datagram end = co_await one.receive();
      co_return !end;
    };
    const auto [has_ended, unused] = co_await when_all(receive(), one.close());
    EXPECT_TRUE(has_ended);
    EXPECT_EQ(co_await code_of(one.send(self, "late")), ENOTCONN);
  }(io_));
}

TEST_P(Datagrams, AreRefusedWhereNobodyReceivesThem) {
  io_.run([this](loop&) -> task<> {
    datagram_socket one = make_socket();
    std::string nobody;
    {
      const datagram_socket other = make_socket();
      nobody = where(other);
    }
    io_.turn();
    EXPECT_EQ(co_await code_of(one.resolve(nobody)), ECONNREFUSED);
    EXPECT_EQ(co_await code_of(one.resolve("nonsense")), EINVAL);
  }(io_));
}

TEST_P(Datagrams, MayBeDestroyedAtAnySuspension) {
  const auto work = [this]() -> task<> {
    datagram_socket one = make_socket(), other = make_socket();
    const datagram_address to = co_await one.resolve(where(other));
    co_await one.send(to, "hello");
    co_await other.receive();
    co_await one.close();
  };
  testing::destroy_at_each_suspension(io_, work);
}

INSTANTIATE_TEST_SUITE_P(Families, Datagrams, ::testing::Values("127.0.0.1", "[::1]"),
                         [](const auto& family) { return *family.param == '[' ? "ipv6" : "ipv4"; });

TEST(DatagramSocket, NeedsAnAddressOfAnAdapter) {
  loop io;
  const auto code = [&](const char* where) {
    try {
      datagram_socket(io, where);
      return 0;
    } catch (const exception& refused) {
      return refused.error().code();
    }
  };
  EXPECT_EQ(code("192.0.2.1:7471"), EADDRNOTAVAIL);
  EXPECT_EQ(code("nonsense"), EINVAL);
  datagram_socket taken(io, "127.0.0.1:0");
  // EADDRNOTAVAIL where EADDRINUSE is expected: the kernel takes loopback addresses for those of all
  // interfaces.
  EXPECT_EQ(code(("127.0.0.1:" + std::to_string(taken.port())).c_str()), EADDRNOTAVAIL);
}

}  // namespace
}  // namespace verbena
