// SPDX-License-Identifier: Apache-2.0
// Processes of several users under root's agent: one user cannot read, forge or block packets of another.
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"
#include "agent/sessions/other_users.h"
#include "agent/slots/slot_packets.h"
#include "control/client/client.h"
#include "control/client/command_client.h"

#ifndef SO_DETACH_REUSEPORT_BPF
#define SO_DETACH_REUSEPORT_BPF 68  // asm-generic/socket.h, since Linux 5.3
#endif

namespace verbena {
namespace {

using control::Admin;
using control::Client;
using control::ConnectOptions;
using control::Slot;
using test::AgentProcess;
using test::as_user;
using test::received_tags;
using test::send_to_slot;

const ConnectOptions kOnlyRunning{.start_agent = false, .agent_program = {}};
constexpr uid_t kAlice = 65533;
constexpr uid_t kBob = 65534;

// A child of this user that does its work, reports success with a byte, and lives until this object ends.
class UsersProcess {
 public:
  UsersProcess(uid_t uid, const std::function<bool()>& work) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      if (::setgid(uid) != 0 || ::setuid(uid) != 0) ::_exit(99);
      const char done = work() ? 'y' : 'n';
      [[maybe_unused]] const ssize_t told = ::write(ready[1], &done, 1);
      ::pause();
      ::_exit(0);
    }
    ::close(ready[1]);
    char byte = 0;
    did_work_ = ::read(ready[0], &byte, 1) == 1 && byte == 'y';
    ::close(ready[0]);
  }
  ~UsersProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  UsersProcess(const UsersProcess&) = delete;
  UsersProcess& operator=(const UsersProcess&) = delete;
  bool did_work() const { return did_work_; }

 private:
  pid_t pid_ = -1;
  bool did_work_ = false;
};

// The objects that a process of the tests below holds until it is killed.
struct Holding {
  std::unique_ptr<Client> client;
  Slot slot;
  UniqueFd member;

  bool take() {
    auto connected = Client::connect(kOnlyRunning);
    if (!connected) return false;
    client = std::move(*connected);
    auto taken = client->take_slot();
    if (!taken) return false;
    slot = std::move(*taken);
    return true;
  }
};

class Users : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    if (as_user(kBob, [] { return 0; }) != 0) GTEST_SKIP() << "needs root";
  }
  void start(std::vector<std::string> options = {}) {
    options.insert(options.begin(), "--foreground");
    agent_.emplace(options);
  }
  std::optional<AgentProcess> agent_;
};

// Whether a process's own slot gets all of its packets in order.
bool has_its_packets(const Slot& slot, uint32_t first_tag) {
  for (uint32_t tag = first_tag; tag < first_tag + 20; ++tag) {
    if (!send_to_slot(slot.index, tag) || received_tags(slot) != std::vector<uint32_t>{tag}) return false;
  }
  return true;
}

// Tries all socket options by which the holder of a descriptor could harm others.
void abuse(int fd) {
  const sock_filter to_the_first[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program{1, const_cast<sock_filter*>(to_the_first)};
  ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
  const sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog mute{1, const_cast<sock_filter*>(nothing)};
  ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &mute, sizeof mute);
  const int unused = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &unused, sizeof unused);
  ::setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &program, sizeof unused);
  ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", sizeof "lo");
  for (const uint16_t port : {roce::kUdpPort, uint16_t{9}}) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to);
    ::bind(fd, reinterpret_cast<sockaddr*>(&to), sizeof to);
  }
  const sockaddr none{AF_UNSPEC, {}};
  ::connect(fd, &none, sizeof none);
}

void abuse_all_sockets() {
  for (int fd = 3; fd < 256; ++fd) {
    int type = 0;
    socklen_t length = sizeof type;
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0) abuse(fd);
  }
}

sockaddr_storage socket_address(int family, const char* address) {
  sockaddr_storage to{};
  to.ss_family = static_cast<sa_family_t>(family);
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(to);
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(to);
  (family == AF_INET ? ipv4.sin_port : ipv6.sin6_port) = htons(roce::kUdpPort);
  void* const place = family == AF_INET ? static_cast<void*>(&ipv4.sin_addr) : &ipv6.sin6_addr;
  ::inet_pton(family, address, place);
  return to;
}

roce::Address group() {
  const uint8_t ipv4[4] = {239, 1, 2, 3};
  return roce::Address::from_ipv4(ipv4);
}

roce::Address ipv6_group() {
  const auto address = socket_address(AF_INET6, "ff05::4793");
  roce::Address group;
  std::memcpy(group.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 16);
  return group;
}

// Whether all ways to send with the socket fail: to an address, in parts, and after connect(2).
bool sends_nothing(int fd, const sockaddr_storage& there) {
  const auto* const to = reinterpret_cast<const sockaddr*>(&there);
  const socklen_t length = there.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const auto is_refused = [](ssize_t sent) { return sent < 0 && errno == EPIPE; };
  for (int flags : {0, int{MSG_MORE}, int{MSG_CONFIRM}}) {
    if (!is_refused(::sendto(fd, "x", 1, flags | MSG_NOSIGNAL, to, length))) return false;
  }
  if (::connect(fd, to, length) != 0) return false;
  const bool refused = is_refused(::send(fd, "x", 1, MSG_NOSIGNAL));
  const sockaddr none{AF_UNSPEC, {}};
  ::connect(fd, &none, sizeof none);
  return refused && is_refused(::sendto(fd, "x", 1, MSG_NOSIGNAL, to, length));
}

// Joins the group on the test's own network device.
UniqueFd join(Client& client, const roce::Address& of = group()) {
  for (const auto& link : client.links().value_or(std::vector<control::Link>())) {
    if (link.netdev != "v0") continue;
    if (auto joined = client.join_group(link.device_index, of)) return std::move(*joined);
  }
  return {};
}

bool hears_its_group(const UniqueFd& member) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ip_mreqn by{};
  by.imr_ifindex = static_cast<int>(::if_nametoindex("v0"));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(roce::kUdpPort);
  std::memcpy(&to.sin_addr, group().ipv4(), 4);
  ::setsockopt(socket.get(), IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by);
  if (::sendto(socket.get(), "all", 3, 0, reinterpret_cast<sockaddr*>(&to), sizeof to) != 3) return false;
  pollfd readable{member.get(), POLLIN, 0};
  std::array<char, 8> heard{};
  return ::poll(&readable, 1, 5000) == 1 && ::recv(member.get(), heard.data(), heard.size(), 0) == 3;
}

TEST_F(Users, AnotherUsersProgramGetsNoSocketOfThePort) {
  start();
  EXPECT_EQ(as_user(kAlice,
                    [] {
                      auto client = Client::connect(kOnlyRunning);
                      if (!client) return 1;
                      const auto slot = (*client)->take_slot();
                      if (!slot) return 2;
                      if (slot->socket || !slot->is_forwarded) return 3;
                      for (int fd = 3; fd < 256; ++fd) {
                        int domain = AF_UNIX;
                        socklen_t length = sizeof domain;
                        ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length);
                        if (domain != AF_UNIX) return 4;
                      }
                      return has_its_packets(*slot, 1) ? 0 : 5;
                    }),
            0);
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  EXPECT_TRUE(slot->socket) << "root is the agent's own user";
  EXPECT_TRUE(has_its_packets(*slot, 1));
}

TEST_F(Users, NothingThatOneHasHarmsThePacketsOfOthers) {
  ASSERT_TRUE(
      test::shell("ip link add v0 type veth peer name v1 && ip addr add 10.9.0.1/24 dev v0 && "
                  "ip link set v0 up && ip link set v1 up"));
  start();
  const UsersProcess alice(kAlice, [] {
    static Holding held;
    if (!held.take()) return false;
    held.member = join(*held.client);
    if (!held.member) return false;
    abuse_all_sockets();
    return true;
  });
  ASSERT_TRUE(alice.did_work());
  EXPECT_EQ(as_user(kBob,
                    [] {
                      auto client = Client::connect(kOnlyRunning);
                      if (!client) return 1;
                      const auto slot = (*client)->take_slot();
                      if (!slot) return 2;
                      if (!has_its_packets(*slot, 100)) return 3;
                      const UniqueFd member = join(**client);
                      return member && hears_its_group(member) ? 0 : 4;
                    }),
            0);
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  EXPECT_TRUE(has_its_packets(*slot, 200));
}

// A firewall may allow packets from port 4791 of the agent's user, so a program must not send from there.
TEST_F(Users, TheSocketOfAGroupSendsNothing) {
  ASSERT_TRUE(
      test::shell("ip link add v0 type veth peer name v1 && ip addr add 10.9.0.1/24 dev v0 && "
                  "ip -6 addr add fd00::1/64 dev v0 nodad && ip link set v0 up && ip link set v1 up"));
  start();
  EXPECT_EQ(as_user(kAlice,
                    [] {
                      auto client = Client::connect(kOnlyRunning);
                      if (!client) return 1;
                      UniqueFd ipv4 = join(**client, group()), ipv6 = join(**client, ipv6_group());
                      if (!ipv4 || !ipv6) return 2;
                      if (!sends_nothing(ipv4.get(), socket_address(AF_INET, "10.9.0.1"))) return 3;
                      if (!sends_nothing(ipv6.get(), socket_address(AF_INET6, "fd00::1"))) return 4;
                      for (int fd : {ipv4.get(), ipv6.get()}) abuse(fd);
                      if (!sends_nothing(ipv4.get(), socket_address(AF_INET, "10.9.0.1"))) return 5;
                      return sends_nothing(ipv6.get(), socket_address(AF_INET6, "fd00::1")) ? 0 : 6;
                    }),
            0);
}

TEST_F(Users, AFloodForOneThatDoesNotReadLeavesTheOthersTheirs) {
  start();
  int number[2];
  ASSERT_EQ(::pipe(number), 0);
  const UsersProcess alice(kAlice, [&] {
    static Holding held;
    const uint32_t& index = held.slot.index;
    return held.take() && ::write(number[1], &index, sizeof index) == ssize_t{sizeof index};
  });
  ASSERT_TRUE(alice.did_work());
  uint32_t flooded = 0;
  ASSERT_EQ(::read(number[0], &flooded, sizeof flooded), ssize_t{sizeof flooded});
  EXPECT_EQ(as_user(kBob,
                    [&] {
                      auto client = Client::connect(kOnlyRunning);
                      if (!client) return 1;
                      const auto slot = (*client)->take_slot();
                      if (!slot) return 2;
                      for (uint32_t i = 0; i < 20'000; ++i) {
                        if (!send_to_slot(flooded, i)) return 3;
                        if (i % 1000 != 0) continue;
                        if (!send_to_slot(slot->index, i)) return 4;
                        if (received_tags(*slot) != std::vector<uint32_t>{i}) return 5;
                        if (!(*client)->links()) return 6;  // and the agent answers
                      }
                      return 0;
                    }),
            0);
}

TEST_F(Users, AnAgentForOneUserLendsSocketsAndRefusesTheOthers) {
  start({"--serve-only=" + std::to_string(kAlice)});
  EXPECT_EQ(as_user(kAlice,
                    [] {
                      auto client = Client::connect(kOnlyRunning);
                      if (!client) return 1;
                      const auto slot = (*client)->take_slot();
                      if (!slot || !slot->socket) return 2;
                      const int fd = slot->socket.get();
                      if (!sends_nothing(fd, socket_address(AF_INET, "127.0.0.1"))) return 3;
                      return has_its_packets(*slot, 1) ? 0 : 4;
                    }),
            0);
  EXPECT_EQ(as_user(kBob,
                    [] {
                      const auto client = Client::connect(kOnlyRunning);
                      if (client) return 1;
                      if (client.error().code != EPERM) return 2;
                      const auto admin = Admin::connect(kOnlyRunning);
                      if (admin) return 3;
                      return admin.error().text.find("another user") != std::string::npos ? 0 : 4;
                    }),
            0);
  EXPECT_TRUE(Client::connect(kOnlyRunning));
}

// An agent that a client or the standby has started gets no --serve-only. It must not admit other users while
// sockets are leased.
TEST_F(Users, TheNextAgentServesWhomTheFormerServed) {
  start({"--serve-only=" + std::to_string(kAlice)});
  auto roots = Client::connect(kOnlyRunning);
  ASSERT_TRUE(roots);
  ASSERT_TRUE((*roots)->take_slot());
  agent_->stop(SIGKILL);
  start();
  ASSERT_TRUE((*roots)->links());  // the client has brought the takeover state
  EXPECT_EQ(as_user(kBob, [] { return Client::connect(kOnlyRunning) ? 1 : 0; }), 0);
  EXPECT_EQ(as_user(kAlice, [] { return Client::connect(kOnlyRunning) ? 0 : 1; }), 0);
}

TEST_F(Users, StatusSaysHowPacketsCome) {
  start();
  const UsersProcess alice(kAlice, [] {
    static Holding held;
    return held.take();
  });
  ASSERT_TRUE(alice.did_work());
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  const auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  const auto status = (*admin)->status();
  ASSERT_TRUE(status);
  ASSERT_EQ(status->slots.size(), 2u);
  for (const auto& shown : status->slots) {
    EXPECT_TRUE(shown.has_wire);
    EXPECT_EQ(shown.is_forwarded, shown.uid == kAlice);
  }
}

}  // namespace
}  // namespace verbena
