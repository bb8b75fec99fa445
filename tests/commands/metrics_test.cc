// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/metrics.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/network_namespace.h"
#include "agent/sessions/other_users.h"

namespace verbena::commands {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

control::AgentStatus example() {
  control::Link link{.name = "rxe0", .device_index = 3, .netdev = "eth0"};
  control::QpNumbers qp{.qpn = 17, .type = IBV_QPT_RC, .state = IBV_QPS_RTS, .device_index = 3};
  qp.counters[transport::kRetransmittedPackets] = 5;
  qp.details[protocol::kQpWaitingSends] = 4;
  control::DeviceCounters counters;
  counters[transport::kSentBytes] = 4096;
  counters[transport::kSentOctets] = 5000;
  control::SlotStatus slot{.index = 1, .pid = 149, .program = "a\"b\\\n", .qps = {qp, qp}};
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

TEST(Metrics, AsSumsSayNothingOfASingleProcess) {
  control::AgentStatus status = example();
  status.slots.push_back(status.slots.front());
  status.slots.back().pid = 150;
  const std::string text = metrics_as_text(status, AgentHealth{}, MetricsDetail::kSums);
  for (const char* line :
       {"verbena_process_queue_pairs{device=\"rxe0\",type=\"RC\",state=\"RTS\"} 4\n",
        "verbena_process_waiting_sends 16\n", "verbena_process_qp_retransmitted_packets 20\n",
        "verbena_port_transmitted_bytes_total{device=\"rxe0\",port=\"1\"} 4096\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  for (const char* word : {"149", "150", "program=", "a\\\"b"}) EXPECT_THAT(text, Not(HasSubstr(word)));
}

TEST(Metrics, AsSumsHaveNoCounterThatBecomesLessWithAProcess) {
  const std::string text = metrics_as_text(example(), AgentHealth{}, MetricsDetail::kSums);
  EXPECT_THAT(text, Not(testing::ContainsRegex("verbena_process_[a-z_]*_total")));
}

TEST(Metrics, WithoutAnAgentSayThat) {
  EXPECT_THAT(metrics_as_text(std::nullopt, std::nullopt), HasSubstr("verbena_agent_up 0\n"));
}

// The format's rules. Each metric is described once, before its lines, which are contiguous and have numbers.
// Counters, and only they, end in _total.
class MetricsFormat : public testing::TestWithParam<MetricsDetail> {};
INSTANTIATE_TEST_SUITE_P(Details, MetricsFormat,
                         testing::Values(MetricsDetail::kProcesses, MetricsDetail::kSums));

TEST_P(MetricsFormat, IsThatOfPrometheus) {
  std::istringstream lines(metrics_as_text(example(), AgentHealth{}, GetParam()));
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
  EXPECT_EQ(judge_request(std::string(kMaxRequestBytes, 'x'))->status, 431);
}

constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\n\r\n";

void say(const UniqueFd& socket, std::string_view text) {
  EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// A metrics server at an address or path, and its clients.
class ServerAt {
 public:
  explicit ServerAt(const std::string& where) {
    auto listener = listen_at(where);
    EXPECT_TRUE(listener) << listener.error();
    length_ = sizeof address_;
    ::getsockname(listener->get(), reinterpret_cast<sockaddr*>(&address_), &length_);
    server_.emplace(std::move(*listener), [this] {
      ++asked_;
      return texts_;
    });
  }
  // Connects from `from`, an IPv4 address of this host as a number. A deaf client accepts a few kilobytes
  // only.
  UniqueFd connect(std::optional<in_addr_t> from = {}, bool is_deaf = false) const {
    UniqueFd socket(::socket(address_.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int few = 4096;
    if (is_deaf) ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
    sockaddr_storage to = address_;
    if (from) {
      sockaddr_in own{};
      own.sin_family = AF_INET;
      own.sin_addr.s_addr = htonl(*from);
      EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
      reinterpret_cast<sockaddr_in&>(to).sin_addr = own.sin_addr;
    }
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), length_), 0);
    return socket;
  }
  void step() { server_->step(std::chrono::milliseconds(1)); }
  // Returns everything that the server sends. Expects that it closes the connection at once.
  std::string answer(const UniqueFd& socket) {
    std::string whole;
    for (int rounds = 0; rounds < 200; ++rounds) {
      step();
      char buffer[1024];
      for (ssize_t bytes = 1; bytes > 0;) {
        bytes = ::recv(socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
        if (bytes == 0) return whole;
        if (bytes > 0) whole.append(buffer, static_cast<size_t>(bytes));
      }
    }
    ADD_FAILURE() << "it does not close: " << whole;
    return whole;
  }
  std::string ask() {
    const UniqueFd client = connect();
    say(client, kRequest);
    return answer(client);
  }

  MetricsTexts texts_{.all = "m 1\n", .sums = "s 1\n"};
  int asked_ = 0;

 private:
  sockaddr_storage address_{};
  socklen_t length_ = 0;
  std::optional<MetricsServer> server_;
};

class MetricsServerTest : public testing::Test {
 protected:
  ServerAt server_{"127.0.0.1:0"};
};

TEST_F(MetricsServerTest, AnswersWithMetrics) {
  const UniqueFd client = server_.connect();
  say(client, "GET /metrics HT");
  server_.step();
  say(client, "TP/1.1\r\n\r\n");
  const std::string got = server_.answer(client);
  EXPECT_THAT(got, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(got, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(got, testing::EndsWith("\r\n\r\ns 1\n"));
}

TEST_F(MetricsServerTest, AsksNoOftenerThanOnceASecond) {
  const auto began = MonotonicClock::now();
  for (int i = 0; i < 5; ++i) server_.ask();
  EXPECT_LE(server_.asked_, 1 + (MonotonicClock::now() - began) / MetricsServer::kFreshness);
}

TEST_F(MetricsServerTest, AHundredSilentClientsKeepNobodyOut) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(server_.connect());
    server_.step();
  }
  EXPECT_THAT(server_.ask(), StartsWith("HTTP/1.1 200"));
}

TEST_F(MetricsServerTest, AHundredThatComeAtOnceKeepNobodyOut) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(server_.connect());
  const UniqueFd client = server_.connect();
  say(client, kRequest);
  for (int i = 0; i < 50; ++i) silent.push_back(server_.connect());
  EXPECT_THAT(server_.answer(client), StartsWith("HTTP/1.1 200"));
}

TEST_F(MetricsServerTest, AHundredThatTakeNoAnswerKeepNobodyOut) {
  server_.texts_.sums.assign(size_t{8} << 20, 'x');
  std::vector<UniqueFd> deaf;
  for (int i = 0; i < 100; ++i) {
    deaf.push_back(server_.connect(std::nullopt, true));
    say(deaf.back(), kRequest);
    server_.step();
  }
  server_.texts_.sums = "s 1\n";
  const UniqueFd client = server_.connect();
  say(client, "GET /none HTTP/1.1\r\n\r\n");
  EXPECT_THAT(server_.answer(client), StartsWith("HTTP/1.1 404"));
}

TEST_F(MetricsServerTest, SilentClientsKeepNobodyOutWhereDescriptorsAreFew) {
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < MetricsServer::kMaxOfSource; ++i) silent.push_back(server_.connect());
  const UniqueFd client = server_.connect();
  say(client, kRequest);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd next(::dup(client.get()));
  const rlimit few{static_cast<rlim_t>(next.get()) + 3, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_THAT(server_.answer(client), StartsWith("HTTP/1.1 200"));
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(MetricsServerTest, GarbageIsRefused) {
  const UniqueFd client = server_.connect();
  say(client, std::string(2 * kMaxRequestBytes, '\xff'));
  // Unread input makes the kernel reset the connection. The next client is served all the same.
  for (int i = 0; i < 20; ++i) server_.step();
  EXPECT_THAT(server_.ask(), StartsWith("HTTP/1.1 200"));
}

class MetricsSources : public test::NamespaceTest {};

// A slow client at one address, while another address opens one connection after the other.
TEST_F(MetricsSources, OneThatOpensManyEndsItsOwn) {
  ASSERT_TRUE(test::shell("ip address add 10.7.0.1/32 dev lo && ip address add 10.7.0.2/32 dev lo"));
  ServerAt server("0.0.0.0:0");
  const UniqueFd slow = server.connect(0x0a070002);
  say(slow, kRequest.substr(0, 10));
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(server.connect(0x0a070001));
    server.step();
  }
  say(slow, kRequest.substr(10));
  EXPECT_THAT(server.answer(slow), StartsWith("HTTP/1.1 200"));
}

sockaddr_storage address_of(const char* text) {
  sockaddr_storage address{};
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
  if (::inet_pton(AF_INET, text, &ipv4.sin_addr) == 1) {
    address.ss_family = AF_INET;
  } else {
    EXPECT_EQ(::inet_pton(AF_INET6, text, &ipv6.sin6_addr), 1) << text;
    address.ss_family = AF_INET6;
  }
  return address;
}

TEST(MetricsReader, IsOneSourceWithAllThatASingleHostMayHave) {
  const auto same = [](const char* one, const char* other) {
    return source_of(address_of(one)) == source_of(address_of(other));
  };
  EXPECT_TRUE(same("127.0.0.1", "127.9.9.9"));
  EXPECT_TRUE(same("127.0.0.1", "::1"));
  EXPECT_TRUE(same("10.0.0.1", "::ffff:10.0.0.1"));
  EXPECT_TRUE(same("2001:db8::1", "2001:db8::2:0:0:1"));
  EXPECT_FALSE(same("10.0.0.1", "10.0.0.2"));
  EXPECT_FALSE(same("2001:db8::1", "2001:db8:0:1::1"));
}

class UnixPlace : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string where() const { return "unix:" + path_.string(); }
  std::string error() const {
    const auto listener = listen_at(where());
    return listener ? "" : listener.error();
  }

  const std::filesystem::path folder_ = [] {
    std::string name = testing::TempDir() + "metrics_test_XXXXXX";
    std::filesystem::path made = ::mkdtemp(name.data());
    std::filesystem::permissions(made, std::filesystem::perms::all);
    return made;
  }();
  const std::filesystem::path path_ = folder_ / "metrics";
};

TEST_F(UnixPlace, ItsOwnUserSeesEachProcess) {
  ServerAt server(where());
  EXPECT_THAT(server.ask(), testing::EndsWith("\r\n\r\nm 1\n"));
}

TEST_F(UnixPlace, OtherUsersSeeSums) {
  if (!test::may_become_others()) GTEST_SKIP() << "needs root";
  ServerAt server(where());
  std::filesystem::permissions(path_, static_cast<std::filesystem::perms>(0777));
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd ours(ends[0]), theirs(ends[1]);
  // The kernel records the connecting process. The child connects, and the connection stays with its answer.
  const auto connect_and_ask = [&] {
    const UniqueFd socket = server.connect();
    say(socket, kRequest);
    ::shutdown(socket.get(), SHUT_WR);
    char buffer[1024];
    ssize_t bytes = 1;
    std::string whole;
    ::write(theirs.get(), "", 1);
    while ((bytes = ::recv(socket.get(), buffer, sizeof buffer, 0)) > 0) {
      whole.append(buffer, static_cast<size_t>(bytes));
    }
    return whole.ends_with("s 1\n") ? 0 : 1;
  };
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setgid(65534) == 0 && ::setuid(65534) == 0 ? connect_and_ask() : 99);
  char byte;
  ASSERT_EQ(::read(ours.get(), &byte, 1), 1);
  for (int i = 0; i < 10; ++i) server.step();
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
}

TEST_F(UnixPlace, AFileThatIsNoSocketStays) {
  std::ofstream(path_) << "precious";
  EXPECT_THAT(error(), HasSubstr("no socket is there"));
  std::string content;
  std::ifstream(path_) >> content;
  EXPECT_EQ(content, "precious");
}

TEST_F(UnixPlace, ALinkAndItsTargetStay) {
  const std::filesystem::path target = folder_ / "target";
  std::ofstream(target) << "precious";
  std::filesystem::create_symlink(target, path_);
  EXPECT_THAT(error(), HasSubstr("no socket is there"));
  EXPECT_TRUE(std::filesystem::exists(target));
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
}

TEST_F(UnixPlace, ALinkToASocketOfOursStays) {
  const std::filesystem::path target = folder_ / "target";
  EXPECT_TRUE(listen_at("unix:" + target.string()));  // closed at once: the file stays
  std::filesystem::create_symlink(target, path_);
  EXPECT_THAT(error(), HasSubstr("no socket is there"));
  EXPECT_TRUE(std::filesystem::exists(target));
}

TEST_F(UnixPlace, AnotherUsersSocketStays) {
  EXPECT_TRUE(listen_at(where()));
  if (::chown(path_.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "needs root";
  EXPECT_THAT(error(), HasSubstr("another user's socket"));
  EXPECT_TRUE(std::filesystem::is_socket(path_));
}

TEST_F(UnixPlace, ASocketOfAnotherKindStays) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(error(), HasSubstr("another program's socket"));
  EXPECT_TRUE(std::filesystem::is_socket(path_));
}

TEST_F(UnixPlace, IsTakenFromAnEndedServerAndNotFromOneThatLives) {
  EXPECT_TRUE(listen_at(where()));
  const auto second = listen_at(where());
  EXPECT_TRUE(second);
  EXPECT_THAT(error(), HasSubstr("another program's socket"));
}

TEST(ListenAt, SaysWhatIsNoPlace) {
  for (const char* place : {"", "9792", "localhost:1", "1.2.3.4:99999", "[::1]", "unix:", "1.2.3.4:x"}) {
    EXPECT_FALSE(listen_at(place)) << place;
  }
}

}  // namespace
}  // namespace verbena::commands
