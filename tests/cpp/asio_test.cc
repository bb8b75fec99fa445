// SPDX-License-Identifier: Apache-2.0
// A loop of the C++ API that asio drives.
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include <asio.hpp>
#include <gtest/gtest.h>
#include <verbena/async/asio.hpp>
#include <verbena/cm.hpp>

namespace verbena {
namespace {

using namespace std::chrono_literals;
using driver = asio_driver<asio::posix::stream_descriptor>;

TEST(Asio, DrivesConnectionsBesideItsOwnHandlers) {
  asio::io_context context;
  loop io;
  listener there(io, "127.0.0.1:0");
  driver drives(context.get_executor(), io);
  int rounds = 0;
  int own_rounds = 0;
  bool is_over = false;  // a handler that is queued already is not cancelled
  asio::steady_timer own(context);
  const std::function<void()> again = [&] {
    ++own_rounds;
    own.expires_after(1ms);
    own.async_wait([&](const auto& failure) {
      if (!failure && !is_over) again();
    });
  };
  again();
  io.spawn([&](loop&) -> task<> {
    connection peer = co_await there.accept();
    while (buffer message = co_await peer.receive()) co_await peer.send(std::move(message));
  });
  io.spawn([&](loop&) -> task<> {
    connection peer = co_await connect(io, "127.0.0.1:" + std::to_string(there.port()));
    for (; rounds < 1000; ++rounds) {
      co_await peer.send("ping");
      EXPECT_EQ((co_await peer.receive()).text(), "ping");
    }
    while (own_rounds < 3) co_await io.sleep(1ms);
    co_await peer.close();
    drives.stop();
    is_over = true;
    own.cancel();
  });
  context.run();
  EXPECT_EQ(rounds, 1000);
}

TEST(Asio, MayEndBeforeTheLoopHas) {
  asio::io_context context;
  loop io;
  bool is_awake = false;
  {
    const driver drives(context.get_executor(), io);
    io.spawn([&](loop&) -> task<> {
      co_await io.sleep(1h);
      is_awake = true;
    });
    context.poll();
  }
  context.run();
  EXPECT_FALSE(is_awake);
}

}  // namespace
}  // namespace verbena
