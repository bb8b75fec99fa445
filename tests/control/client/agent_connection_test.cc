// SPDX-License-Identifier: Apache-2.0
#include "control/client/agent_connection.h"

#include <cerrno>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "control/client/fake_agent.h"
#include "control/client/no_descriptors.h"
#include "control/client/too_many_in_flight.h"

namespace verbena::control {
namespace {

using protocol::MessageType;
using test::FakeAgent;
using ::testing::HasSubstr;

constexpr uint16_t kOwn = protocol::kProtocolVersion;

TimePoint soon() {
  return MonotonicClock::now() + std::chrono::seconds(10);
}

TEST(AgentConnection, SpeaksItsOwnVersionToAnAgentOfTheSame) {
  FakeAgent agent([](const FakeAgent::Request& request) {
    if (request.type() == MessageType::kHello) return FakeAgent::greet(request, kOwn, 5);
    return FakeAgent::say(protocol::PlainReply{FakeAgent::header(request, kOwn)});
  });
  AgentConnection connection = agent.connection();
  const auto greeted = connection.say_hello({}, soon());
  ASSERT_TRUE(greeted) << greeted.error().text;
  EXPECT_EQ(greeted->message.capabilities, 5u);
  EXPECT_EQ(connection.version(), kOwn);
}

// Agents of version 1 refuse other versions, and accept only their own message lengths.
TEST(AgentConnection, StepsDownToTheVersionOfAnOlderAgent) {
  FakeAgent agent([](const FakeAgent::Request& request) {
    if (request.header.version != 1) return FakeAgent::refuse(request, 1, EPROTONOSUPPORT, "another version");
    if (request.type() == MessageType::kHello) return FakeAgent::greet(request, 1);
    protocol::StatusReply reply{};
    reply.header = FakeAgent::header(request, 1);
    reply.agent_pid = 7;
    return FakeAgent::say(reply, protocol::bytes_in<protocol::StatusReply>(1));
  });
  AgentConnection connection = agent.connection();
  const auto greeted = connection.say_hello({}, soon());
  ASSERT_TRUE(greeted) << greeted.error().text;
  EXPECT_EQ(connection.version(), 1);
  EXPECT_NE(greeted->message.capabilities & protocol::kServesXrcDomains, 0u) << "that version could do both";
  const auto status = connection.call<protocol::StatusReply>(MessageType::kGetStatus,
                                                             protocol::GetStatusRequest{}, 0, soon());
  ASSERT_TRUE(status) << status.error().text;
  EXPECT_EQ(status->message.agent_pid, 7u);
  EXPECT_EQ(status->message.protocol_version, 0u) << "what that version did not know is zero";
  EXPECT_EQ(agent.requests().back().header.version, 1);
}

// Agents from version 2 on accept a hello of the next version, and reply in their own.
TEST(AgentConnection, SpeaksTheVersionOfAnAgentThatIsOneOlder) {
  constexpr uint16_t kOlder = kOwn - 1;
  FakeAgent agent([](const FakeAgent::Request& request) {
    if (request.type() == MessageType::kHello) return FakeAgent::greet(request, kOlder, 5);
    return FakeAgent::say(protocol::PlainReply{FakeAgent::header(request, kOlder)});
  });
  AgentConnection connection = agent.connection();
  const auto greeted = connection.say_hello({}, soon());
  ASSERT_TRUE(greeted) << greeted.error().text;
  EXPECT_EQ(connection.version(), kOlder);
  EXPECT_EQ(greeted->message.capabilities, 5u) << "it has said so itself";
  EXPECT_TRUE(
      connection.call<protocol::PlainReply>(MessageType::kGetLinks, protocol::GetLinksRequest{}, 0, soon()));
  EXPECT_EQ(agent.count(MessageType::kHello), 1u);
  EXPECT_EQ(agent.requests().back().header.version, kOlder);
}

TEST(AgentConnection, SaysWhatErrorAnOlderAgentAnswersHelloWith) {
  FakeAgent agent(
      [](const FakeAgent::Request& request) { return FakeAgent::refuse(request, kOwn - 1, EMFILE, "full"); });
  AgentConnection connection = agent.connection();
  const auto greeted = connection.say_hello({}, soon());
  ASSERT_FALSE(greeted);
  EXPECT_EQ(greeted.error().code, EMFILE);
  EXPECT_FALSE(connection.lost());
}

// The version is fixed by hello.
TEST(AgentConnection, IsLostToAnAgentThatChangesItsVersionLater) {
  FakeAgent agent([](const FakeAgent::Request& request) {
    if (request.type() == MessageType::kHello) return FakeAgent::greet(request, kOwn);
    return FakeAgent::say(protocol::PlainReply{FakeAgent::header(request, kOwn - 1)});
  });
  AgentConnection connection = agent.connection();
  ASSERT_TRUE(connection.say_hello({}, soon()));
  const auto asked =
      connection.call<protocol::PlainReply>(MessageType::kGetLinks, protocol::GetLinksRequest{}, 0, soon());
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code, EPROTONOSUPPORT);
  EXPECT_TRUE(connection.lost());
}

TEST(AgentConnection, TakesANewerAgentThatSpeaksOurVersion) {
  FakeAgent agent([](const FakeAgent::Request& request) { return FakeAgent::greet(request, kOwn); });
  AgentConnection connection = agent.connection();
  ASSERT_TRUE(connection.say_hello({}, soon()));
  EXPECT_EQ(connection.version(), kOwn);
}

TEST(AgentConnection, SaysWhatAnAgentSaysThatRefusesItsVersion) {
  FakeAgent agent([](const FakeAgent::Request& request) {
    return FakeAgent::refuse(request, kOwn + 2, EPROTONOSUPPORT, "end the older of the two");
  });
  AgentConnection connection = agent.connection();
  const auto greeted = connection.say_hello({}, soon());
  ASSERT_FALSE(greeted);
  EXPECT_EQ(greeted.error().code, EPROTONOSUPPORT);
  EXPECT_THAT(greeted.error().text, HasSubstr("older"));
  EXPECT_EQ(agent.requests().size(), 1u) << "there is no version that both know";
}

TEST(AgentConnection, IsLostToAnAgentThatAnswersInAVersionThatWasNotAsked) {
  FakeAgent agent([](const FakeAgent::Request& request) { return FakeAgent::greet(request, kOwn + 1); });
  AgentConnection connection = agent.connection();
  const auto greeted = connection.say_hello({}, soon());
  ASSERT_FALSE(greeted);
  EXPECT_EQ(greeted.error().code, EPROTONOSUPPORT);
  EXPECT_TRUE(connection.lost());
}

TEST(AgentConnection, IsLostWhenAReplyIsOfAnotherLength) {
  FakeAgent agent([](const FakeAgent::Request& request) {
    protocol::HelloReply reply{};
    reply.header = FakeAgent::header(request, kOwn);
    return FakeAgent::say(reply, sizeof reply - 8);
  });
  AgentConnection connection = agent.connection();
  const auto greeted = connection.say_hello({}, soon());
  ASSERT_FALSE(greeted);
  EXPECT_EQ(greeted.error().code, EPROTO);
  EXPECT_TRUE(connection.lost());
}

// A peer of another of this user's programs can cause it, by messages that it leaves unread.
TEST(AgentConnection, LivesOnWhenNoDescriptorCanBeSent) {
  FakeAgent agent([](const FakeAgent::Request& request) {
    if (request.type() == MessageType::kHello) return FakeAgent::greet(request, kOwn);
    return FakeAgent::say(protocol::PlainReply{FakeAgent::header(request, kOwn)});
  });
  AgentConnection connection = agent.connection();
  ASSERT_TRUE(connection.say_hello({}, soon()));
  const int file = STDIN_FILENO;
  const auto open_domain = [&] {
    const auto opened = connection.call<protocol::PlainReply>(
        MessageType::kOpenDomain, protocol::DomainRequest{}, 0, soon(), {&file, 1});
    return opened ? 0 : opened.error().code;
  };
  {
    const test::LimitedInFlight limited;
    const test::TooManyInFlight now;
    EXPECT_EQ(open_domain(), ETOOMANYREFS);
  }
  EXPECT_FALSE(connection.lost());
  EXPECT_EQ(open_domain(), 0);
}

TEST(AgentConnection, LivesOnWhenAReplysDescriptorCannotBeOpened) {
  std::mutex mutex;
  std::optional<test::NoDescriptors> none;
  bool is_first = true;
  FakeAgent agent([&](const FakeAgent::Request& request) {
    if (request.type() == MessageType::kHello) return FakeAgent::greet(request, kOwn);
    FakeAgent::Answer answer = FakeAgent::say(protocol::PlainReply{FakeAgent::header(request, kOwn)});
    // When the agent, a thread of the test, closes its copy, that frees no number below the limit.
    answer.fds.emplace_back(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 2 * test::NoDescriptors::kFew));
    const std::lock_guard lock(mutex);
    if (std::exchange(is_first, false)) none.emplace();
    return answer;
  });
  AgentConnection connection = agent.connection();
  ASSERT_TRUE(connection.say_hello({}, soon()));
  const auto get_links = [&] {
    const auto links =
        connection.call<protocol::PlainReply>(MessageType::kGetLinks, protocol::GetLinksRequest{}, 1, soon());
    return links ? 0 : links.error().code;
  };
  EXPECT_EQ(get_links(), EMFILE);
  EXPECT_FALSE(connection.lost());
  {
    const std::lock_guard lock(mutex);
    none.reset();
  }
  EXPECT_EQ(get_links(), 0);
}

TEST(AgentConnection, LivesOnWhenARequestIsNotKnownThere) {
  FakeAgent agent([](const FakeAgent::Request& request) {
    if (request.type() == MessageType::kHello) return FakeAgent::greet(request, kOwn);
    return FakeAgent::refuse(request, kOwn, EOPNOTSUPP, "no such request");
  });
  AgentConnection connection = agent.connection();
  ASSERT_TRUE(connection.say_hello({}, soon()));
  const auto asked =
      connection.call<protocol::PlainReply>(MessageType::kGetStatus, protocol::GetStatusRequest{}, 0, soon());
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code, EOPNOTSUPP);
  EXPECT_FALSE(connection.lost());
}

}  // namespace
}  // namespace verbena::control
