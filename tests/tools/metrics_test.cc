// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/verbena/http_request.h"
#include "tools/verbena/metrics_server.h"
#include "tools/verbena/metrics_text.h"

namespace verbena::tools {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

agent_client::AgentStatus example() {
  agent_client::Link link{.name = "rxe0", .device_index = 3, .netdev = "eth0"};
  agent_client::QpNumbers qp{.qpn = 17, .type = IBV_QPT_RC, .state = IBV_QPS_RTS, .device_index = 3};
  qp.counters[transport::kRetransmittedPackets] = 5;
  qp.details[protocol::kQpWaitingSends] = 4;
  agent_client::DeviceCounters counters;
  counters[transport::kSentBytes] = 4096;
  counters[transport::kSentOctets] = 5000;
  agent_client::SlotStatus slot{.index = 1, .pid = 149, .program = "a\"b\\\n", .qps = {qp, qp}};
  slot.port[protocol::kPortFirstDropReason] = 9;
  return {.pid = 99,
          .version = "0.1.0",
          .no_wire_reason = "",
          .links = {{link, "up", counters}},
          .slots = {slot}};
}

TEST(Metrics, HaveWhatIsCounted) {
  const std::string text =
      metrics_as_text(example(), AgentHealth{.cpu_seconds = 1.5, .resident_bytes = 8192});
  for (const char* line :
       {"verbena_agent_up 1\n", "verbena_agent_resident_memory_bytes 8192\n",
        "verbena_port_transmitted_octets_total{device=\"rxe0\",port=\"1\"} 5000\n",
        "verbena_port_transmitted_bytes_total{device=\"rxe0\",port=\"1\"} 4096\n",
        "verbena_port_active{device=\"rxe0\",port=\"1\",netdev=\"eth0\"} 1\n",
        "verbena_process_waiting_sends{pid=\"149\",program=\"a\\\"b\\\\?\"} 8\n",
        "verbena_process_qp_retransmitted_packets{pid=\"149\",program=\"a\\\"b\\\\?\"} 10\n",
        "device=\"rxe0\",type=\"RC\",state=\"RTS\"} 2\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Metrics, WithoutAnAgentSayThat) {
  EXPECT_THAT(metrics_as_text(std::nullopt, std::nullopt), HasSubstr("verbena_agent_up 0\n"));
}

// The format's rules: each metric is described once, before its lines, which stand together and are numbers;
// counters, and they alone, end in _total.
TEST(Metrics, AreInTheFormatOfPrometheus) {
  std::istringstream lines(metrics_as_text(example(), AgentHealth{}));
  const std::regex sample(R"((\w+)(\{(\w+="([^"\\\n]|\\.)*",?)+\})? [0-9.e+]+)");
  std::set<std::string> described;
  std::string current;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string mark, what, name, type;
    if (line.starts_with("# ")) {
      words >> mark >> what >> name >> type;
      const bool is_new = what != "HELP" || described.insert(name).second;
      EXPECT_TRUE(is_new) << name;
      const bool is_named = what != "TYPE" || (type == "counter") == name.ends_with("_total");
      EXPECT_TRUE(is_named) << line;
      current = name;
      continue;
    }
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
    EXPECT_EQ(match[1], current);
  }
  EXPECT_GT(described.size(), 50u);
}

TEST(HttpRequest, IsJudgedWhenItIsComplete) {
  EXPECT_FALSE(judge_request(""));
  EXPECT_FALSE(judge_request("GET /metrics HTTP/1.1\r\nHost: a\r\n"));
  EXPECT_EQ(judge_request("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")->status, 200);
  EXPECT_EQ(judge_request("GET /metrics?x=1 HTTP/1.0\n\n")->status, 200);
  EXPECT_FALSE(judge_request("HEAD / HTTP/1.1\r\n\r\n")->wants_body);
}

TEST(HttpRequest, WhatIsNotServedIsRefused) {
  EXPECT_EQ(judge_request("GET /secret HTTP/1.1\r\n\r\n")->status, 404);
  EXPECT_EQ(judge_request("POST /metrics HTTP/1.1\r\n\r\n")->status, 405);
  EXPECT_EQ(judge_request("GET /metrics HTTP/2.0\r\n\r\n")->status, 505);
  EXPECT_EQ(judge_request("\r\n\r\n")->status, 400);
  EXPECT_EQ(judge_request("GET\r\n\r\n")->status, 400);
  EXPECT_EQ(judge_request(std::string(kMostRequestBytes, 'x'))->status, 431);
}

class MetricsServerTest : public testing::Test {
 protected:
  MetricsServerTest() {
    auto listener = listen_at("127.0.0.1:0");
    EXPECT_TRUE(listener) << listener.error();
    socklen_t length = sizeof address_;
    ::getsockname(listener->get(), reinterpret_cast<sockaddr*>(&address_), &length);
    server_.emplace(std::move(*listener), [this] {
      ++asked_;
      return std::string("m 1\n");
    });
  }
  UniqueFd connect() const {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    return socket;
  }
  static void say(const UniqueFd& socket, std::string_view text) {
    EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // All that it says until it closes.
  std::string answer(const UniqueFd& socket) {
    std::string whole;
    for (int rounds = 0; rounds < 1000; ++rounds) {
      server_->step(std::chrono::milliseconds(10));
      char buffer[1024];
      const ssize_t bytes = ::recv(socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (bytes == 0) return whole;
      if (bytes > 0) whole.append(buffer, static_cast<size_t>(bytes));
    }
    ADD_FAILURE() << "it does not close: " << whole;
    return whole;
  }

  sockaddr_in address_{};
  std::optional<MetricsServer> server_;
  int asked_ = 0;
};

TEST_F(MetricsServerTest, AnswersWithMetrics) {
  const UniqueFd client = connect();
  say(client, "GET /metrics HT");
  server_->step(std::chrono::milliseconds(10));
  say(client, "TP/1.1\r\n\r\n");
  const std::string got = answer(client);
  EXPECT_THAT(got, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(got, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(got, testing::EndsWith("\r\n\r\nm 1\n"));
}

TEST_F(MetricsServerTest, AsksNoOftenerThanOnceASecond) {
  const auto began = MonotonicClock::now();
  for (int i = 0; i < 5; ++i) {
    const UniqueFd client = connect();
    say(client, "GET / HTTP/1.1\r\n\r\n");
    answer(client);
  }
  EXPECT_LE(asked_, 1 + (MonotonicClock::now() - began) / MetricsServer::kFreshness);
}

TEST_F(MetricsServerTest, SilentClientsKeepNobodyOutForLong) {
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < MetricsServer::kMostConnections; ++i) silent.push_back(connect());
  const UniqueFd client = connect();
  say(client, "GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer(client), StartsWith("HTTP/1.1 200"));
}

TEST_F(MetricsServerTest, GarbageIsRefused) {
  const UniqueFd client = connect();
  say(client, std::string(2 * kMostRequestBytes, '\xff'));
  // What has not been read makes the kernel reset the connection; the next client is served all the same.
  for (int i = 0; i < 20; ++i) server_->step(std::chrono::milliseconds(1));
  const UniqueFd next = connect();
  say(next, "GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer(next), StartsWith("HTTP/1.1 200"));
}

TEST(ListenAt, SaysWhatIsNoPlace) {
  for (const char* place : {"", "9792", "localhost:1", "1.2.3.4:99999", "[::1]", "unix:", "1.2.3.4:x"}) {
    EXPECT_FALSE(listen_at(place)) << place;
  }
}

TEST(ListenAt, ReplacesTheSocketOfADeadServer) {
  const std::string path = testing::TempDir() + "verbena-metrics-" + std::to_string(::getpid());
  EXPECT_TRUE(listen_at("unix:" + path));  // closed at once: the file stays
  auto second = listen_at("unix:" + path);
  EXPECT_TRUE(second);
  EXPECT_FALSE(listen_at("unix:" + path));  // that one lives
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace verbena::tools
