// SPDX-License-Identifier: Apache-2.0
// Users under root's agent: no user's programs can block those of other users or root.
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"
#include "agent/sessions/misdeeds.h"
#include "agent/sessions/other_users.h"
#include "agent/sessions/raw_connection.h"
#include "agent/sessions/silent_file.h"
#include "base/bytes.h"
#include "base/lingering_socket.h"
#include "base/temporary_file.h"
#include "base/unique_fd.h"
#include "base/watched_thread.h"
#include "control/client/client.h"
#include "control/client/command_client.h"
#include "control/protocol/connection_messages.h"
#include "control/protocol/messages.h"

namespace verbena {
namespace {

using control::Admin;
using control::Client;
using control::ConnectOptions;
using protocol::MessageType;
using test::AgentProcess;
using test::as_user;
using test::eventually;
using test::LingeringSocket;
using test::may_become_others;
using test::RawConnection;

constexpr uid_t kHostile = 65534;
constexpr uid_t kOther = 65533;
constexpr uid_t kRoot = 0;
// Requests that these tests could block would wait longer than this.
constexpr Duration kAtOnce = std::chrono::seconds(2);

const ConnectOptions kOnlyRunning{.start_agent = false, .agent_program = {}};

// Makes the agent read the counters that all processes publish.
bool ask_for_counters() {
  RawConnection connection(kRoot);
  protocol::DeviceRequest request{};
  request.header = protocol::request_header(MessageType::kGetDeviceCounters, 2);
  return connection.hello() && connection.send(protocol::bytes_of(request)) && connection.reply() == 0;
}

// Makes the requests of an ordinary program within kAtOnce. Returns 0, or the number of the failed step.
int use_the_agent() {
  const TimePoint begun = MonotonicClock::now();
  if (!ask_for_counters()) return 7;
  auto client = Client::connect(kOnlyRunning);
  if (!client) return 1;
  if (!(*client)->links()) return 2;
  auto slot = (*client)->take_slot();
  if (!slot) return 3;
  const UniqueFd file = test::temporary_file();
  const Client::DomainFile domain{.fd = file.get(), .device_index = 0, .create = true, .exclusive = false};
  if (!(*client)->open_domain(1, slot->index, domain)) return 4;
  if (!(*client)->return_slot(slot->index)) return 5;
  return MonotonicClock::now() - begun < kAtOnce ? 0 : 6;
}

// A process of another user that does its worst, and then keeps what it has for as long as this object
// exists.
class HostileProcess {
 public:
  // Each returns 0, or the number of the failed step, and puts what it has to keep into variables that it
  // captures. The first runs at once, each later one by go_on().
  using Work = std::function<int()>;
  HostileProcess(uid_t uid, const Work& work, const Work& more)
      : HostileProcess(uid, work, std::vector{more}) {}
  HostileProcess(uid_t uid, const Work& work, std::vector<Work> more = {}) {
    int told[2];
    int asked[2];
    if (::pipe(told) != 0 || ::pipe(asked) != 0) return;
    told_.reset(told[0]);
    asked_.reset(asked[1]);
    const UniqueFd tell(told[1]);
    const UniqueFd hear(asked[0]);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::setgid(uid) != 0 || ::setuid(uid) != 0) ::_exit(99);
      more.insert(more.begin(), work);
      for (const Work& each : more) {
        const auto outcome = static_cast<char>(each());
        char go = 0;
        if (::write(tell.get(), &outcome, 1) != 1 || ::read(hear.get(), &go, 1) != 1) break;
      }
      for (;;) ::pause();
    }
    outcome_ = next_outcome();
  }
  ~HostileProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  HostileProcess(const HostileProcess&) = delete;
  HostileProcess& operator=(const HostileProcess&) = delete;

  // The result of the first work.
  int outcome() const { return outcome_; }
  int go_on() {
    const char go = 1;
    return ::write(asked_.get(), &go, 1) == 1 ? next_outcome() : 97;
  }

 private:
  int next_outcome() const {
    char outcome = 98;
    return ::read(told_.get(), &outcome, 1) == 1 ? outcome : 98;
  }

  UniqueFd told_;
  UniqueFd asked_;
  pid_t pid_ = -1;
  int outcome_ = 97;
};

class Tenants : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    if (!may_become_others()) GTEST_SKIP() << "needs root";
    agent_.emplace();
  }
  static void expect_that_others_are_served() {
    EXPECT_EQ(use_the_agent(), 0) << "root";
    EXPECT_EQ(as_user(kOther, use_the_agent), 0) << "another user";
  }

  std::optional<AgentProcess> agent_;
};

// ---- descriptors that take long to close

// Sends `slow` and closes our copy: only the message holds it then. REQUIRES: the agent does not read it
// meanwhile.
bool send_with(int socket, ConstBytes message, LingeringSocket& slow) {
  const int fd = slow.fd();
  const bool sent = control::send_message(socket, message, {&fd, 1}).has_value();
  slow.reset();
  return sent;
}

// Sends slow descriptors with hello, with a request that takes no descriptor, with one that takes another
// kind, and on the event socket.
TEST_F(Tenants, ADescriptorWhoseCloseBlocksHoldsUpOnlyWhoSendsIt) {
  test::KeptConnections kept;
  std::vector<std::unique_ptr<LingeringSocket>> slow;
  const auto prepare = [&] {
    for (int i = 0; i < 4; ++i) {
      slow.push_back(std::make_unique<LingeringSocket>());
      kept.push_back(std::make_unique<RawConnection>(kRoot));
      if (i > 0 && !kept[i]->hello()) return 1;
    }
    return 0;
  };
  const auto send = [&] {
    protocol::HelloRequest hello{};
    hello.header = protocol::request_header(MessageType::kHello, 1);
    if (!send_with(kept[0]->fd(), protocol::bytes_of(hello), *slow[0])) return 1;
    const auto get_links = protocol::request_header(MessageType::kGetLinks, 2);
    if (!send_with(kept[1]->fd(), protocol::bytes_of(get_links), *slow[1])) return 2;
    protocol::CmChannelRequest open_channel{};
    open_channel.header = protocol::request_header(MessageType::kCmOpenChannel, 2);
    if (!send_with(kept[2]->fd(), protocol::bytes_of(open_channel), *slow[2])) return 3;
    return send_with(kept[3]->events(), protocol::bytes_of(get_links), *slow[3]) ? 0 : 4;
  };
  HostileProcess hostile(kHostile, prepare, send);
  ASSERT_EQ(hostile.outcome(), 0);
  ::kill(agent_->pid(), SIGSTOP);
  EXPECT_EQ(hostile.go_on(), 0);
  ::kill(agent_->pid(), SIGCONT);
  expect_that_others_are_served();
}

// The event channel that the client passes to the agent contains a message with a slow descriptor.
TEST_F(Tenants, AnEventChannelThatHoldsSuchADescriptorHoldsUpNobody) {
  std::unique_ptr<LingeringSocket> slow;
  const HostileProcess hostile(kHostile, [&] {
    RawConnection connection(kRoot);
    if (!connection.hello()) return 1;
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return 2;
    const UniqueFd agents(ends[0]);
    const UniqueFd own(ends[1]);
    slow = std::make_unique<LingeringSocket>();
    const std::array<std::byte, 1> word{};
    if (!send_with(own.get(), word, *slow)) return 3;
    protocol::CmChannelRequest request{};
    request.header = protocol::request_header(MessageType::kCmOpenChannel, 2);
    request.channel = 1;
    const int channel = agents.get();
    if (!connection.send(protocol::bytes_of(request), {&channel, 1}) || connection.reply() != 0) return 4;
    return 0;  // closes everything but the far end of the lingering socket
  });
  ASSERT_EQ(hostile.outcome(), 0);
  expect_that_others_are_served();
}

// An agent as under the shipped unit: root, but without the capability to exceed the limit of descriptors in
// flight. Lives as long as this object.
class LimitedAgent {
 public:
  explicit LimitedAgent(rlim_t descriptors) : parent_(kRoot, [&] { return start(descriptors); }) {}
  // 0, or the number of the failed step.
  int outcome() const { return parent_.outcome(); }

 private:
  int start(rlim_t descriptors) {
    for (const unsigned long capability : {CAP_SYS_RESOURCE, CAP_SYS_ADMIN}) {
      if (::prctl(PR_CAPBSET_DROP, capability) != 0) return 1;
    }
    const rlimit limit{descriptors, descriptors};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
    agent_.emplace();
    return 0;
  }

  std::optional<AgentProcess> agent_;  // in the parent process
  HostileProcess parent_;
};

// Runs in a process: opens an XRC domain on a file whose server does not answer. Sets `server` to its pid.
int open_silent_domain(std::optional<test::SilentFile>& file, pid_t& server,
                       std::optional<RawConnection>& connection) {
  file.emplace();
  server = file->server();
  if (file->fd() < 0) return 77;
  if (::setgid(kHostile) != 0 || ::setuid(kHostile) != 0) return 99;
  connection.emplace(kRoot);
  if (!connection->hello()) return 1;
  const auto take_slot = protocol::request_header(MessageType::kTakeSlot, 2);
  if (!connection->send(protocol::bytes_of(take_slot)) || connection->reply() != 0) return 2;
  protocol::DomainRequest request{};
  request.header = protocol::request_header(MessageType::kOpenDomain, 3);
  request.slot = 1;  // the first slot that is leased
  request.flags = protocol::DomainRequest::kCreate;
  const int fd = file->fd();
  if (!connection->send(protocol::bytes_of(request), {&fd, 1})) return 3;
  return connection->reply() == 0 ? 0 : 4;
}

// Runs `work` on an unresponsive file in a process of root, and expects that others are served meanwhile.
class SilentFiles : public Tenants {
 protected:
  using Work = std::function<int(std::optional<test::SilentFile>&, pid_t& server)>;
  void SetUp() override {
    Tenants::SetUp();
    void* const shared =
        ::mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    server_ = static_cast<pid_t*>(shared);
  }
  void TearDown() override { ::munmap(server_, sizeof(pid_t)); }
  // `and_more`: what else is expected.
  void expect_service_beside(
      const Work& work, const std::function<void()>& and_more = [] {}) {
    std::optional<test::SilentFile> file;
    const HostileProcess hostile(kRoot, [&] { return work(file, *server_); });
    if (hostile.outcome() != 77) {
      EXPECT_EQ(hostile.outcome(), 0);
      expect_that_others_are_served();
      and_more();
    }
    if (*server_ > 0) ::kill(*server_, SIGKILL);  // otherwise processes that have the file open could not end
    if (hostile.outcome() == 77) GTEST_SKIP() << "no FUSE here";
  }

 private:
  pid_t* server_ = nullptr;
};

TEST_F(SilentFiles, OneThatIsAnXrcDomainHoldsUpNobody) {
  std::optional<RawConnection> connection;
  expect_service_beside(
      [&](auto& file, pid_t& server) { return open_silent_domain(file, server, connection); });
}

// Returns the next reply. The agent waits for five seconds before it refuses a descriptor.
std::optional<int> reply_within_patience(RawConnection& connection) {
  pollfd entry{connection.fd(), POLLIN, 0};
  return ::poll(&entry, 1, 10'000) == 1 ? connection.reply() : std::nullopt;
}

// Runs in a process: sends descriptors to the agent that wait for the first of them to be closed, until
// the agent takes no more. The sessions go on.
int let_descriptors_wait(std::optional<test::SilentFile>& file, pid_t& server,
                         std::array<std::optional<RawConnection>, 3>& connections) {
  file.emplace();
  server = file->server();
  if (file->fd() < 0) return 77;
  if (::setgid(kHostile) != 0 || ::setuid(kHostile) != 0) return 99;
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  protocol::DomainRequest request{};
  request.header = protocol::request_header(MessageType::kOpenDomain, 3);  // refused: slot 0 is the agent's
  int fd = file->fd();
  for (auto& each : connections) {
    each.emplace(kRoot);
    if (!each->hello()) return 1;
    std::optional<int> refusal = EINVAL;  // for the wrong slot
    for (int sent = 0; sent < 4096 && refusal == EINVAL; ++sent) {
      if (!each->send(protocol::bytes_of(request), {&fd, 1})) return 3;
      refusal = reply_within_patience(*each);
      fd = null.get();
    }
    const auto get_links = protocol::request_header(MessageType::kGetLinks, 4);
    if (refusal != EMFILE) return 4;
    if (!each->send(protocol::bytes_of(get_links)) || each->reply() != 0) return 5;
  }
  return fd == null.get() ? 0 : 2;
}

TEST_F(SilentFiles, WhatWaitsForOneToBeClosedLeavesDescriptorsForOthers) {
  agent_.reset();
  const LimitedAgent limited(1024);
  ASSERT_EQ(limited.outcome(), 0);
  std::array<std::optional<RawConnection>, 3> connections;
  expect_service_beside(
      [&](auto& file, pid_t& server) { return let_descriptors_wait(file, server, connections); });
}

// Runs in a process: greets twice, with a descriptor of an unresponsive file each time.
int greet_with_silent_file(std::optional<test::SilentFile>& file, pid_t& server,
                           std::array<std::optional<RawConnection>, 2>& connections) {
  file.emplace();
  server = file->server();
  if (file->fd() < 0) return 77;
  if (::setgid(kHostile) != 0 || ::setuid(kHostile) != 0) return 99;
  protocol::HelloRequest hello{};
  hello.header = protocol::request_header(MessageType::kHello, 1);
  const int fd = file->fd();
  for (auto& each : connections) {
    each.emplace(kRoot);
    if (!each->send(protocol::bytes_of(hello), {&fd, 1}) || each->reply() != 0) return 1;
  }
  return 0;
}

// The thread that closes them hangs with the first, while the agent still has the second. A standby that had
// copies of the agent's descriptors would close this one before it runs.
TEST_F(SilentFiles, TwoOfThemDoNotKeepTheStandbyFromComing) {
  std::array<std::optional<RawConnection>, 2> connections;
  std::optional<control::Slot> slot;
  std::unique_ptr<Client> client;
  const auto take_slot = [&] {
    auto connected = Client::connect(kOnlyRunning);
    if (!connected) return 1;
    client = std::move(*connected);
    auto taken = client->take_slot();
    if (!taken) return 2;
    slot = std::move(*taken);
    return 0;
  };
  expect_service_beside(
      [&](auto& file, pid_t& server) { return greet_with_silent_file(file, server, connections); },
      [&] {
        const HostileProcess other(kOther, take_slot);
        EXPECT_EQ(other.outcome(), 0);
        EXPECT_TRUE(eventually([] { return test::find_process("verbena-keeper") != 0; }));
      });
}

// A write holds the file's lock, even while its source data are still being read.
TEST_F(SilentFiles, OneThatIsWrittenToAStatusPageHoldsUpNobody) {
  std::unique_ptr<Client> client;
  std::optional<control::Slot> slot;
  std::optional<test::WatchedThread> writer;
  expect_service_beside([&](auto& file, pid_t& server) {
    file.emplace();
    server = file->server();
    if (file->fd() < 0) return 77;
    if (::setgid(kHostile) != 0 || ::setuid(kHostile) != 0) return 99;
    auto connected = Client::connect(kOnlyRunning);
    if (!connected) return 1;
    client = std::move(*connected);
    auto taken = client->take_slot();
    if (!taken) return 2;
    slot = std::move(*taken);
    const uint64_t magic = protocol::StatusPage::kMagic;
    if (::pwrite(slot->status_page.get(), &magic, sizeof magic, 0) != sizeof magic) return 3;
    const void* const silent =
        ::mmap(nullptr, test::SilentFile::kBytes, PROT_READ, MAP_PRIVATE, file->fd(), 0);
    if (silent == MAP_FAILED) return 4;
    writer.emplace([&slot, silent] {
      [[maybe_unused]] const ssize_t written =
          ::pwrite(slot->status_page.get(), silent, test::SilentFile::kBytes, 1 << 16);
    });
    return writer->falls_asleep() ? 0 : 5;
  });
}

// ---- processor time

// The hostile process queues thousands of requests before another user comes.
TEST_F(Tenants, WhoAsksWithoutEndIsAnsweredInTurnsWithOthers) {
  constexpr int kSessions = 64, kRequests = 64;
  test::KeptConnections kept;
  const auto greet = [&] { return test::take_all_connections(kept, kSessions) == kSessions ? 0 : 1; };
  const auto ask = [&] {
    const auto request = protocol::request_header(MessageType::kGetCmStatus, 2);
    for (const auto& connection : kept) {
      for (int i = 0; i < kRequests; ++i) {
        if (!connection->send(protocol::bytes_of(request))) return 1;
      }
    }
    return 0;
  };
  int answers = 0;
  const auto count_answers = [&] {
    for (const auto& connection : kept) {
      std::array<std::byte, protocol::kMaxAgentMessageBytes> reply;
      while (::recv(connection->fd(), reply.data(), reply.size(), MSG_DONTWAIT) > 0) ++answers;
    }
    return answers < kSessions * kRequests / 4 ? 0 : 1;
  };
  HostileProcess hostile(kHostile, greet, {ask, count_answers});
  ASSERT_EQ(hostile.outcome(), 0);
  ::kill(agent_->pid(), SIGSTOP);
  ASSERT_EQ(hostile.go_on(), 0);
  // A single process that is scheduled as soon as the answer comes, so that little time passes before the
  // agent is stopped again.
  const int outcome = test::as_child([&] {
    const sched_param first{.sched_priority = 1};
    ::sched_setscheduler(0, SCHED_FIFO, &first);
    if (::seteuid(kOther) != 0) return 1;
    RawConnection connection(kRoot);
    protocol::HelloRequest request{};
    request.header = protocol::request_header(MessageType::kHello, 1);
    if (!connection.send(protocol::bytes_of(request)) || ::seteuid(kRoot) != 0) return 2;
    ::kill(agent_->pid(), SIGCONT);
    const bool is_greeted = connection.reply() == 0;
    ::kill(agent_->pid(), SIGSTOP);
    return is_greeted ? 0 : 3;
  });
  EXPECT_EQ(outcome, 0);
  EXPECT_EQ(hostile.go_on(), 0) << "hundreds of requests were answered first";
  ::kill(agent_->pid(), SIGCONT);
}

// ---- memory

void raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Requests a list of identifiers. Returns the reply's error, and the list's file in `list`.
int ask_for_list(RawConnection& connection, UniqueFd& list) {
  const auto request = protocol::request_header(MessageType::kGetCmIds, 2);
  if (!connection.send(protocol::bytes_of(request))) return -1;
  return connection.reply(&list).value_or(-2);
}

TEST_F(Tenants, AProgramHoldsOneListOfIdentifiersAtATime) {
  EXPECT_EQ(as_user(kHostile,
                    [] {
                      RawConnection connection(kRoot);
                      UniqueFd first, second;
                      if (!connection.hello() || ask_for_list(connection, first) != 0) return 1;
                      if (ask_for_list(connection, second) != EBUSY) return 2;
                      first.reset();
                      return ask_for_list(connection, second) == 0 ? 0 : 3;
                    }),
            0);
  expect_that_others_are_served();
}

TEST_F(Tenants, ListsThatAUsersProgramsHoldAreBounded) {
  raise_descriptor_limit();
  test::KeptConnections kept;
  std::vector<UniqueFd> lists;
  const HostileProcess hostile(kHostile, [&] {
    for (int i = 0; i < 600; ++i) {
      RawConnection& connection = test::connect_to_root(kept);
      if (!connection.hello()) return 1;
      const int error = ask_for_list(connection, lists.emplace_back());
      if (error == EMFILE) return 0;
      if (error != 0) return 2;
    }
    return 3;
  });
  EXPECT_EQ(hostile.outcome(), 0);
  expect_that_others_are_served();
}

// ---- limits of one user

TEST_F(Tenants, OneConnectionDoesNotGetAllSlots) {
  test::KeptConnections kept;
  int slots = 0;
  const HostileProcess hostile(kHostile, [&] {
    slots = test::take_all_slots(kept);
    return slots > 0 && slots < 800 ? 0 : 1;
  });
  ASSERT_EQ(hostile.outcome(), 0);
  expect_that_others_are_served();
}

// More programs than a user may have unread descriptors. Those that were read do not count, even if the
// program makes no further request.
TEST_F(Tenants, IdleProgramsThatHaveReadTheirGreetingAreNotInTheWay) {
  raise_descriptor_limit();
  test::KeptConnections kept;
  constexpr size_t kMany = 600;
  const HostileProcess many(kOther, [&] { return test::take_all_connections(kept, kMany) == kMany ? 0 : 1; });
  EXPECT_EQ(many.outcome(), 0);
}

// All programs start at once, and each greeting is read only after the ones before it.
TEST_F(Tenants, ManyProgramsThatStartTogetherAreGreetedOneAfterTheOther) {
  raise_descriptor_limit();
  test::KeptConnections kept;
  const HostileProcess many(kOther, [&] {
    protocol::HelloRequest hello{};
    hello.header = protocol::request_header(MessageType::kHello, 1);
    for (int i = 0; i < 500; ++i) {
      if (!test::connect_to_root(kept).send(protocol::bytes_of(hello))) return 1;
    }
    for (const auto& each : kept) {
      if (each->reply() != 0) return 2;
    }
    return 0;
  });
  EXPECT_EQ(many.outcome(), 0);
}

TEST_F(Tenants, SeveralUsersTogetherDoNotGetAllConnections) {
  raise_descriptor_limit();
  std::vector<std::unique_ptr<HostileProcess>> hostile;
  test::KeptConnections kept;
  for (uid_t user = 61000; user < 61008; ++user) {
    hostile.push_back(std::make_unique<HostileProcess>(user, [&] {
      const size_t taken = test::take_all_connections(kept);
      return taken > 0 && taken < 8000 ? 0 : 1;
    }));
    ASSERT_EQ(hostile.back()->outcome(), 0) << user;
  }
  expect_that_others_are_served();
}

TEST_F(Tenants, WhoReadsNothingLeavesDescriptorsForOthers) {
  agent_.reset();
  const LimitedAgent limited(4096);
  ASSERT_EQ(limited.outcome(), 0);
  test::KeptConnections kept;
  const HostileProcess hostile(kHostile, [&] { return test::read_nothing(kept) ? 0 : 1; });
  ASSERT_EQ(hostile.outcome(), 0);
  expect_that_others_are_served();
}

// As above, but the connections end while replies on them are still unread.
TEST_F(Tenants, WhoHangsUpOnUnreadAnswersLeavesDescriptorsForOthers) {
  agent_.reset();
  const LimitedAgent limited(1024);
  ASSERT_EQ(limited.outcome(), 0);
  test::KeptConnections kept;
  const HostileProcess hostile(kHostile, [&] {
    for (int i = 0; i < 600; ++i) {
      kept.push_back(std::make_unique<RawConnection>(kRoot));
      protocol::HelloRequest hello{};
      hello.header = protocol::request_header(MessageType::kHello, 1);
      if (!kept.back()->send(protocol::bytes_of(hello))) continue;
      ::shutdown(kept.back()->fd(), SHUT_WR);
    }
    return 0;
  });
  ASSERT_EQ(hostile.outcome(), 0);
  EXPECT_TRUE(eventually([] { return use_the_agent() == 0; }));
  EXPECT_TRUE(eventually([] { return as_user(kOther, use_the_agent) == 0; }));
}

TEST_F(Tenants, EventChannelsOfSeveralUsersLeaveDescriptorsForOthers) {
  agent_.reset();
  const LimitedAgent limited(4096);
  ASSERT_EQ(limited.outcome(), 0);
  std::vector<std::unique_ptr<HostileProcess>> hostile;
  test::KeptConnections kept;
  for (uid_t user = 61000; user < 61008; ++user) {
    hostile.push_back(std::make_unique<HostileProcess>(user, [&] { return test::take_all_channels(kept); }));
    ASSERT_EQ(hostile.back()->outcome(), 0) << user;
  }
  expect_that_others_are_served();
}

// ---- the status page

TEST_F(Tenants, FullStatusPagesStarveNobody) {
#ifdef __SANITIZE_THREAD__
  constexpr int kPages = 10;  // to fill a hundred would take minutes
#else
  constexpr int kPages = 100;
#endif
  std::vector<control::Slot> slots;
  std::unique_ptr<Client> client;
  const HostileProcess hostile(kHostile, [&] {
    auto connected = Client::connect(kOnlyRunning);
    if (!connected) return 1;
    client = std::move(*connected);
    for (int i = 0; i < kPages; ++i) {
      auto slot = client->take_slot();
      if (!slot) return 2;
      const bool filled = test::fill_status_page(*slot, [](protocol::QpStatus& qp) {
        for (auto& counter : qp.counters) counter = 1;
      });
      if (!filled) return 3;
      slots.push_back(std::move(*slot));
    }
    return 0;
  });
  ASSERT_EQ(hostile.outcome(), 0);
  auto victim = Client::connect(kOnlyRunning);
  ASSERT_TRUE(victim);
  // Over two of the agent's rounds, the longest time of a request.
  Duration longest{};
  const TimePoint end = MonotonicClock::now() + std::chrono::milliseconds(2500);
  while (MonotonicClock::now() < end) {
    const TimePoint begun = MonotonicClock::now();
    ASSERT_TRUE((*victim)->links());
    longest = std::max(longest, MonotonicClock::now() - begun);
  }
  EXPECT_LT(longest, std::chrono::seconds(1)) << "to read all takes the agent seconds";
}

TEST_F(Tenants, UsersDoNotSeeEachOthersProcesses) {
  std::unique_ptr<Client> client;
  std::optional<control::Slot> slot;
  const HostileProcess somebody(kOther, [&] {
    auto connected = Client::connect(kOnlyRunning);
    if (!connected) return 1;
    client = std::move(*connected);
    auto taken = client->take_slot();
    if (!taken) return 2;
    slot = std::move(*taken);
    return 0;
  });
  ASSERT_EQ(somebody.outcome(), 0);
  const auto slots_seen = [] {
    auto admin = Admin::connect(kOnlyRunning);
    const auto status = admin ? (*admin)->status() : tl::unexpected(admin.error());
    return status ? static_cast<int>(status->slots.size()) : 90;
  };
  EXPECT_EQ(slots_seen(), 1) << "root sees all";
  EXPECT_EQ(as_user(kOther, slots_seen), 1) << "and each user its own";
  EXPECT_EQ(as_user(kHostile, slots_seen), 0);
  EXPECT_EQ(as_user(kHostile,
                    [&] {
                      auto own = Client::connect(kOnlyRunning);
                      return own && (*own)->take_slot() ? slots_seen() : 91;
                    }),
            1);
}

// ---- error messages

TEST_F(Tenants, AProgramWithoutDescriptorsIsToldSo) {
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const rlimit none{static_cast<rlim_t>(next.get()), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto slot = (*client)->take_slot();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(slot);
  EXPECT_EQ(slot.error().code, EMFILE);
  EXPECT_TRUE(eventually([&] { return (*client)->take_slot().has_value(); })) << "and may go on";
}

// For each of the descriptors that a slot needs, it is the one that exceeds the limit.
TEST_F(Tenants, AnAgentWithoutDescriptorsSaysSo) {
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  bool taken = false;
  for (rlim_t most = 4; most < 64 && !taken; ++most) {
    const rlimit few{most, 64};
    ASSERT_EQ(::prlimit(agent_->pid(), RLIMIT_NOFILE, &few, nullptr), 0);
    const auto slot = (*client)->take_slot();
    taken = slot.has_value();
    if (!taken) {
      EXPECT_EQ(slot.error().code, EMFILE) << most;
    }
  }
  EXPECT_TRUE(taken);
}

}  // namespace
}  // namespace verbena
