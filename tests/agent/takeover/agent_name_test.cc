// SPDX-License-Identifier: Apache-2.0
// How programs and their agent find each other, even if a stranger holds the agent's name.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"
#include "agent/sessions/stranger.h"
#include "base/paths/state_directory.h"
#include "base/paths/state_path.h"
#include "control/client/agent_connection.h"
#include "control/client/client.h"
#include "control/client/command_client.h"
#include "control/model/message_socket.h"

namespace verbena {
namespace {

namespace fs = std::filesystem;
using control::AgentAddress;
using control::Client;
using control::ConnectOptions;
using test::AgentProcess;
using test::kOther;
using test::Stranger;

const ConnectOptions kOnlyRunning{.start_agent = false, .agent_program = {}};

std::string socket_file() {
  const paths::PathText path = paths::agent_socket_path(::geteuid());
  return path.valid() ? path.c_str() : std::string();
}

// Tries to become a client. Returns 0 if it is served, else the errno value.
int become_client() {
  auto client = Client::connect(kOnlyRunning);
  if (!client) return client.error().code;
  const auto links = (*client)->links();
  return links ? 0 : links.error().code;
}

// Returns the pid of the agent that a client finds; 0: none.
pid_t agent_found() {
  auto admin = control::Admin::connect(kOnlyRunning);
  if (!admin) return 0;
  const auto status = (*admin)->status();
  return status ? static_cast<pid_t>(status->pid) : 0;
}

UniqueFd connect_by_name(uid_t uid) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const AgentAddress address(uid);
  if (::connect(socket.get(), address.address(), address.length) != 0) socket.reset();
  return socket;
}

class AgentNameTest : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (!IsSkipped() && !test::has_strangers()) GTEST_SKIP() << "needs root";
  }
};

// Ways in which a stranger holds root's abstract name.
enum class Squat { kDoesNotListen, kListens, kHasNoRoom };

int squat(Squat how, const Stranger::Line& line) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const AgentAddress address(0);
  if (::bind(socket.get(), address.address(), address.length) != 0) return 1;
  if (how != Squat::kDoesNotListen) ::listen(socket.get(), how == Squat::kListens ? 100 : 0);
  std::vector<UniqueFd> filling;
  while (how == Squat::kHasNoRoom) {
    UniqueFd one = connect_by_name(0);
    if (!one) break;
    filling.push_back(std::move(one));
  }
  line.say();
  line.hear();
  return 0;
}

TEST_F(AgentNameTest, WhoHasTakenItBeforeRootsAgentDeniesItToNobody) {
  for (const Squat how : {Squat::kDoesNotListen, Squat::kListens, Squat::kHasNoRoom}) {
    SCOPED_TRACE(static_cast<int>(how));
    Stranger stranger(kOther, [how](const Stranger::Line& line) { return squat(how, line); });
    ASSERT_TRUE(stranger.hear());
    AgentProcess agent;
    EXPECT_EQ(agent_found(), agent.pid());
    EXPECT_EQ(Stranger(kOther - 1, [](const Stranger::Line&) { return become_client(); }).end(), 0);
    const AgentProcess second;
    EXPECT_EQ(agent_found(), agent.pid()) << "there is one";
    EXPECT_EQ(stranger.end(), 0);
  }
}

// Forks a service manager that listens for root's agent (sd_listen_fds(3)). It starts the agent when a client
// comes, and passes the listening socket as descriptor 3. Returns the agent's pid.
pid_t activate_at(int passed, bool when_somebody_comes) {
  const pid_t manager = ::fork();
  if (manager != 0) return manager;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  pollfd somebody{passed, POLLIN, 0};
  if (when_somebody_comes) ::poll(&somebody, 1, -1);
  if (passed == 3) {
    ::fcntl(3, F_SETFD, 0);
  } else {
    ::dup2(passed, 3);
  }
  ::execl("/bin/sh", "sh", "-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" --foreground", VERBENA_AGENT_PROGRAM,
          nullptr);
  ::_exit(127);
}

TEST_F(AgentNameTest, IsStartedByAServiceManagerForTheFirstWhoAsks) {
  UniqueFd listening(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const AgentAddress address(0);
  ASSERT_EQ(::bind(listening.get(), address.address(), address.length), 0);
  ASSERT_EQ(::listen(listening.get(), 16), 0);
  const pid_t agent = activate_at(listening.get(), true);
  EXPECT_EQ(Stranger(kOther, [](const Stranger::Line&) { return become_client(); }).end(), 0)
      << "it came before the agent, and is served";
  EXPECT_EQ(agent_found(), agent);
  EXPECT_TRUE(fs::exists(socket_file())) << "those who do not know of the name find it, too";
  ::kill(agent, SIGTERM);
  int status = -1;
  ::waitpid(agent, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(connect_by_name(0)) << "the manager goes on listening";
}

TEST_F(AgentNameTest, IsNotTakenForAnotherSocketThatIsPassed) {
  const UniqueFd other(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const pid_t agent = activate_at(other.get(), false);
  EXPECT_TRUE(test::eventually([] { return become_client() == 0; }));
  EXPECT_EQ(agent_found(), agent);
  ::kill(agent, SIGTERM);
  ::waitpid(agent, nullptr, 0);
}

// If root has no agent, a user's own is found in time, and started if necessary.
TEST_F(AgentNameTest, WhoHasTakenRootsKeepsNoUserFromAnAgentOfTheirOwn) {
  for (const Squat how : {Squat::kListens, Squat::kHasNoRoom}) {
    SCOPED_TRACE(static_cast<int>(how));
    Stranger stranger(kOther, [how](const Stranger::Line& line) { return squat(how, line); });
    ASSERT_TRUE(stranger.hear());
    EXPECT_EQ(become_client(), ECONNREFUSED);
    EXPECT_EQ(Stranger(kOther - 1,
                       [](const Stranger::Line&) {
                         ConnectOptions options;
                         options.agent_program = VERBENA_AGENT_PROGRAM;
                         auto client = Client::connect(options);
                         if (!client) return 1;
                         auto admin = control::Admin::connect(kOnlyRunning);
                         if (!admin) return 2;
                         const auto status = (*admin)->status();
                         if (!status || status->uid != ::geteuid()) return 3;
                         client->reset();
                         return ::kill(static_cast<pid_t>(status->pid), SIGTERM) == 0 ? 0 : 4;
                       })
                  .end(),
              0);
    EXPECT_EQ(stranger.end(), 0);
  }
}

// Each connect(2) wakes all watches of the stranger's socket, and there may be any number (epoll(7)).
TEST_F(AgentNameTest, AStrangerWhoHasTakenItIsLeftAloneForAWhile) {
  Stranger stranger(kOther, [](const Stranger::Line& line) {
    const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const AgentAddress address(0);
    if (::bind(socket.get(), address.address(), address.length) != 0 || ::listen(socket.get(), 100) != 0) {
      return 97;
    }
    line.say();
    line.hear();
    int connections = 0;
    while (UniqueFd(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC))) ++connections;
    return connections;
  });
  ASSERT_TRUE(stranger.hear());
  control::NamespaceDialer dialer;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(dialer.open().error().code, ECONNREFUSED);
  EXPECT_EQ(stranger.end(), 1);
}

TEST_F(AgentNameTest, ABusyAgentIsNotTakenForNone) {
  AgentProcess agent;
  ASSERT_EQ(become_client(), 0);
  ASSERT_EQ(::kill(agent.pid(), SIGSTOP), 0);
  int status = 0;
  ::waitpid(agent.pid(), &status, WUNTRACED);
  std::vector<UniqueFd> filling;
  const std::string file = socket_file();
  const AgentAddress address{std::string_view(file)};
  for (;;) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), address.address(), address.length) != 0) break;
    filling.push_back(std::move(socket));
  }
  EXPECT_GT(filling.size(), 1000u);
  EXPECT_EQ(Stranger(kOther,
                     [](const Stranger::Line&) {
                       ConnectOptions options;
                       options.agent_program = VERBENA_AGENT_PROGRAM;
                       const auto admin = control::Admin::connect(options);
                       return admin || admin.error().code != ETIMEDOUT ? 1 : 0;
                     })
                .end(),
            0);
  ASSERT_EQ(::kill(agent.pid(), SIGCONT), 0);
  filling.clear();
  EXPECT_TRUE(test::eventually([&] { return agent_found() == agent.pid(); }))
      << "once it has let go of those";
}

// Old libraries do not know the socket file, and old agents do not create it.
TEST_F(AgentNameTest, OldAndNewMeetByTheAbstractName) {
  const AgentProcess agent;
  EXPECT_TRUE(connect_by_name(0));
  ASSERT_EQ(::unlink(socket_file().c_str()), 0);
  EXPECT_EQ(agent_found(), agent.pid());
}

TEST_F(AgentNameTest, TheFileOfAnAgentThatWasKilledIsReplaced) {
  AgentProcess killed;
  killed.stop(SIGKILL);
  EXPECT_TRUE(fs::exists(socket_file()));
  EXPECT_EQ(become_client(), ECONNREFUSED);
  const AgentProcess next;
  EXPECT_EQ(agent_found(), next.pid());
}

TEST_F(AgentNameTest, AFileOrALinkInItsPlaceIsReplacedToo) {
  {
    AgentProcess killed;
    killed.stop(SIGKILL);
  }
  fs::remove(socket_file());
  fs::create_symlink("/etc/passwd", socket_file());
  const AgentProcess next;
  EXPECT_EQ(agent_found(), next.pid());
  EXPECT_TRUE(fs::is_regular_file("/etc/passwd"));
}

// The holder may have to remove files first, or may be about to listen on a slow machine.
TEST_F(AgentNameTest, OneThatHasItAndDoesNotListenIsWaitedForAWhile) {
  const auto directory = paths::make_state_directory();
  ASSERT_TRUE(directory);
  UniqueFd lock(::open((*directory + "/agent.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    lock.reset();
  });
  const AgentProcess agent;
  ends.join();
  EXPECT_EQ(agent_found(), agent.pid());
}

TEST_F(AgentNameTest, LeavesNothingBehind) {
  const std::string file = [] {
    AgentProcess agent;
    std::string path = socket_file();
    EXPECT_TRUE(fs::is_socket(path));
    EXPECT_EQ(WEXITSTATUS(agent.stop(SIGTERM)), 0);
    return path;
  }();
  EXPECT_FALSE(fs::exists(file));
  EXPECT_FALSE(fs::exists(fs::path(file).parent_path()));
}

TEST_F(AgentNameTest, AnAgentOfAnotherNetworkNamespaceIsNotFound) {
  const AgentProcess agent;
  const std::string file = socket_file();
  const test::NetworkNamespace other;
  ASSERT_TRUE(other.entered());
  EXPECT_NE(socket_file(), file);
  EXPECT_EQ(become_client(), ECONNREFUSED);
  const AgentProcess others;
  EXPECT_EQ(agent_found(), others.pid());
}

// The programs see another /run, as those in a container may.
TEST_F(AgentNameTest, WhoSeesNoDirectoryFindsTheAbstractName) {
  const AgentProcess agent;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0) ::_exit(3);
    if (!test::shell("mount --make-rprivate / && mount -t tmpfs none /run")) ::_exit(3);
    if (!socket_file().empty()) ::_exit(1);
    ::_exit(become_client() == 0 ? 0 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 3) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(AgentNameTest, ADirectoryThatOthersMayWriteToIsNotBelieved) {
  const AgentProcess agent;
  const fs::path directory = fs::path(socket_file()).parent_path();
  fs::permissions(directory, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(socket_file(), "");
  EXPECT_EQ(agent_found(), agent.pid()) << "by its abstract name";
  fs::permissions(directory, fs::perms::others_write, fs::perm_options::remove);
  ASSERT_EQ(::chown(directory.c_str(), kOther, kOther), 0);
  EXPECT_EQ(socket_file(), "");
  ASSERT_EQ(::chown(directory.c_str(), 0, 0), 0);
  EXPECT_NE(socket_file(), "");
}

}  // namespace
}  // namespace verbena
