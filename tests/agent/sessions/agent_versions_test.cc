// SPDX-License-Identifier: Apache-2.0
// An agent and programs with different versions of the protocol, as after an upgrade of the package.
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"
#include "base/bytes.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "control/client/client.h"
#include "control/client/command_client.h"
#include "control/model/message_socket.h"
#include "control/protocol/messages.h"

namespace verbena {
namespace {

using protocol::MessageHeader;
using protocol::MessageType;
using ::testing::HasSubstr;

constexpr uint16_t kOwn = protocol::kProtocolVersion;

// A program that speaks a chosen version of the protocol.
class Program {
 public:
  explicit Program(uint16_t version, uid_t agent = ::geteuid()) : version_(version) {
    socket_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const control::AgentAddress address(agent);
    EXPECT_EQ(::connect(socket_.get(), address.address(), address.length), 0);
  }

  struct Reply {
    MessageHeader header{};
    size_t bytes = 0;
    std::array<std::byte, protocol::kMaxAgentMessageBytes> message{};
    template <class Message>
    Message as() const {
      Message result;
      std::memcpy(&result, message.data(), sizeof result);
      return result;
    }
  };
  // Sends a request with `more` extra zeros, as a later version may append fields.
  template <class Request>
  Reply ask(MessageType type, Request request, size_t more = 0) {
    request.header = protocol::request_header(type, ++sequence_, version_);
    std::vector<std::byte> bytes(sizeof request + more);
    std::memcpy(bytes.data(), &request, sizeof request);
    EXPECT_TRUE(control::send_message(socket_.get(), bytes));
    Reply reply;
    auto received = control::wait_for_message(socket_.get(), reply.message);
    EXPECT_TRUE(received);
    if (!received) return reply;
    reply.bytes = received->bytes;
    std::memcpy(&reply.header, reply.message.data(), sizeof reply.header);
    for (UniqueFd& fd : received->fds) kept_.push_back(std::move(fd));  // the event socket must stay open
    return reply;
  }
  Reply hello(size_t more = 0) { return ask(MessageType::kHello, protocol::HelloRequest{}, more); }
  // The event socket, after hello.
  int events() const { return kept_.at(0).get(); }
  // Waits for the next event, link news excepted. Returns its type.
  MessageType next_event() {
    for (;;) {
      pollfd entry{events(), POLLIN, 0};
      EXPECT_EQ(::poll(&entry, 1, 10'000), 1);
      std::array<std::byte, protocol::kMaxEventBytes> message{};
      EXPECT_TRUE(control::receive_message(events(), message));
      const auto type = static_cast<MessageType>(protocol::read_as<MessageHeader>(message).type);
      if (type != MessageType::kLinksChanged) return type;
    }
  }

 private:
  const uint16_t version_;
  uint32_t sequence_ = 0;
  UniqueFd socket_;
  std::vector<UniqueFd> kept_;
};

class AgentVersions : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (!IsSkipped()) agent_.emplace();
  }
  std::optional<test::AgentProcess> agent_;
};

TEST_F(AgentVersions, AnOlderProgramGetsMessagesOfItsOwnVersion) {
  Program program(1);
  const auto hello = program.hello();
  EXPECT_EQ(hello.header.error, 0);
  EXPECT_EQ(hello.header.version, 1);
  EXPECT_EQ(hello.bytes, 56u);
  const auto status = program.ask(MessageType::kGetStatus, protocol::GetStatusRequest{});
  EXPECT_EQ(status.header.version, 1);
  EXPECT_EQ(status.bytes, 296u);
  ASSERT_EQ(program.ask(MessageType::kTakeSlot, protocol::TakeSlotRequest{}).header.error, 0);
  protocol::SlotRequest any{};
  EXPECT_EQ(program.ask(MessageType::kGetSlotStatus, any).bytes, 96u);

  const auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
  ASSERT_TRUE(admin);
  const auto shown = (*admin)->status();
  ASSERT_TRUE(shown);
  ASSERT_EQ(shown->slots.size(), 1u);
  EXPECT_EQ(shown->slots[0].protocol_version, 1);
}

TEST_F(AgentVersions, AProgramOfVersion2GetsTheLongerMessages) {
  Program program(2);
  const auto hello = program.hello();
  EXPECT_EQ(hello.header.error, 0);
  EXPECT_EQ(hello.header.version, 2);
  EXPECT_EQ(hello.bytes, 64u);
  const auto status = program.ask(MessageType::kGetStatus, protocol::GetStatusRequest{});
  EXPECT_EQ(status.header.version, 2);
  EXPECT_EQ(status.bytes, 312u);
}

TEST_F(AgentVersions, AProgramOfBeforeChannelsIsNotToldOfOne) {
  auto asker = control::Client::connect({.start_agent = false, .agent_program = {}});
  ASSERT_TRUE(asker);
  const auto own = (*asker)->take_slot();
  ASSERT_TRUE(own);
  for (const uint16_t version : {uint16_t{1}, uint16_t{2}}) {
    Program program(version);
    program.hello();
    const auto taken = program.ask(MessageType::kTakeSlot, protocol::TakeSlotRequest{});
    ASSERT_EQ(taken.header.error, 0);
    const uint32_t slot = taken.as<protocol::TakeSlotReply>().index;
    ASSERT_TRUE((*asker)->ask_for_channel(own->index, slot));
    std::vector<control::SlotChannel> answers;
    ASSERT_TRUE(test::eventually([&] {
      (*asker)->next_links();
      answers = (*asker)->next_channels();
      return !answers.empty();
    }));
    EXPECT_EQ(answers[0].error, EOPNOTSUPP);
    EXPECT_FALSE(answers[0].socket);

    // The program's own request for a channel is not answered: the first event answers the request after it.
    const protocol::ChannelMessage question{protocol::request_header(MessageType::kAskChannel, 0, version),
                                            slot, own->index, 0, 0};
    const protocol::PeerMessage next{protocol::request_header(MessageType::kAskPeer, 0, version), 7, 0, 0};
    ASSERT_TRUE(control::send_message(program.events(), protocol::bytes_of(question)));
    ASSERT_TRUE(control::send_message(program.events(), protocol::bytes_of(next)));
    EXPECT_EQ(program.next_event(), MessageType::kPeer);
    (*asker)->next_links();
    EXPECT_TRUE((*asker)->next_channels().empty());
  }
}

TEST_F(AgentVersions, AProgramOfBeforeCapturesIsNotToldOfOne) {
  Program program(3);
  program.hello();
  const auto taken = program.ask(MessageType::kTakeSlot, protocol::TakeSlotRequest{});
  ASSERT_EQ(taken.header.error, 0);
  auto capturer = control::CaptureClient::connect({.start_agent = false, .agent_program = {}});
  ASSERT_TRUE(capturer);
  ASSERT_TRUE((*capturer)->start(64));
  const auto news = (*capturer)->next();
  ASSERT_TRUE(news);
  EXPECT_EQ(news->kind, protocol::CaptureNewsReply::kRefused);
  EXPECT_EQ(news->error, EOPNOTSUPP);
  // The first event answers a later request.
  const protocol::PeerMessage question{protocol::request_header(MessageType::kAskPeer, 0, 3), 7, 0, 0};
  ASSERT_TRUE(control::send_message(program.events(), protocol::bytes_of(question)));
  EXPECT_EQ(program.next_event(), MessageType::kPeer);
}

// A program of another user gets no socket, and this version does not know forwarding.
TEST_F(AgentVersions, AProgramOfBeforeHandingOverIsToldThatItHasNoWireAndWhy) {
  const auto take_as_other = [](uint16_t version) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(99);
      Program program(version, 0);
      program.hello();
      const auto taken = program.ask(MessageType::kTakeSlot, protocol::TakeSlotRequest{});
      const auto reply = taken.as<protocol::TakeSlotReply>();
      if (taken.header.error != 0) ::_exit(98);
      const bool says_why = load_text(reply.no_wire_reason).find("too old") != std::string::npos;
      ::_exit(static_cast<int>(reply.wire) + (says_why ? 10 : 0));
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const int old = take_as_other(protocol::kFirstVersionWithForwarding - 1);
  if (old == 99) GTEST_SKIP() << "needs root";
  EXPECT_EQ(old, 10 + static_cast<int>(protocol::SlotWire::kNone));
  EXPECT_EQ(take_as_other(protocol::kFirstVersionWithForwarding),
            static_cast<int>(protocol::SlotWire::kForwarded));
}

TEST_F(AgentVersions, ANewerProgramIsAnsweredInTheAgentsVersion) {
  Program program(kOwn + 1);
  const auto hello = program.hello(16);
  EXPECT_EQ(hello.header.error, 0);
  EXPECT_EQ(hello.header.version, kOwn);
  EXPECT_EQ(hello.bytes, sizeof(protocol::HelloReply));
  EXPECT_EQ(program.ask(static_cast<MessageType>(999), protocol::PlainReply{}).header.error, EOPNOTSUPP);
}

TEST_F(AgentVersions, ALongerRequestIsTakenFromANewerProgramOnly) {
  Program same(kOwn);
  EXPECT_EQ(same.hello(16).header.error, EBADMSG);
}

TEST_F(AgentVersions, AProgramOfAnyOtherVersionIsRefusedAndTheUserIsTold) {
  for (const uint16_t version : {uint16_t{0}, static_cast<uint16_t>(kOwn + 2), uint16_t{0xffff}}) {
    Program program(version);
    const auto hello = program.hello();
    EXPECT_EQ(hello.header.error, EPROTONOSUPPORT);
    EXPECT_EQ(hello.header.version, kOwn) << "the program is to learn what the agent speaks";
    EXPECT_THAT(load_text(hello.as<protocol::ErrorReply>().text), HasSubstr("end the older"));
  }
  const auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
  ASSERT_TRUE(admin);
  const auto status = (*admin)->status();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->protocol_version, kOwn);
  EXPECT_EQ(status->refused.count, 3u);
  EXPECT_EQ(status->refused.last_version, 0xffff);
  EXPECT_EQ(status->refused.last_pid, ::getpid());
}

}  // namespace
}  // namespace verbena
