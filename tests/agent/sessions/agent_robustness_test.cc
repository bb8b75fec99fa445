// SPDX-License-Identifier: Apache-2.0
// Misbehaving clients harm neither the agent nor other clients.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/cm/program.h"
#include "agent/network_namespace.h"
#include "agent/sessions/other_users.h"
#include "agent/sessions/raw_connection.h"
#include "agent/slots/slot_packets.h"
#include "agent/status/kept_traces.h"
#include "base/format.h"
#include "base/random.h"
#include "base/seed.h"
#include "control/client/client.h"
#include "control/client/command_client.h"
#include "control/model/message_socket.h"
#include "control/protocol/messages.h"

namespace verbena {
namespace {

using control::Admin;
using control::Client;
using control::ConnectOptions;
using protocol::MessageHeader;
using protocol::MessageType;
using test::AgentProcess;
using test::as_user;
using test::eventually;
using test::may_become_others;
using test::RawConnection;
using test::shell;

const ConnectOptions kOnlyRunning{.start_agent = false, .agent_program = {}};

size_t descriptors_of(pid_t pid) {
  const std::filesystem::directory_iterator fds("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<size_t>(std::distance(begin(fds), end(fds)));
}

// Returns the number of GIDs of the first link; 0 if the agent does not answer.
size_t first_gids(Client& client) {
  const auto links = client.links();
  return links && !links->empty() ? links->front().gids.size() : 0;
}

// Whether a well-behaved client is served.
bool is_well() {
  auto client = Client::connect(kOnlyRunning);
  return client && (*client)->links().has_value();
}

class Robustness : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (!IsSkipped()) agent_.emplace();
  }
  pid_t pid() const { return agent_->pid(); }
  std::optional<AgentProcess> agent_;
};

TEST_F(Robustness, AnswersRandomBytesWithErrors) {
  Random random(test::seed());
  const size_t before = descriptors_of(pid());
  for (int round = 0; round < 200; ++round) {
    RawConnection connection;
    ASSERT_TRUE(connection.connected());
    ASSERT_TRUE(random.one_in(2) || connection.hello());
    for (uint64_t i = random.below(20); i > 0; --i) {
      std::vector<std::byte> message(1 + random.below(1500));
      for (std::byte& byte : message) byte = static_cast<std::byte>(random.next());
      ASSERT_TRUE(connection.send(message));
      const auto error = connection.reply();
      ASSERT_TRUE(error);
      EXPECT_NE(*error, 0);
    }
  }
  EXPECT_TRUE(is_well());
  EXPECT_TRUE(eventually([&] { return descriptors_of(pid()) == before; }));
}

// Draws any message type of the protocol, whose types are in contiguous runs.
MessageType any_type(Random& random) {
  struct Run {
    MessageType first, last;
    uint16_t size() const {
      return static_cast<uint16_t>(static_cast<int>(last) - static_cast<int>(first) + 1);
    }
  };
  static constexpr Run kRuns[] = {{MessageType::kHello, MessageType::kChannelSeen},
                                  {MessageType::kJoinGroup, MessageType::kCloseDomain},
                                  {MessageType::kCmOpenChannel, MessageType::kCmRestoreId}};
  uint64_t types = 0;
  for (const Run& run : kRuns) types += run.size();
  uint64_t index = random.below(types);
  const Run* run = kRuns;
  for (; index >= run->size(); ++run) index -= run->size();
  return static_cast<MessageType>(static_cast<uint64_t>(run->first) + index);
}

TEST_F(Robustness, AnswersRandomRequestsUnderAGoodHeader) {
  Random random(test::seed());
  const size_t before = descriptors_of(pid());
  for (int round = 0; round < 100; ++round) {
    RawConnection connection;
    ASSERT_TRUE(connection.connected());
    ASSERT_TRUE(random.one_in(4) || connection.hello());
    for (int i = 0; i < 30; ++i) {
      static constexpr size_t kLengths[] = {16, 24, 56, 80, 96, 264, 400};
      std::vector<std::byte> message(random.one_in(2) ? kLengths[random.below(std::size(kLengths))]
                                                      : 16 + random.below(490));
      for (std::byte& byte : message) byte = static_cast<std::byte>(random.next());
      const auto header = protocol::request_header(any_type(random), 5);
      std::memcpy(message.data(), &header, sizeof header);
      ASSERT_TRUE(connection.send(message));
      ASSERT_TRUE(connection.reply());
    }
  }
  EXPECT_TRUE(is_well());
  EXPECT_TRUE(eventually([&] { return descriptors_of(pid()) <= before + 2 * 100; }));
}

// Sends random connection management requests of the right length, with numbers that may exist, while a
// well-behaved program runs.
TEST_F(Robustness, AnswersRandomRequestsOfConnectionManagement) {
  static constexpr size_t kLengths[] = {
      sizeof(protocol::CmChannelRequest), sizeof(protocol::CmChannelRequest),
      sizeof(protocol::CmCreateRequest),  sizeof(protocol::CmIdRequest),
      sizeof(protocol::CmBindRequest),    sizeof(protocol::CmResolveRequest),
      sizeof(protocol::CmIdRequest),      sizeof(protocol::CmListenRequest),
      sizeof(protocol::CmConnectRequest), sizeof(protocol::CmConnectRequest),
      sizeof(protocol::CmRejectRequest),  sizeof(protocol::CmIdRequest),
      sizeof(protocol::CmIdRequest),      sizeof(protocol::CmOptionRequest),
      sizeof(protocol::CmJoinRequest),    sizeof(protocol::CmLeaveRequest),
      sizeof(protocol::CmMigrateRequest), sizeof(protocol::CmRestoreRequest)};
  constexpr auto kFirst = static_cast<uint16_t>(MessageType::kCmOpenChannel);
  Random random(test::seed());
  const size_t before = descriptors_of(pid());
  for (int round = 0; round < 160; ++round) {
    RawConnection connection;
    ASSERT_TRUE(connection.connected() && connection.hello());
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const UniqueFd application(pair[0]);
    const UniqueFd agents(pair[1]);
    const int fd = agents.get();
    for (int i = 0; i < 300; ++i) {
      const size_t request = random.below(std::size(kLengths));
      std::vector<std::byte> message(kLengths[request]);
      // Small numbers, so that they coincide; some are address families.
      for (size_t at = 0; at + 4 <= message.size(); at += 4) {
        const uint32_t word = random.one_in(4)   ? static_cast<uint32_t>(random.next())
                              : random.one_in(3) ? AF_INET | uint32_t{0x9f1d} << 16
                                                 : static_cast<uint32_t>(random.below(6));
        std::memcpy(message.data() + at, &word, sizeof word);
      }
      // Most requests are about an identifier of this kind.
      if (request == 2) {
        const uint16_t space[] = {RDMA_PS_TCP, IBV_QPT_RC};
        std::memcpy(message.data() + offsetof(protocol::CmCreateRequest, port_space), space, sizeof space);
      }
      const auto header = protocol::request_header(static_cast<MessageType>(kFirst + request), 5);
      std::memcpy(message.data(), &header, sizeof header);
      const bool with_descriptor = request == 0 ? !random.one_in(4) : random.one_in(200);
      ASSERT_TRUE(connection.send(message, {&fd, with_descriptor ? 1u : 0u}));
      if (with_descriptor && request != 0) {
        EXPECT_TRUE(connection.is_hung_up());
        break;
      }
      ASSERT_TRUE(connection.reply());
    }
  }
  EXPECT_TRUE(is_well());
  // The remaining descriptors are the agent's own sockets and traces of the connections.
  const size_t most = before + 8 + agent::KeptTraces::kMaxTraces;
  EXPECT_TRUE(eventually([&] { return descriptors_of(pid()) <= most; }));
}

TEST_F(Robustness, DropsAClientThatTakesNoEvents) {
  test::CmProgram program;
  ASSERT_TRUE(program.connected());
  const uint32_t id = program.create();
  ASSERT_EQ(program.bind(id, test::address("127.0.0.1")), 0);
  const uint32_t group_member = program.create(RDMA_PS_UDP, IBV_QPT_UD);
  ASSERT_EQ(program.resolve_address(group_member, test::address("127.0.0.1", 7471)), 0);
  program.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  int error = 0;
  for (uint32_t i = 1; error == 0 && i < 100000; ++i) {
    error = program.join(group_member, i, test::address("239.1.2.3"));
    if (error == 0) error = program.leave(group_member, i);
  }
  // The agent closes the connection before or after we send the next request.
  EXPECT_TRUE(error == EPIPE || error == ECONNRESET) << error;
  EXPECT_TRUE(is_well());
}

TEST_F(Robustness, TellsWhatIsWrongWithARequest) {
  RawConnection connection;
  const auto answer_to = [&](auto request, size_t bytes) {
    EXPECT_TRUE(connection.send(protocol::bytes_of(request).first(bytes)));
    return connection.reply().value_or(-1);
  };
  MessageHeader links = protocol::request_header(MessageType::kGetLinks, 1);
  EXPECT_EQ(answer_to(links, sizeof links), EPROTO);  // no hello yet
  ASSERT_TRUE(connection.hello());
  EXPECT_EQ(answer_to(links, sizeof links), 0);
  EXPECT_EQ(connection.last_fds(), 1u);
  EXPECT_EQ(answer_to(links, sizeof links - 1), EBADMSG);
  MessageHeader unknown = protocol::request_header(static_cast<MessageType>(999), 1);
  EXPECT_EQ(answer_to(unknown, sizeof unknown), EOPNOTSUPP);
  MessageHeader newer = links;
  newer.version += 2;
  EXPECT_EQ(answer_to(newer, sizeof newer), EPROTONOSUPPORT);
  protocol::SlotRequest slot{};
  slot.header = protocol::request_header(MessageType::kReturnSlot, 1);
  slot.index = 0xffffffff;
  EXPECT_EQ(answer_to(slot, sizeof slot - 4), EBADMSG);
  EXPECT_EQ(answer_to(slot, sizeof slot), ENOENT);
  slot.header = protocol::request_header(MessageType::kKeepSlot, 1);
  EXPECT_EQ(answer_to(slot, sizeof slot), ENOENT);
  protocol::HelloRequest hello{};
  hello.header = protocol::request_header(MessageType::kHello, 1);
  EXPECT_EQ(answer_to(hello, sizeof hello), EPROTO);  // a second hello
}

TEST_F(Robustness, KeepsNoDescriptorThatItDidNotAskFor) {
  const size_t before = descriptors_of(pid());
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<int> many(250, null.get());
  for (const size_t count : {1u, 4u, 5u, 250u}) {
    RawConnection connection;
    ASSERT_TRUE(connection.hello());
    const MessageHeader request = protocol::request_header(MessageType::kGetLinks, 1);
    ASSERT_TRUE(connection.send(protocol::bytes_of(request), std::span(many).first(count)));
    EXPECT_EQ(connection.reply().value_or(EBADMSG), EBADMSG);
    EXPECT_TRUE(connection.is_hung_up());
  }
  EXPECT_TRUE(eventually([&] { return descriptors_of(pid()) <= before; }));
  EXPECT_TRUE(is_well());
}

TEST_F(Robustness, TakesAnyTakeoverStateWithoutHarm) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd in(pair[0]);
  const UniqueFd out(pair[1]);
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  const UniqueFd pipe_out(pipe_ends[0]);
  const UniqueFd pipe_in(pipe_ends[1]);
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd memory(::memfd_create("x", MFD_CLOEXEC));
  const UniqueFd listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Random random(test::seed());
  for (int i = 0; i < 50; ++i) {
    std::vector<std::byte> garbage(1 + random.below(300));
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random.next());
    const uint32_t looks_right[2] = {0x746c7576, static_cast<uint32_t>(random.below(4))};
    if (garbage.size() >= sizeof looks_right) std::memcpy(garbage.data(), looks_right, sizeof looks_right);
    const int fds[] = {null.get(), memory.get()};
    ASSERT_TRUE(control::send_message(in.get(), garbage, {fds, random.below(3)}));
  }
  for (const int fd : {out.get(), pipe_out.get(), null.get(), memory.get(), listening.get()}) {
    RawConnection connection;
    EXPECT_TRUE(connection.hello({&fd, 1}));
  }
  EXPECT_TRUE(is_well());
}

TEST_F(Robustness, OutlivesAFloodOfConnections) {
  const rlimit few{64, 64};
  ASSERT_EQ(::prlimit(pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  {
    std::vector<std::unique_ptr<RawConnection>> flood;
    for (int i = 0; i < 200; ++i) flood.push_back(std::make_unique<RawConnection>());
  }
  EXPECT_TRUE(eventually(is_well));
}

TEST_F(Robustness, DropsAClientThatDoesNotTakeItsAnswers) {
  RawConnection connection;
  ASSERT_TRUE(connection.hello());
  const MessageHeader request = protocol::request_header(MessageType::kGetStatus, 1);
  // Sends until the agent closes the connection, or until we have sent more than any buffer holds.
  bool dropped = false;
  for (int i = 0; i < 200000 && !dropped; ++i) {
    const auto sent = control::send_message(connection.fd(), protocol::bytes_of(request));
    if (sent) continue;
    dropped = sent.error().code == EPIPE || sent.error().code == ECONNRESET;
    if (sent.error().code == EAGAIN) {
      pollfd entry{connection.fd(), POLLOUT, 0};
      ::poll(&entry, 1, 100);
    }
  }
  EXPECT_TRUE(dropped);
  EXPECT_TRUE(is_well());
}

TEST_F(Robustness, AClientThatReadsNoEventsGetsOnlyTheNewestTable) {
  auto slow = Client::connect(kOnlyRunning);
  ASSERT_TRUE(slow);
  auto watcher = Client::connect(kOnlyRunning);
  ASSERT_TRUE(watcher);
  const size_t before = descriptors_of(pid());
  for (int i = 1; i <= 50; ++i) {
    ASSERT_TRUE(shell("ip addr add 127.1.0." + std::to_string(i) + "/32 dev lo"));
    ASSERT_TRUE(eventually([&] {
      (*watcher)->next_links();
      return first_gids(**watcher) == static_cast<size_t>(i) + 2;
    }));
  }
  // The agent also opens files of the state directory while it writes them.
  EXPECT_TRUE(eventually([&] { return descriptors_of(pid()) <= before + 1; }));
  // The client was already sent one old table; later changes are merged into one more.
  int tables = 0;
  size_t newest = 0;
  ASSERT_TRUE(eventually([&] {
    if (const auto links = (*slow)->next_links()) {
      newest = links->front().gids.size();
      ++tables;
    }
    return newest == 52;
  }));
  EXPECT_LE(tables, 2);
}

// A program would take an error for "no device", so its calls wait. Commands report the problem.
TEST_F(Robustness, CallsWaitForAStoppedAgentAndCommandsGiveUp) {
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  auto early = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(early);
  ::kill(pid(), SIGSTOP);
  std::atomic<bool> answered = false;
  bool succeeded = false;
  std::thread caller([&] {
    const auto links = (*client)->links();
    succeeded = links.has_value();
    answered = true;
  });
  const auto late = Admin::connect(kOnlyRunning);  // takes two seconds
  const auto status = (*early)->status();          // takes two seconds
  EXPECT_FALSE(answered);
  ::kill(pid(), SIGCONT);
  caller.join();
  EXPECT_TRUE(succeeded);
  const std::string silence = verbena::format("agent (pid {}) does not respond; it is stopped", pid());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ETIMEDOUT);
  EXPECT_THAT(late.error().text, ::testing::StartsWith(silence));
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().text, ::testing::StartsWith(silence));
  const auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  EXPECT_EQ(slot->index, 1u);
}

TEST_F(Robustness, RootsAgentServesOthersButLetsThemChangeNothing) {
  if (!may_become_others()) GTEST_SKIP() << "needs root";
  EXPECT_EQ(as_user(65534,
                    [] {
                      auto client = Client::connect(kOnlyRunning);
                      if (!client) return 1;
                      if (!(*client)->links()) return 2;
                      const auto slot = (*client)->take_slot();
                      if (!slot || !slot->is_forwarded) return 3;
                      auto admin = Admin::connect(kOnlyRunning);
                      if (!admin) return 4;
                      const auto status = (*admin)->status();
                      if (!status || status->slots.size() != 1 || status->slots[0].uid != 65534) return 5;
                      const auto added = (*admin)->add_link("x", "lo");
                      if (added || added.error().code != EPERM) return 6;
                      const auto deleted = (*admin)->delete_link("rxe_lo");
                      if (deleted || deleted.error().code != EPERM) return 7;
                      return 0;
                    }),
            0);
}

// Runs in a child of the test below: requests a channel to the slot, and sends a word over it. The number
// says where it failed.
int greet_over_channel(uint32_t peer_slot) {
  auto client = Client::connect(kOnlyRunning);
  if (!client) return 1;
  const auto slot = (*client)->take_slot();
  if (!slot) return 2;
  if (!(*client)->ask_for_channel(slot->index, peer_slot)) return 3;
  std::vector<control::SlotChannel> channels;
  const bool heard = eventually([&] {
    (*client)->next_links();
    channels = (*client)->next_channels();
    return !channels.empty();
  });
  if (!heard || channels[0].error != 0 || !channels[0].socket) return 4;
  return ::send(channels[0].socket.get(), "hello", 5, MSG_NOSIGNAL) == 5 ? 0 : 5;
}

TEST_F(Robustness, RootsAgentJoinsTheProcessesOfAllUsersByChannels) {
  if (!may_become_others()) GTEST_SKIP() << "needs root";
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  EXPECT_EQ(as_user(65534, [&] { return greet_over_channel(slot->index); }), 0);
  std::vector<control::SlotChannel> channels;
  ASSERT_TRUE(eventually([&] {
    (*client)->next_links();
    channels = (*client)->next_channels();
    return !channels.empty();
  }));
  EXPECT_EQ(channels[0].own_slot, slot->index);
  EXPECT_FALSE(channels[0].asked);
  char word[5];
  ASSERT_EQ(::recv(channels[0].socket.get(), word, sizeof word, 0), 5);
  // The channel's end closes only when the agent has also closed its copy.
  EXPECT_TRUE(eventually([&] { return ::recv(channels[0].socket.get(), word, sizeof word, 0) == 0; }))
      << "the other process has ended";
}

TEST_F(Robustness, RandomWordsOnAnEventSocketHarmNobody) {
  Random random(test::seed());
  auto victim = Client::connect(kOnlyRunning);
  ASSERT_TRUE(victim);
  ASSERT_TRUE((*victim)->take_slot());
  const size_t before = descriptors_of(pid());
  for (int round = 0; round < 50; ++round) {
    RawConnection connection;
    ASSERT_TRUE(connection.connected() && connection.hello());
    const MessageHeader take = protocol::request_header(MessageType::kTakeSlot, 2);
    ASSERT_TRUE(connection.send(protocol::bytes_of(take)));
    ASSERT_TRUE(connection.reply());
    for (int i = 0; i < 100; ++i) {
      std::vector<std::byte> message(random.one_in(4) ? 1 + random.below(64) : sizeof(protocol::PeerMessage));
      // Small numbers, so that they coincide.
      for (std::byte& byte : message) byte = static_cast<std::byte>(random.one_in(4) ? random.below(4) : 0);
      constexpr auto kFirst = static_cast<uint64_t>(MessageType::kLinksChanged);
      constexpr auto kLast = static_cast<uint64_t>(MessageType::kChannelSeen);
      const auto type = static_cast<MessageType>(kFirst + random.below(kLast - kFirst + 1));
      const auto header = protocol::request_header(type, static_cast<uint32_t>(random.below(3)));
      std::memcpy(message.data(), &header, std::min(message.size(), sizeof header));
      // The agent takes no more than its socket holds, and reads it bit by bit.
      [[maybe_unused]] const auto sent = control::send_message(connection.events(), message);
    }
    (*victim)->next_links();
    for (const auto& channel : (*victim)->next_channels()) EXPECT_TRUE(channel.socket);
  }
  EXPECT_TRUE(is_well());
  EXPECT_TRUE((*victim)->links());
  EXPECT_TRUE(eventually([&] { return descriptors_of(pid()) <= before + 2 * 50; }));
}

TEST_F(Robustness, OnlyItsOwnUserGetsTheTakeoverState) {
  if (!may_become_others()) GTEST_SKIP() << "needs root";
  const auto descriptors_at_hello = [] {
    RawConnection connection;
    protocol::HelloRequest request{};
    request.header = protocol::request_header(MessageType::kHello, 1);
    const bool greeted = connection.send(protocol::bytes_of(request)) && connection.reply() == 0;
    return greeted ? static_cast<int>(connection.last_fds()) : -1;
  };
  EXPECT_EQ(descriptors_at_hello(), 3);
  EXPECT_EQ(as_user(65534,
                    [] {
                      const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
                      const control::AgentAddress address(0);
                      if (::connect(socket.get(), address.address(), address.length) != 0) return 90;
                      protocol::HelloRequest request{};
                      request.header = protocol::request_header(MessageType::kHello, 1);
                      if (!control::send_message(socket.get(), protocol::bytes_of(request))) return 91;
                      pollfd entry{socket.get(), POLLIN, 0};
                      ::poll(&entry, 1, 2000);
                      std::array<std::byte, protocol::kMaxAgentMessageBytes> buffer;
                      const auto received = control::receive_message(socket.get(), buffer);
                      return received ? static_cast<int>(received->fds.size()) : 92;
                    }),
            2);
}

TEST_F(Robustness, AUsersAgentDoesNotServeAnotherUser) {
  if (!may_become_others()) GTEST_SKIP() << "needs root";
  agent_.reset();
  EXPECT_EQ(as_user(65534,
                    [] {
                      AgentProcess own;
                      if (!is_well()) return 1;
                      // Another user, who would first have to find the name.
                      const int status = as_user(65534, [] { return is_well() ? 0 : 1; });
                      return status;
                    }),
            0);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(99);
    AgentProcess own;
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "r", 1);
    ::close(ready[1]);
    ::pause();
    ::_exit(0);
  }
  ::close(ready[1]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(as_user(65533,
                    [] {
                      const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
                      const control::AgentAddress address(65534);
                      if (::connect(socket.get(), address.address(), address.length) != 0) return 1;
                      protocol::HelloRequest request{};
                      request.header = protocol::request_header(MessageType::kHello, 1);
                      [[maybe_unused]] const auto sent =
                          control::send_message(socket.get(), protocol::bytes_of(request));
                      char answer;
                      return ::recv(socket.get(), &answer, 1, 0) <= 0 ? 0 : 2;
                    }),
            0);
  ::kill(owner, SIGTERM);
  ::waitpid(owner, nullptr, 0);
}

// Runs in a child of the test below; the number says where it failed.
int hold_slots_through_a_restart(int ready, int go_on) {
  auto client = Client::connect(kOnlyRunning);
  if (!client) return 1;
  const auto one = (*client)->take_slot();
  const auto two = (*client)->take_slot();
  if (!one || !two || !one->is_forwarded || !two->is_forwarded) return 2;
  char byte = 'r';
  if (::write(ready, &byte, 1) != 1 || ::read(go_on, &byte, 1) != 1) return 3;

  // The agent has been killed.
  if (!test::send_to_slot(1, 11) || !test::send_to_slot(2, 12)) return 4;
  if (test::received_tags(*one) != std::vector<uint32_t>{11}) return 5;
  if (test::received_tags(*two) != std::vector<uint32_t>{12}) return 6;
  control::Slot three;
  const bool leased = eventually([&] {
    auto slot = (*client)->take_slot();
    if (slot) three = std::move(*slot);
    return slot.has_value();
  });
  if (!leased || three.index != 3 || !three.is_forwarded) return 7;
  for (uint32_t slot = 1; slot <= 3; ++slot) {
    if (!test::send_to_slot(slot, 20 + slot)) return 8;
  }
  if (test::received_tags(*one) != std::vector<uint32_t>{21}) return 9;
  if (test::received_tags(*two) != std::vector<uint32_t>{22}) return 10;
  if (test::received_tags(three) != std::vector<uint32_t>{23}) return 11;
  return (*client)->return_slot(1) ? 0 : 12;
}

TEST_F(Robustness, AKilledRootAgentIsSurvivedByTheSlotsOfOtherUsersAlone) {
  if (!may_become_others()) GTEST_SKIP() << "needs root";
  int ready[2];
  int go_on[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(go_on), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(99);
    ::_exit(hold_slots_through_a_restart(ready[1], go_on[0]));
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_TRUE(eventually([] { return test::find_process("verbena-keeper") != 0; }));
  agent_->stop(SIGKILL);
  ASSERT_EQ(::write(go_on[1], &byte, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);

  // When the last of these slots is returned, the standby ends, and then the agent that it started.
  EXPECT_TRUE(eventually([] { return test::find_process("verbena-keeper") == 0; }));
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  const auto last_status = (*admin)->status();
  ASSERT_TRUE(last_status);
  ::kill(last_status->pid, SIGTERM);
  EXPECT_TRUE(eventually([] { return !is_well(); }));
}

}  // namespace
}  // namespace verbena
