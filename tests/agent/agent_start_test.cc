// SPDX-License-Identifier: Apache-2.0
// How clients start an agent, and find the next one after its end.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"
#include "agent/sessions/other_users.h"
#include "agent/slots/slot_packets.h"
#include "control/client/client.h"
#include "control/client/command_client.h"
#include "control/model/agent_process.h"

namespace verbena {
namespace {

using control::Admin;
using control::Client;
using control::ConnectOptions;
using control::Link;
using test::AgentProcess;
using test::eventually;
using test::received_tags;
using test::send_to_slot;
using ::testing::ElementsAre;

const ConnectOptions kOnlyRunning{.start_agent = false, .agent_program = {}};
const ConnectOptions kStarting{.start_agent = true, .agent_program = VERBENA_AGENT_PROGRAM};

pid_t running_agent() {
  auto admin = Admin::connect(kOnlyRunning);
  if (!admin) return 0;
  const auto status = (*admin)->status();
  return status ? status->pid : 0;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string status_field(pid_t pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":\t")) return line.substr(name.size() + 2);
  }
  return {};
}

// Whether the process has ended. A zombie that its new parent has not reaped yet counts as ended.
bool is_gone(pid_t pid) {
  const std::string state = status_field(pid, "State");
  return state.empty() || state.starts_with("Z");
}

// Returns the number of leased slots; -1 if the agent does not answer.
int leased_slots(Admin& admin) {
  const auto status = admin.status();
  return status ? static_cast<int>(status->slots.size()) : -1;
}

class AgentStart : public test::NamespaceTest {
 protected:
  void TearDown() override {
    const pid_t agent = running_agent();
    if (agent <= 0) return;
    ::kill(agent, SIGTERM);
    EXPECT_TRUE(eventually([&] { return is_gone(agent); }));
  }
};

TEST_F(AgentStart, LeavesNoTraceInTheApplication) {
  auto client = Client::connect(kStarting);
  ASSERT_TRUE(client);
  EXPECT_TRUE((*client)->links());
  // The client has no child left, dead or alive.
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG | __WALL), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(AgentStart, RaisesNoSigchld) {
  static volatile sig_atomic_t seen = 0;
  struct sigaction counting {};
  counting.sa_handler = [](int) { seen = seen + 1; };
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGCHLD, &counting, &before), 0);
  auto client = Client::connect(kStarting);
  ::sigaction(SIGCHLD, &before, nullptr);
  ASSERT_TRUE(client);
  EXPECT_EQ(seen, 0);
}

TEST_F(AgentStart, HandsDownNothingOfTheApplications) {
  int inheritable[2];
  ASSERT_EQ(::pipe(inheritable), 0);
  sigset_t blocked, before;
  sigfillset(&blocked);
  ::sigprocmask(SIG_SETMASK, &blocked, &before);
  ::signal(SIGUSR1, SIG_IGN);
  ::setenv("LD_PRELOAD", "libnothing-that-exists.so", 1);
  auto client = Client::connect(kStarting);
  ::unsetenv("LD_PRELOAD");
  ::signal(SIGUSR1, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(client);

  const pid_t agent = running_agent();
  ASSERT_GT(agent, 0);
  const std::string process = "/proc/" + std::to_string(agent);
  EXPECT_NE(status_field(agent, "PPid"), std::to_string(::getpid()));
  EXPECT_EQ(::getsid(agent), agent);
  // SIGINT and SIGTERM are blocked: the agent reads them from a signalfd. All signals are, for a moment,
  // while it starts a thread.
  EXPECT_TRUE(eventually([&] {
    return std::stoull(status_field(agent, "SigBlk"), nullptr, 16) ==
           (1u << (SIGINT - 1) | 1u << (SIGTERM - 1));
  })) << status_field(agent, "SigBlk");
  EXPECT_EQ(std::stoull(status_field(agent, "SigIgn"), nullptr, 16),
            1u << (SIGHUP - 1) | 1u << (SIGPIPE - 1) | 1u << (SIGXFSZ - 1) | 1u << (SIGIO - 1));
  EXPECT_EQ(read_file(process + "/environ").find("LD_PRELOAD"), std::string::npos);
  EXPECT_EQ(std::filesystem::read_symlink(process + "/cwd"), "/");
  for (int fd = 0; fd <= 2; ++fd) {
    EXPECT_EQ(std::filesystem::read_symlink(process + "/fd/" + std::to_string(fd)), "/dev/null");
  }
  // The agent has not inherited the pipe, so its reader sees the end.
  ::close(inheritable[1]);
  char byte;
  EXPECT_EQ(::read(inheritable[0], &byte, 1), 0);
  ::close(inheritable[0]);
}

// An inherited limit of processor time would end the agent; a file size limit would keep it from serving.
TEST_F(AgentStart, HasNoneOfTheLimitsThatItsStarterSetItself) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer writes a file before main(), for which there must be room";
#endif
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto resource : {RLIMIT_FSIZE, RLIMIT_CPU}) {
      rlimit limit{};
      ::getrlimit(resource, &limit);
      limit.rlim_cur = resource == RLIMIT_CPU ? 1000 : 0;
      ::setrlimit(resource, &limit);
    }
    auto client = Client::connect(kStarting);
    ::_exit(client && (*client)->take_slot() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::istringstream limits(read_file("/proc/" + std::to_string(running_agent()) + "/limits"));
  int found = 0;
  for (std::string line; std::getline(limits, line);) {
    if (!line.starts_with("Max file size") && !line.starts_with("Max cpu time")) continue;
    ++found;
    std::istringstream words(line.substr(26));
    std::string soft, hard;
    words >> soft >> hard;
    EXPECT_EQ(soft, hard) << line;
  }
  EXPECT_EQ(found, 2);
}

// An agent that a set-user-ID program starts would have the starter's real user ID. The starter could stop it
// with a signal, although it serves all users.
TEST_F(AgentStart, IsNotForASetUserIdProgramOfAnotherUser) {
  if (::geteuid() != 0 || !test::may_become_others()) GTEST_SKIP() << "needs root";
  const int started = test::as_child([] {
    if (::setresuid(65533, 0, 0) != 0) return 99;
    return Client::connect(kStarting) ? 1 : 0;
  });
  EXPECT_EQ(started, 0);
  EXPECT_EQ(running_agent(), 0);
}

TEST_F(AgentStart, IsAsImportantAsAnyOtherProcess) {
  if (::geteuid() != 0 || !test::may_become_others()) GTEST_SKIP() << "needs root";
  const int started = test::as_child([] {
    ::setpriority(PRIO_PROCESS, 0, 15);
    std::ofstream("/proc/self/oom_score_adj") << "900";
    return Client::connect(kStarting) ? 0 : 1;
  });
  ASSERT_EQ(started, 0);
  const pid_t agent = running_agent();
  EXPECT_EQ(::getpriority(PRIO_PROCESS, static_cast<id_t>(agent)), 0);
  EXPECT_EQ(read_file("/proc/" + std::to_string(agent) + "/oom_score_adj"), "0\n");
}

TEST_F(AgentStart, WorksWithoutStandardDescriptors) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int fd = 0; fd <= 2; ++fd) ::close(fd);
    auto client = Client::connect(kStarting);
    ::_exit(client && (*client)->links() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(AgentStart, ByManyAtOnceMakesOneAgent) {
  std::vector<pid_t> children;
  int answers[2];
  ASSERT_EQ(::pipe(answers), 0);
  int hold[2];
  ASSERT_EQ(::pipe(hold), 0);
  for (int i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(hold[1]);
      auto client = Client::connect(kStarting);
      const bool good = client && (*client)->take_slot();
      const pid_t agent = good ? running_agent() : 0;
      [[maybe_unused]] const ssize_t told = ::write(answers[1], &agent, sizeof agent);
      char byte;
      [[maybe_unused]] const ssize_t end = ::read(hold[0], &byte, 1);
      ::_exit(0);
    }
    children.push_back(child);
  }
  std::vector<pid_t> agents(children.size());
  for (pid_t& agent : agents) {
    EXPECT_EQ(::read(answers[0], &agent, sizeof agent), static_cast<ssize_t>(sizeof agent));
  }
  EXPECT_GT(agents.front(), 0);
  EXPECT_EQ(std::count(agents.begin(), agents.end(), agents.front()), static_cast<ptrdiff_t>(agents.size()));
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  EXPECT_EQ(leased_slots(**admin), static_cast<int>(children.size()));
  ::close(hold[1]);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return leased_slots(**admin) == 0; }));
}

TEST_F(AgentStart, SaysSoWhenThereIsNoProgram) {
  ConnectOptions options = kStarting;
  options.agent_program = "/nowhere/verbena-agent";
  const auto client = Client::connect(options);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, ECONNREFUSED);
}

TEST_F(AgentStart, PrefersWhatTheEnvironmentNames) {
  EXPECT_EQ(control::find_agent_program("/given"), "/given");
  ::setenv("VERBENA_AGENT", "/named", 1);
  EXPECT_EQ(control::find_agent_program("/given"), "/named");
  ::unsetenv("VERBENA_AGENT");
  // Without either, it finds the agent next to this test in the build tree.
  EXPECT_TRUE(std::filesystem::equivalent(control::find_agent_program(""), VERBENA_AGENT_PROGRAM));
}

TEST_F(AgentStart, MeetsAnAgentThatIsAboutToEnd) {
  // Each agent ends as soon as no client is connected, so connecting and ending coincide again and again.
  for (int i = 0; i < 30; ++i) {
    AgentProcess agent({"--idle-timeout=0"});
    auto client = Client::connect(kStarting);
    ASSERT_TRUE(client) << i;
    EXPECT_TRUE((*client)->links()) << i;
  }
}

TEST_F(AgentStart, ACallFindsTheNextAgent) {
  auto client = Client::connect(kStarting);
  ASSERT_TRUE(client);
  const pid_t first = running_agent();
  ASSERT_GT(first, 0);
  ::kill(first, SIGKILL);
  EXPECT_TRUE((*client)->links());
  EXPECT_NE(running_agent(), first);
}

TEST_F(AgentStart, WatchingForEventsFindsTheNextAgent) {
  auto client = Client::connect(kStarting);
  ASSERT_TRUE(client);
  auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  const int fd = (*client)->event_fd();
  for (int round = 0; round < 3; ++round) {
    const pid_t before = running_agent();
    ASSERT_GT(before, 0);
    ::kill(before, SIGKILL);
    std::optional<std::vector<Link>> links;
    ASSERT_TRUE(eventually([&] {
      pollfd entry{fd, POLLIN, 0};
      ::poll(&entry, 1, 1000);
      links = (*client)->next_links();
      return links.has_value();
    }));
    const pid_t after = running_agent();
    EXPECT_GT(after, 0);
    EXPECT_NE(after, before);
    ASSERT_TRUE(send_to_slot(slot->index, 5));
    EXPECT_THAT(received_tags(*slot), ElementsAre(5u));
  }
  EXPECT_TRUE((*client)->return_slot(slot->index));
}

TEST_F(AgentStart, ASlotWhoseOwnerDiedWithTheAgentIsFree) {
  auto agent = std::make_unique<AgentProcess>();
  auto survivor = Client::connect(kOnlyRunning);
  ASSERT_TRUE(survivor);
  ASSERT_TRUE((*survivor)->take_slot());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    (*survivor)->abandon();
    auto client = Client::connect(kOnlyRunning);
    const bool good = client && (*client)->take_slot();
    [[maybe_unused]] const ssize_t told = ::write(ready[1], good ? "y" : "n", 1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  agent->stop(SIGKILL);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  agent = std::make_unique<AgentProcess>();
  ASSERT_TRUE((*survivor)->links());
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  const auto status = (*admin)->status();
  ASSERT_TRUE(status);
  ASSERT_EQ(status->slots.size(), 1u);
  EXPECT_EQ(status->slots[0].pid, ::getpid());
  EXPECT_EQ(status->no_wire_reason, "");
}

TEST_F(AgentStart, AForkedChildLeavesItsParentsSlotAlone) {
  AgentProcess agent;
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  const pid_t child = ::fork();
  if (child == 0) {
    (*client)->abandon();
    const bool refused = !(*client)->links() && !(*client)->next_links();
    client->reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE((*client)->links());
  ASSERT_TRUE(send_to_slot(slot->index, 9));
  EXPECT_THAT(received_tags(*slot), ElementsAre(9u));
  EXPECT_TRUE((*client)->return_slot(slot->index));
}

TEST_F(AgentStart, ThreadsMayUseAClientAtOnceWhileAgentsComeAndGo) {
  auto connected = Client::connect(kStarting);
  ASSERT_TRUE(connected);
  Client& client = **connected;
  std::atomic<bool> stop = false;
  std::atomic<int> answered = 0;
  const auto call = [&] {
    while (!stop) {
      if (client.links()) ++answered;
      const auto slot = client.take_slot();
      if (slot) client.return_slot(slot->index);
    }
  };
  const auto watch = [&] {
    while (!stop) {
      pollfd entry{client.event_fd(), POLLIN, 0};
      ::poll(&entry, 1, 10);
      client.next_links();
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back(call);
  threads.emplace_back(call);
  threads.emplace_back(watch);
  for (int round = 0; round < 4; ++round) {
    const int before = answered;
    EXPECT_TRUE(eventually([&] { return answered > before + 10; }));
    const pid_t agent = running_agent();
    if (agent > 0) ::kill(agent, SIGKILL);
  }
  const int before = answered;
  EXPECT_TRUE(eventually([&] { return answered > before + 10; }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// A child that inherited the descriptors must not keep the slot leased after its parent's end.
TEST_F(AgentStart, TheEndOfAProcessCountsAlsoWhenAChildHasItsSocket) {
  AgentProcess agent;
  int ready[2];
  int hold[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(hold), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    ::close(hold[1]);
    auto client = Client::connect(kOnlyRunning);
    const bool good = client && (*client)->take_slot();
    if (::fork() == 0) {
      char byte;
      [[maybe_unused]] const ssize_t end = ::read(hold[0], &byte, 1);
      ::_exit(0);
    }
    [[maybe_unused]] const ssize_t told = ::write(ready[1], good ? "y" : "n", 1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  ASSERT_EQ(leased_slots(**admin), 1);
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return leased_slots(**admin) == 0; }));
  ::close(hold[1]);
}

}  // namespace
}  // namespace verbena
