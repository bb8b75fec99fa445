// SPDX-License-Identifier: Apache-2.0
// Connections of the C++ API: messages, credits, remote memory, ends and failures.
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <verbena/async/join.hpp>
#include <verbena/cm.hpp>

#include "cpp/code_of.h"

namespace verbena {
namespace {

using testing::code_of;

using namespace std::chrono_literals;

struct Counter {
  std::uint64_t hits;
  char page[96];
};

std::string address_of(const listener& there) {
  return "127.0.0.1:" + std::to_string(there.port());
}

task<> echo(connection peer) {
  while (buffer message = co_await peer.receive()) co_await peer.send(std::move(message));
}

// A loop, and a listener whose connections a coroutine of the test serves.
class Connections : public ::testing::Test {
 protected:
  // Serves the next connection.
  template <class Serve>
  void serve(Serve with) {
    io_.spawn([this, with](loop&) -> task<> { co_await with(co_await listener_.accept()); });
  }
  task<connection> connected(connection_options options = {}) {
    return connect(io_, address_of(listener_), options);
  }

  loop io_;
  listener listener_{io_, "127.0.0.1:0"};
};

// `while (co_await c.receive())` does not compile, as GCC 12 would miscompile it. A declaration does.
static_assert(!std::is_constructible_v<bool, buffer> && std::is_constructible_v<bool, buffer&> &&
              std::is_constructible_v<bool, const buffer&>);

TEST_F(Connections, SendAndReceiveMessages) {
  serve(echo);
  io_.run([this](loop&) -> task<> {
    connection peer = co_await connected();
    for (const char* text : {"hello", "", "a message"}) {
      co_await peer.send(text);
      const buffer answer = co_await peer.receive();
      EXPECT_TRUE(answer);
      EXPECT_EQ(answer.text(), text);
    }
    co_await peer.close();
    EXPECT_FALSE(peer.failure());
  }(io_));
}

TEST_F(Connections, SendMoreMessagesThanThereIsRoomFor) {
  constexpr int kMessages = 2000;
  std::vector<int> received;
  serve([&](connection peer) -> task<> {
    while (buffer message = co_await peer.receive()) {
      received.push_back(*reinterpret_cast<const int*>(message.data()));
      if (received.size() % 7 == 0) co_await io_.yield();
    }
  });
  io_.run([&](loop&) -> task<> {
    connection peer = co_await connected({.sends = 8});
    std::vector<pending<void>> all;
    for (int i = 0; i < kMessages; ++i) all.push_back(peer.send_value(i));
    for (auto& each : all) co_await each;
    co_await peer.close();
    while (io_.running() != 0) co_await io_.yield();
  }(io_));
  ASSERT_EQ(received.size(), std::size_t{kMessages});
  for (int i = 0; i < kMessages; ++i) EXPECT_EQ(received[static_cast<std::size_t>(i)], i);
}

// Both ends send before either receives: each must go on returning credits.
TEST_F(Connections, DoNotWaitForEachOthersCredits) {
  constexpr int kMessages = 500;
  const auto both = [](connection& peer) -> task<> {
    std::vector<pending<void>> all;
    for (int i = 0; i < kMessages; ++i) all.push_back(peer.send_value(i));
    for (int i = 0; i < kMessages; ++i) EXPECT_EQ(co_await peer.receive_value<int>(), i);
    for (auto& each : all) co_await each;
  };
  serve([&](connection peer) -> task<> {
    co_await both(peer);
    co_await peer.receive();
  });
  io_.run([&](loop&) -> task<> {
    connection peer = co_await connected({.receives = 2, .sends = 3});
    co_await both(peer);
    co_await peer.close();
  }(io_));
}

TEST_F(Connections, ReachRemoteMemory) {
  serve([](connection peer) -> task<> {
    shared<Counter> counter = peer.share<Counter>();
    counter->hits = 40;
    co_await peer.send_value(counter.remote());
    co_await peer.receive();  // until the peer is done
    EXPECT_EQ(counter->hits, 7U);
    EXPECT_EQ(counter->page[1], 'y');
  });
  io_.run([this](loop&) -> task<> {
    connection peer = co_await connected();
    const auto there = co_await peer.receive_value<remote<Counter>>();
    EXPECT_EQ(co_await peer.fetch_add(there.member(&Counter::hits), 2), 40U);
    EXPECT_EQ(co_await peer.compare_exchange(there.member(&Counter::hits), 42, 7), 42U);
    EXPECT_EQ(co_await peer.compare_exchange(there.member(&Counter::hits), 42, 9), 7U);
    lease<Counter> copy = co_await peer.read(there);
    EXPECT_EQ(copy->hits, 7U);
    copy->page[1] = 'y';
    co_await peer.write(there.memory, std::move(copy).release());
    EXPECT_EQ((co_await peer.read(there))->page[1], 'y');
    co_await peer.send("done");
  }(io_));
}

TEST_F(Connections, LetPeersAddWithoutTheRightToRead) {
  Counter counter{.hits = 40, .page = {}};
  serve([&](connection peer) -> task<> {
    const shared<Counter> access = peer.share(counter, access::remote_atomic);
    co_await peer.send_value(access.remote());
    EXPECT_EQ(co_await code_of(peer.receive()), 0);
  });
  io_.run([this](loop&) -> task<> {
    connection peer = co_await connected();
    const auto there = co_await peer.receive_value<remote<Counter>>();
    EXPECT_EQ(co_await peer.fetch_add(there.member(&Counter::hits), 2), 40U);
    EXPECT_EQ(co_await code_of(peer.read(there)), EIO);
    EXPECT_EQ(peer.failure()->status(), IBV_WC_REM_ACCESS_ERR);
  }(io_));
  EXPECT_EQ(counter.hits, 42U);
}

TEST_F(Connections, ReachElementsOfRemoteArrays) {
  using Numbers = std::array<std::uint64_t, 8>;
  serve([](connection peer) -> task<> {
    shared<Numbers> numbers = peer.share<Numbers>();
    (*numbers)[5] = 50;
    co_await peer.send_value(numbers.remote());
    co_await peer.receive();
    EXPECT_EQ((*numbers)[7], 70U);
  });
  io_.run([this](loop&) -> task<> {
    connection peer = co_await connected();
    const auto there = co_await peer.receive_value<remote<Numbers>>();
    EXPECT_EQ(*co_await peer.read(there[5]), 50U);
    co_await peer.write(there[7], 70);
    co_await peer.send("done");
  }(io_));
}

TEST_F(Connections, EndTheReceivingOfThePeer) {
  bool has_ended = false;
  serve([&](connection peer) -> task<> {
    EXPECT_EQ((co_await peer.receive()).text(), "last");
    for (int again = 0; again < 2; ++again) {
      const buffer end = co_await peer.receive();
      EXPECT_FALSE(end);
    }
    EXPECT_FALSE(peer.failure());
    has_ended = true;
  });
  io_.run([&](loop&) -> task<> {
    {
      connection peer = co_await connected();
      co_await peer.send("last");
    }
    while (!has_ended) co_await io_.yield();
  }(io_));
}

// The adapter may flush the SENDs before the loop learns of the peer's disconnection.
TEST_F(Connections, EndInOrderWhenThePeerDisconnectsDuringASend) {
  bool has_ended = false;
  serve([&](connection peer) -> task<> {
    int code = 0;
    while (code == 0) code = co_await code_of(peer.send("more"));
    EXPECT_EQ(code, ENOTCONN);
    const buffer end = co_await peer.receive();
    EXPECT_FALSE(end);
    EXPECT_FALSE(peer.failure());
    has_ended = true;
  });
  io_.run([&](loop&) -> task<> {
    {
      connection peer = co_await connected();
      co_await peer.receive();
    }
    while (!has_ended) co_await io_.yield();
  }(io_));
}

// A session that sends until its peer disconnects has ended normally: nothing is printed.
TEST_F(Connections, EndTheirSessionsSilentlyWhenThePeerDisconnects) {
  serve([](connection peer) -> task<> {
    for (;;) co_await peer.send("more");
  });
  ::testing::internal::CaptureStderr();
  io_.run([this](loop&) -> task<> {
    {
      connection peer = co_await connected();
      co_await peer.receive();
    }
    while (io_.running() != 0) co_await io_.yield();
  }(io_));
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("a coroutine has failed"), std::string::npos);
}

TEST_F(Connections, ShareMemoryBeforeTheyAreThere) {
  for (const char* const where : {"127.0.0.1:0", "[::]:0"}) {
    listener there(io_, where);
    const shared<std::uint64_t> counter = there.share<std::uint64_t>();
    *counter = 7;
    io_.run([&](loop&) -> task<> {
      auto near = connect(io_, address_of(there));
      auto [peer, accepted] = co_await when_all(std::move(near), there.accept());
      EXPECT_EQ(*co_await peer.read(counter.remote()), 7U);
    }(io_));
  }
}

TEST_F(Connections, RefuseWhatIsTooLong) {
  serve(echo);
  io_.run([this](loop&) -> task<> {
    connection peer = co_await connected();
    EXPECT_EQ(co_await code_of(peer.send(std::string(8193, 'x'))), EMSGSIZE);
    EXPECT_EQ(co_await code_of(peer.send(std::string(8192, 'x'))), 0);
    EXPECT_EQ((co_await peer.receive()).size(), 8192U);
  }(io_));
}

TEST_F(Connections, FailWithTheReasonWhereNothingListens) {
  const std::string address = address_of(listener(io_, "127.0.0.1:0"));
  try {
    io_.run(connect(io_, address));
    FAIL();
  } catch (const exception& thrown) {
    EXPECT_EQ(thrown.error().code(), ECONNREFUSED);
    EXPECT_EQ(thrown.error().subject(), address);
  }
  EXPECT_EQ(io_.run(code_of(connect(io_, "nonsense"))), EINVAL);
}

// A WRITE with immediate data, which no program of this API makes. Returns its errno, or 0.
task<int> write_with_immediate_data(loop& io, std::string where, const remote_slice& there) {
  const detail::addresses found = detail::look_up(where, false);
  const detail::state_handle state(*new detail::connection_state(io, {}));
  state->connect(found->ai_addr);
  co_await detail::wait_in(state->opening, [&] { return !state->is_opening(); });
  EXPECT_TRUE(state->is_open());
  // A connection that fails before it is accepted is dropped, so this waits for the victim's first message.
  const auto is_accepted = [&] { return state->has_message(); };
  while (!is_accepted()) co_await detail::wait_in(state->receiving, is_accepted);
  state->take_message();
  detail::operation& one = state->make_operation("WRITE with immediate data");
  one.request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  one.request.wr.rdma = {there.address, there.rkey};
  one.held = state->buffers().take_buffer(there.size);
  one.piece = one.held.memory().get();
  state->submit(one);
  const int code = co_await code_of(pending<void>(state, one));
  while (state->is_open()) co_await io.yield();
  state->disconnect();
  co_return code;
}

// Its length is that of the memory it writes, and not of the receive buffer it takes.
TEST_F(Connections, EndAtAWriteWithImmediateData) {
  for (const std::uint32_t shared_receives : {0U, 16U}) {
    for (const std::size_t size : {std::size_t{16}, std::size_t{64} << 10}) {
      listener there(io_, "127.0.0.1:0", {.shared_receives = shared_receives});
      const region memory = there.share(size, access::remote_write);
      io_.spawn([&](loop&) -> task<> {
        connection victim = co_await there.accept();
        co_await victim.send("accepted");
        EXPECT_EQ(co_await code_of(victim.receive()), EPROTO);
        EXPECT_FALSE(victim.is_open());
        co_await echo(co_await there.accept());
      });
      io_.run([&](loop&) -> task<> {
        EXPECT_EQ(co_await write_with_immediate_data(io_, address_of(there), memory.remote()), 0);
        connection other = co_await connect(io_, address_of(there));
        co_await other.send("goes on");
        EXPECT_EQ((co_await other.receive()).text(), "goes on");
        co_await other.close();
        while (io_.running() != 0) co_await io_.yield();
      });
    }
  }
}

// A peer may have asked for much once. The memory does not stay with the program.
TEST_F(Connections, GiveLargeBuffersBack) {
  serve(echo);
  io_.run([this](loop&) -> task<> {
    connection peer = co_await connected();
    detail::buffer_pool& pool = io_.service<detail::cm_service>().adapter_of(detail::only_device()).buffers();
    for (int round = 0; round < 2; ++round) {
      std::vector<buffer> all;
      for (int i = 0; i < 20; ++i) all.push_back(peer.make_buffer(std::size_t{1} << 20));
      EXPECT_EQ(pool.large_bytes(), std::size_t{20} << 20);
      for (buffer& each : all) std::memset(each.data(), 1, each.size());
      all.clear();
      EXPECT_EQ(pool.large_bytes(), detail::buffer_pool::kMaxSpare);
    }
    {
      std::vector<buffer> all;
      for (int i = 0; i < 100; ++i) all.push_back(peer.make_buffer(std::size_t{64} << 10));
      EXPECT_GT(pool.large_bytes(), detail::buffer_pool::kMaxSpare)
          << "64 KiB are the longest message of RPC";
    }
    EXPECT_EQ(pool.large_bytes(), detail::buffer_pool::kMaxSpare);
    { const buffer largest = peer.make_buffer(2 * detail::buffer_pool::kMaxSpare); }
    EXPECT_EQ(pool.large_bytes(), detail::buffer_pool::kMaxSpare);
  });
}

// Work requests have lengths of 32 bits.
TEST_F(Connections, MakeNoBuffersThatAreLongerThanMessagesOfRdma) {
  serve(echo);
  io_.run([this](loop&) -> task<> {
    connection peer = co_await connected();
    for (const std::uint64_t size : {(std::uint64_t{1} << 31) + 1, ~std::uint64_t{0}}) {
      try {
        auto unused = peer.read(remote_slice{4096, size, 1, 0});
        ADD_FAILURE() << size;
      } catch (const exception& thrown) {
        EXPECT_EQ(thrown.error().code(), EMSGSIZE);
      }
    }
  });
}

// The loop cannot watch a further completion queue: here its descriptor is no epoll instance any more. A loop
// that never sleeps needs none.
TEST(ConnectionsOfALoop, FailIfItCannotWatchTheirQueue) {
  loop io({.spin = duration::max()});
  const listener there(io, "127.0.0.1:0");
  const detail::descriptor other(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::dup3(other.get(), io.fd(), O_CLOEXEC), io.fd());
  io.run([&](loop&) -> task<> { EXPECT_EQ(co_await code_of(connect(io, address_of(there))), EINVAL); });
}

TEST(Slice, HasNoPartsBeyondItsEnd) {
  std::array<std::byte, 8> bytes{};
  const slice whole(bytes, 0);
  EXPECT_EQ(whole.part(3, 5).size(), 5U);
  EXPECT_EQ(whole.part(8).size(), 0U);
  EXPECT_THROW(whole.first(9), exception);
  EXPECT_THROW(whole.last(9), exception);
  EXPECT_THROW(whole.part(9), exception);
  EXPECT_THROW(whole.part(3, 6), exception);
  EXPECT_THROW(whole.part(1, ~std::size_t{0} - 1), exception);
}

TEST_F(Connections, ReportForeignKeys) {
  serve([](connection peer) -> task<> { co_await peer.receive(); });
  io_.run([this](loop&) -> task<> {
    connection peer = co_await connected();
    const remote<Counter> nowhere{{0x1000, sizeof(Counter), 0x1234, 0}};
    EXPECT_EQ(co_await code_of(peer.read(nowhere)), EIO);
    EXPECT_EQ(peer.failure()->status(), IBV_WC_REM_ACCESS_ERR);
    EXPECT_FALSE(peer.is_open());
    EXPECT_EQ(co_await code_of(peer.send("late")), EIO);
    EXPECT_EQ(co_await code_of(peer.receive()), EIO);
  }(io_));
}

// The peer takes no message, so the last of these waits for a credit.
TEST_F(Connections, EndWhenADeadlinePasses) {
  serve([](connection peer) -> task<> {
    connection kept = std::move(peer);
    co_await kept.receive();
    while (kept.is_open()) co_await kept.receive();
  });
  io_.run([this](loop&) -> task<> {
    connection peer = co_await connected();
    const auto there = remote<std::uint64_t>{{0x1000, 8, 1, 0}};
    (void)there;
    std::vector<pending<void>> all;
    for (int i = 0; i < 200; ++i) all.push_back(peer.send_value(i));
    EXPECT_EQ(co_await code_of(std::move(all.back()).within(io_, 0s)), ETIMEDOUT);
    EXPECT_FALSE(peer.is_open());
  }(io_));
}

TEST_F(Connections, KeepBuffersOfForgottenOperations) {
  serve(echo);
  io_.run([this](loop&) -> task<> {
    connection peer = co_await connected();
    for (int i = 0; i < 100; ++i) {
      { const auto forgotten = peer.send_value(i); }
      EXPECT_EQ(co_await peer.receive_value<int>(), i);
    }
  }(io_));
}

// An operation is used again after the coroutine that awaited it has been destroyed.
TEST_F(Connections, ForgetCoroutinesThatAreDestroyed) {
  serve(echo);
  io_.run([this](loop&) -> task<> {
    connection peer = co_await connected();
    for (int i = 0; i < 10; ++i) {
      {
        const task<> cut_off = [](connection& by) -> task<> { co_await by.send("x"); }(peer);
        cut_off.handle().resume();
      }
      EXPECT_EQ((co_await peer.receive()).text(), "x");
      const auto unawaited = peer.send("y");
      EXPECT_EQ((co_await peer.receive()).text(), "y");
    }
  }(io_));
}

// Destroys the client's coroutine after each number of turns: wherever it is suspended.
TEST_F(Connections, MayBeDestroyedAtAnySuspension) {
  io_.spawn([this](loop&) -> task<> {
    for (;;) io_.spawn(echo(co_await listener_.accept()));
  });
  const auto work = [this]() -> task<> {
    connection peer = co_await connected();
    co_await peer.send("one");
    const buffer answer = co_await peer.receive();
    const auto second = peer.send("two");
    co_await peer.receive();
    co_await peer.close();
  };
  bool has_ended = false;
  for (int turns = 0; !has_ended && turns < 2000; ++turns) {
    task<> client = work();
    client.handle().resume();
    for (int i = 0; i < turns && !client.done(); ++i) io_.turn();
    has_ended = client.done();
  }
  // The coroutines that were cut off have disconnected, and connections go on working.
  io_.run(work());
}

}  // namespace
}  // namespace verbena
