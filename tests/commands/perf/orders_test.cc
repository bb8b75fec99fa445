// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/orders.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "commands/perf/exchange.h"
#include "commands/perf/follower.h"
#include "commands/perf/hangup_watch.h"

namespace verbena::perf {
namespace {

// A channel whose reader gets what was written to it.
class Pipe final : public Channel {
 public:
  void write(std::span<const char> bytes) override { bytes_.append(bytes.data(), bytes.size()); }
  void read(std::span<char> bytes) override {
    if (bytes_.size() < bytes.size()) throw std::runtime_error("it has ended the connection");
    bytes_.copy(bytes.data(), bytes.size());
    bytes_.erase(0, bytes.size());
  }
  void write(const Keys&) override {}
  Keys read_keys() override { return {}; }
  void end() override {}
  std::string bytes_;
};

Parameters uc_write() {
  Parameters parameters(*find_test("ib_write_bw"));
  parameters.server = "there";
  parameters.transport = verbena::uc;
  parameters.size = 64;
  parameters.duration = std::chrono::milliseconds(300);
  parameters.queue_pairs = 3;
  parameters.settle();
  return parameters;
}

TEST(PerfOrders, CarryTheSettingsOnWhichBothEndsAgree) {
  Parameters own(*find_test("ib_send_lat"));
  own.device = "rxe_eth0";
  const Parameters ordered = parameters_of(order_of(uc_write()), own);
  EXPECT_STREQ(ordered.test.name, "ib_write_bw");
  EXPECT_EQ(ordered.transport, verbena::uc);
  EXPECT_EQ(ordered.size, 64U);
  EXPECT_EQ(ordered.duration, std::chrono::milliseconds(300));
  EXPECT_EQ(ordered.margin, std::chrono::milliseconds(75));
  EXPECT_EQ(ordered.queue_pairs, 3U);
  EXPECT_EQ(ordered.device, "rxe_eth0") << "the device is each end's own affair";
  EXPECT_FALSE(ordered.is_client());
  EXPECT_TRUE(ordered.is_quiet);
}

TEST(PerfOrders, HaveOnlyTransportsOfTestsWithAnExchange) {
  const Parameters own(*find_test("ib_send_lat"));
  nlohmann::json order = order_of(uc_write());
  order["transport"] = unsigned{IBV_QPT_XRC_SEND};
  EXPECT_EQ(parameters_of(order, own).transport, verbena::transport::xrc_send);
  order["transport"] = unsigned{IBV_QPT_RAW_PACKET};
  EXPECT_THROW(parameters_of(order, own), std::runtime_error);
}

TEST(PerfOrders, ThatAreMalformedAreRefused) {
  const Parameters own(*find_test("ib_send_lat"));
  const nlohmann::json good = order_of(uc_write());
  for (const auto& [name, value] : good.items()) {
    nlohmann::json order = good;
    order.erase(name);
    EXPECT_THROW(parameters_of(order, own), std::runtime_error) << "without " << name;
    order[name] = nlohmann::json::array();
    EXPECT_THROW(parameters_of(order, own), std::runtime_error) << name;
    if (!value.is_number()) continue;
    for (const auto& wrong : {nlohmann::json(-1), nlohmann::json(~std::uint64_t{0}), nlohmann::json(1.5)}) {
      order[name] = wrong;
      EXPECT_THROW(parameters_of(order, own), std::runtime_error) << name << " is " << wrong;
    }
  }
}

TEST(PerfOrders, OfTooMuchAreRefused) {
  const Parameters own(*find_test("ib_send_lat"));
  nlohmann::json order = order_of(uc_write());
  order["size"] = 1U << 20;
  order["queue_pairs"] = 1024U;
  EXPECT_NO_THROW(parameters_of(order, own));
  order["queue_pairs"] = 1025U;
  EXPECT_THROW(parameters_of(order, own), std::runtime_error) << "buffers";
  order["size"] = 2U;
  order["queue_pairs"] = 16384U;
  EXPECT_NO_THROW(parameters_of(order, own));
  order["duration_ms"] = order["margin_ms"] = 0U;
  order["has_peak"] = true;
  order["iterations"] = 1000U;
  EXPECT_NO_THROW(parameters_of(order, own));
  order["iterations"] = 2000U;
  EXPECT_THROW(parameters_of(order, own), std::runtime_error) << "times of all messages, for the peak";
  order["iterations"] = 1000U;
  order["receive_depth"] = 1024U;
  EXPECT_THROW(parameters_of(order, own), std::runtime_error) << "requests";
  for (const auto& [name, most] :
       {std::pair("iterations", 10'000'000U), std::pair("duration_ms", 3'600'000U)}) {
    order = order_of(uc_write());
    order[name] = most;
    EXPECT_NO_THROW(parameters_of(order, own)) << name;
    order[name] = most + 1;
    EXPECT_THROW(parameters_of(order, own), std::runtime_error) << name;
  }
}

// Those of nlohmann's functions that recurse would use up the stack.
TEST(PerfOrders, OfNestedValuesAreRefused) {
  const std::string text = "{\"size\":" + std::string(500'000, '[') + std::string(500'000, ']') + "}";
  std::array<char, 4> length{};
  store_be(length.data(), static_cast<std::uint32_t>(text.size()));
  Pipe pipe;
  pipe.write(length);
  pipe.write(text);
  EXPECT_THROW(read_object(pipe), std::runtime_error);
}

TEST(PerfOrders, ShowNothingOfWrongValues) {
  nlohmann::json order = order_of(uc_write());
  order["size"] = "a secret";
  try {
    parameters_of(order, Parameters(*find_test("ib_send_lat")));
    FAIL();
  } catch (const std::runtime_error& refused) {
    EXPECT_STREQ(refused.what(), "malformed order: size is no number from 1 to 1073741824");
  }
}

TEST(PerfOrders, EndTheProcessIfTheyTakeTooLong) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]), write_end(ends[1]);
  EXPECT_EXIT(
      {
        const HangupWatch watch(read_end.get(), std::chrono::milliseconds(1));
        ::pause();
      },
      ::testing::ExitedWithCode(1), "the peer takes too long");
}

// Else a client that sends wrong orders and takes no answers would fill the server's socket.
TEST(PerfOrders, AreFollowedUntilTheFirstWrongOne) {
  const Parameters own(*find_test("ib_send_lat"));
  Pipe pipe;
  write_object(pipe, order_of(uc_write()));
  EXPECT_STREQ(next_order(pipe, own).value().test.name, "ib_write_bw");
  EXPECT_EQ(read_object(pipe), (nlohmann::json{{"ready", true}}));
  write_object(pipe, nlohmann::json::object());
  EXPECT_THROW(next_order(pipe, own), std::runtime_error);
  EXPECT_TRUE(read_object(pipe).contains("error"));
  write_object(pipe, {{"end", true}});
  EXPECT_FALSE(next_order(pipe, own));
}

TEST(PerfOrders, ThatContradictThemselvesAreRefused) {
  nlohmann::json order = order_of(uc_write());
  order["test"] = "ib_read_bw";
  EXPECT_THROW(parameters_of(order, Parameters(*find_test("ib_send_lat"))), std::invalid_argument);
}

TEST(PerfOrders, GoAsObjectsWithTheirLength) {
  Pipe pipe;
  write_object(pipe, {{"end", true}});
  EXPECT_EQ(pipe.bytes_, std::string("\0\0\0\x0c{\"end\":true}", 16));
  EXPECT_EQ(read_object(pipe), (nlohmann::json{{"end", true}}));
}

TEST(PerfOrders, RefuseBytesThatAreNoObject) {
  for (const std::string& bytes :
       {std::string("\0\0\0\2[]", 6), std::string("\0\0\0\2{x", 6), std::string("\0\0\0\0", 4),
        std::string("\xff\0\0\0{}", 6), std::string("\0\0\0\x09{}", 6), std::string("\0", 1)}) {
    Pipe pipe;
    pipe.bytes_ = bytes;
    EXPECT_THROW(read_object(pipe), std::runtime_error);
  }
}

}  // namespace
}  // namespace verbena::perf
