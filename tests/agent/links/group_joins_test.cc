// SPDX-License-Identifier: Apache-2.0
// Joins of multicast groups that wait for the kernel, as they do while a user deletes thousands of netdevs.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/client/client.h"
#include "control/client/command_client.h"
#include "wire/roce/path.h"

namespace verbena {
namespace {

using control::Admin;
using control::Client;
using control::ConnectOptions;
using test::AgentProcess;
using test::eventually;

const ConnectOptions kOnlyRunning{.start_agent = false, .agent_program = {}};

roce::Address group() {
  const uint8_t address[4] = {239, 1, 2, 3};
  return roce::Address::from_ipv4(address);
}

Result<UniqueFd> join(Client& client) {
  const auto links = client.links();
  if (!links || links->empty()) return fail(ENODEV);
  return client.join_group(links->front().device_index, group());
}

constexpr const char* kGroup = "030201EF";           // group() in /proc/net/igmp
constexpr const char* kDiscoveryGroup = "4256FFEF";  // 239.255.86.66, the agents' own

// Returns how many sockets of this network namespace have joined the group.
int members(const std::string& group = kGroup) {
  std::ifstream file("/proc/thread-self/net/igmp");  // a line such as "    030201EF     2 0:00000000    0"
  for (std::string word; file >> word;) {
    int users = 0;
    if (word == group && file >> users) return users;
  }
  return 0;
}

// An agent whose joins of IPv4 groups wait until the test lets them go on: a filter for system calls reports
// them to the test (seccomp_unotify(2)).
class AgentWithHeldJoins {
 public:
  AgentWithHeldJoins() {
    std::promise<void> started;
    // The filter is the thread's and its children's. The agent is killed when the thread ends.
    thread_ = std::thread([this, &started] {
      listener_.reset(hold_joins());
      std::optional<AgentProcess> agent;
      if (listener_) agent.emplace();
      started.set_value();
      ended_.get_future().wait();
    });
    started.get_future().wait();
  }
  ~AgentWithHeldJoins() {
    listener_.reset();  // joins fail from now on
    ended_.set_value();
    thread_.join();
  }
  AgentWithHeldJoins(const AgentWithHeldJoins&) = delete;
  AgentWithHeldJoins& operator=(const AgentWithHeldJoins&) = delete;

  // Whether the kernel lets the test hold up system calls.
  bool is_possible() const { return static_cast<bool>(listener_); }
  // Waits for the next join. Returns its number, or nullopt if none comes for ten seconds.
  std::optional<uint64_t> next_join() {
    pollfd entry{listener_.get(), POLLIN, 0};
    seccomp_notif join{};
    if (::poll(&entry, 1, 10'000) != 1) return std::nullopt;
    if (::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_RECV, &join) != 0) return std::nullopt;
    return join.id;
  }
  bool let_go_on(uint64_t join) {
    seccomp_notif_resp response{};
    response.id = join;
    response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    return ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SEND, &response) == 0;
  }

 private:
  // Returns a descriptor that reports each join of this thread and its children.
  static int hold_joins() {
    constexpr auto kNumber = uint32_t{offsetof(seccomp_data, nr)};
    constexpr auto kLevel = uint32_t{offsetof(seccomp_data, args) + sizeof(uint64_t)};
    constexpr auto kOption = uint32_t{offsetof(seccomp_data, args) + 2 * sizeof(uint64_t)};
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kLevel),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_IP, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kOption),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IP_ADD_MEMBERSHIP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{sizeof filter / sizeof *filter, filter};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return static_cast<int>(
        ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
  }

  UniqueFd listener_;
  std::promise<void> ended_;
  std::thread thread_;
};

class GroupJoins : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(prepare());
    agent_.emplace();
    if (!agent_->is_possible()) GTEST_SKIP() << "the test cannot hold up system calls here";
  }
  // Called before the agent starts.
  virtual bool prepare() { return true; }
  AgentWithHeldJoins& agent() { return *agent_; }

 private:
  std::optional<AgentWithHeldJoins> agent_;
};

TEST_F(GroupJoins, HoldUpNobodyElseWhileTheyWaitForTheKernel) {
  auto admin = Admin::connect(kOnlyRunning);
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(admin && client);
  auto joined = std::async(std::launch::async, [&] { return join(**client); });
  const auto held = agent().next_join();
  ASSERT_TRUE(held);
  EXPECT_TRUE((*admin)->status()) << "the agent answers";
  EXPECT_EQ(members(), 0);
  ASSERT_TRUE(agent().let_go_on(*held));
  EXPECT_TRUE(joined.get());
}

TEST_F(GroupJoins, AreAnsweredBeforeTheClientsNextRequests) {
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  auto done = std::async(std::launch::async, [&] {
    const auto first = join(**client), second = join(**client);
    return first && second && (*client)->take_slot() && members() == 2;
  });
  for (int i = 0; i < 2; ++i) {
    const auto held = agent().next_join();
    ASSERT_TRUE(held);
    ASSERT_TRUE(agent().let_go_on(*held));
  }
  EXPECT_TRUE(done.get());
}

TEST_F(GroupJoins, LeaveNoSocketIfTheProgramEndsMeanwhile) {
  auto admin = Admin::connect(kOnlyRunning);
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(admin && client);
  const pid_t program = ::fork();
  if (program == 0) {
    auto own = Client::connect(kOnlyRunning);
    if (own && (*own)->take_slot()) std::ignore = join(**own);
    ::_exit(0);
  }
  const auto held = agent().next_join();
  ::kill(program, SIGKILL);
  ::waitpid(program, nullptr, 0);
  ASSERT_TRUE(held);
  const auto has_ended = [&] {
    const auto status = (*admin)->status();
    return status && status->slots.empty();
  };
  EXPECT_TRUE(eventually(has_ended));
  ASSERT_TRUE(agent().let_go_on(*held));
  auto joined = std::async(std::launch::async, [&] { return join(**client); });
  const auto next = agent().next_join();
  ASSERT_TRUE(next);
  ASSERT_TRUE(agent().let_go_on(*next));
  const auto member = joined.get();
  ASSERT_TRUE(member) << "after the first of the same user";
  EXPECT_TRUE(eventually([] { return members() == 1; })) << members();
}

// An agent with a link on which it looks for other agents.
class DiscoveryJoins : public GroupJoins {
 protected:
  bool prepare() override {
    return test::shell(
        "ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up && "
        "ip address add 10.9.0.1/24 dev v0");
  }
  static bool becomes(Admin& admin, bool up) {
    return eventually([&] {
      const auto status = admin.status();
      const auto over_v0 = [](const control::LinkStatus& each) { return each.link.netdev == "v0"; };
      if (!status) return false;
      const auto found = std::ranges::find_if(status->links, over_v0);
      return found != status->links.end() && found->link.up == up;
    });
  }
};

TEST_F(DiscoveryJoins, HoldUpNobodyWhileTheyWaitForTheKernel) {
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  const auto held = agent().next_join();
  ASSERT_TRUE(held);
  EXPECT_TRUE((*admin)->status()) << "the agent answers";
  EXPECT_EQ(members(kDiscoveryGroup), 0);
  ASSERT_TRUE(agent().let_go_on(*held));
  EXPECT_TRUE(eventually([] { return members(kDiscoveryGroup) == 1; }));
}

// The other end of a veth pair may do this as often as it likes.
TEST_F(DiscoveryJoins, StayWhileALinkHasNoCarrier) {
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  const auto held = agent().next_join();
  ASSERT_TRUE(held);
  ASSERT_TRUE(agent().let_go_on(*held));
  ASSERT_TRUE(eventually([] { return members(kDiscoveryGroup) == 1; }));
  ASSERT_TRUE(test::shell("ip link set v1 down"));
  ASSERT_TRUE(becomes(**admin, false));
  EXPECT_EQ(members(kDiscoveryGroup), 1);
  ASSERT_TRUE(test::shell("ip link set v1 up"));
  ASSERT_TRUE(becomes(**admin, true));
  EXPECT_EQ(members(kDiscoveryGroup), 1);
}

TEST_F(DiscoveryJoins, EndWithTheLink) {
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  const auto held = agent().next_join();
  ASSERT_TRUE(held);
  ASSERT_TRUE(agent().let_go_on(*held));
  ASSERT_TRUE(eventually([] { return members(kDiscoveryGroup) == 1; }));
  ASSERT_TRUE((*admin)->delete_link("rxe_v0"));
  EXPECT_TRUE(eventually([] { return members(kDiscoveryGroup) == 0; }));
}

}  // namespace
}  // namespace verbena
