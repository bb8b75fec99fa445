// SPDX-License-Identifier: Apache-2.0
// The agent's program and its clients in a network namespace.
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent_process.h"
#include "agent/network_namespace.h"
#include "agent/slots/slot_packets.h"
#include "agent/slots/taken_port.h"
#include "base/paths/state_directory.h"
#include "control/client/client.h"
#include "control/client/command_client.h"
#include "control/protocol/status_page.h"
#include "wire/roce/packet.h"
#include "wire/roce/qpn.h"

namespace verbena {
namespace {

using control::Admin;
using control::Client;
using control::ConnectOptions;
using control::Link;
using control::Slot;
using test::AgentProcess;
using test::eventually;
using test::received_tags;
using test::send_to_slot;
using test::shell;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ConnectOptions kOnlyRunning{.start_agent = false, .agent_program = {}};

std::vector<std::string> names(const std::vector<Link>& links) {
  std::vector<std::string> names;
  for (const Link& link : links) names.push_back(link.name);
  return names;
}

std::vector<std::string> names(Client& client) {
  const auto links = client.links();
  return links ? names(*links) : std::vector<std::string>{"no answer"};
}

// Returns the number of leased slots; -1 if the agent does not answer.
int leased_slots(Admin& admin) {
  const auto status = admin.status();
  return status ? static_cast<int>(status->slots.size()) : -1;
}

class Agent : public test::NamespaceTest {};

TEST_F(Agent, ListsLoopbackAndItsAddresses) {
  AgentProcess agent;
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto links = (*client)->links();
  ASSERT_TRUE(links);
  ASSERT_THAT(names(*links), ElementsAre("rxe_lo"));
  EXPECT_EQ(links->front().netdev, "lo");
  EXPECT_TRUE(links->front().up);
  const uint8_t loopback[4] = {127, 0, 0, 1};
  ASSERT_FALSE(links->front().gids.empty());
  EXPECT_EQ(links->front().gids[0].gid, roce::Address::from_ipv4(loopback));
}

TEST_F(Agent, IsRefusedWhenThereIsNoneAndNoneMayBeStarted) {
  const auto client = Client::connect(kOnlyRunning);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, ECONNREFUSED);
}

TEST_F(Agent, TellsClientsOfNewNetdevsAndAddresses) {
  AgentProcess agent;
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  EXPECT_FALSE((*client)->next_links());
  ASSERT_TRUE(
      shell("ip link add v0 type veth peer name v1 && ip addr add 10.9.0.1/24 dev v0 && "
            "ip link set v0 up && ip link set v1 up"));
  const int fd = (*client)->event_fd();
  std::vector<Link> links;
  ASSERT_TRUE(eventually([&] {
    pollfd entry{fd, POLLIN, 0};
    ::poll(&entry, 1, 1000);
    if (auto newest = (*client)->next_links()) links = std::move(*newest);
    // Both links are there, with their link-local addresses once these are no longer tentative.
    return links.size() == 3 && links[0].gids.size() == 1 && links[1].gids.size() == 2;
  }));
  EXPECT_THAT(names(links), ElementsAre("rxe_v1", "rxe_v0", "rxe_lo"));
  EXPECT_EQ((*client)->event_fd(), fd);

  ASSERT_TRUE(shell("ip link set v1 down"));
  ASSERT_TRUE(eventually([&] {
    if (auto newest = (*client)->next_links()) links = std::move(*newest);
    return links.size() == 3 && !links[1].up;
  }));
  ASSERT_TRUE(shell("ip link del v0"));
  ASSERT_TRUE(eventually([&] {
    if (auto newest = (*client)->next_links()) links = std::move(*newest);
    return links.size() == 1;
  }));
}

// The indexes must not depend on when a program was started on either host.
TEST_F(Agent, HasTheSameGidsBeforeDuringAndAfterDuplicateAddressDetection) {
  const auto make_netdev = [] {
    return shell(
        "ip link add v0 address 02:00:00:00:00:01 type veth peer name v1 && ip link set v1 up && "
        "sysctl -qw net.ipv6.conf.v0.accept_dad=1");
  };
  const auto configure = [] {
    return shell("ip link set v0 up && ip addr add 10.9.0.1/24 dev v0 && ip addr add fd00::1/64 dev v0");
  };
  const auto is_tentative = [] { return shell("ip -6 addr show dev v0 tentative | grep -q tentative"); };
  const auto gids_of = [](Client& client) {
    std::vector<std::string> gids;
    for (const Link& link : client.links().value_or(std::vector<Link>())) {
      if (link.netdev != "v0") continue;
      for (const auto& entry : link.gids) {
        char text[INET6_ADDRSTRLEN];
        ::inet_ntop(AF_INET6, entry.gid.bytes.data(), text, sizeof text);
        gids.push_back(std::to_string(entry.index) + " " + text);
      }
    }
    return gids;
  };
  const std::vector<std::string> expected{"0 fe80::ff:fe00:1", "1 ::ffff:10.9.0.1", "2 fd00::1"};
  for (const char* moment : {"before", "during", "after"}) {
    SCOPED_TRACE(moment);
    std::optional<AgentProcess> agent;
    ASSERT_TRUE(make_netdev());
    if (moment == std::string_view("before")) agent.emplace();
    ASSERT_TRUE(configure());
    if (moment == std::string_view("after")) {
      ASSERT_TRUE(eventually([&] { return !is_tentative(); }));
    }
    if (!agent) agent.emplace();
    auto client = Client::connect(kOnlyRunning);
    ASSERT_TRUE(client);
    EXPECT_TRUE(eventually([&] { return gids_of(**client) == expected; }));
    ASSERT_TRUE(eventually([&] { return !is_tentative(); }));
    EXPECT_EQ(gids_of(**client), expected);
    client->reset();
    agent.reset();
    ASSERT_TRUE(shell("ip link del v0"));
  }
}

TEST_F(Agent, LosesTheLinkOfLoopbackOnlyWhenNobodyIsLeftWhoHasSeenIt) {
  AgentProcess agent;
  auto early = Client::connect(kOnlyRunning);
  ASSERT_TRUE(early);
  ASSERT_THAT(names(**early), ElementsAre("rxe_lo"));
  ASSERT_TRUE(
      shell("ip link add v0 type veth peer name v1 && ip addr add 10.9.0.1/24 dev v0 && "
            "ip link set v0 up && ip link set v1 up"));
  ASSERT_TRUE(eventually([&] { return names(**early).size() == 3; }));
  auto late = Client::connect(kOnlyRunning);
  ASSERT_TRUE(late);
  EXPECT_THAT(names(**late), ElementsAre("rxe_v1", "rxe_v0", "rxe_lo"));
  early->reset();
  late->reset();
  ASSERT_TRUE(eventually([&] {
    auto client = Client::connect(kOnlyRunning);
    return client && names(**client) == std::vector<std::string>{"rxe_v1", "rxe_v0"};
  }));
}

TEST_F(Agent, LendsSlotsWithSocketsThatGetTheirPackets) {
  AgentProcess agent;
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  auto first = (*client)->take_slot();
  auto second = (*client)->take_slot();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->index, 1u);
  EXPECT_EQ(second->index, 2u);
  ASSERT_TRUE(first->socket) << first->no_wire_reason;
  ASSERT_TRUE(send_to_slot(1, 100));
  ASSERT_TRUE(send_to_slot(2, 200));
  ASSERT_TRUE(send_to_slot(3, 300));  // slot 3 belongs to no process
  EXPECT_THAT(received_tags(*first), ElementsAre(100u));
  EXPECT_THAT(received_tags(*second), ElementsAre(200u));
}

TEST_F(Agent, GivesEverySlotAnEmptyStatusPageOfItsOwn) {
  AgentProcess agent;
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  void* memory = ::mmap(nullptr, sizeof(protocol::StatusPage), PROT_READ | PROT_WRITE, MAP_SHARED,
                        slot->status_page.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& page = *static_cast<protocol::StatusPage*>(memory);
  EXPECT_EQ(page.magic, 0u);
  page.magic = protocol::StatusPage::kMagic;
  page.port[protocol::kPortSentPackets] = 7;
  page.qps[9000].in_use = 1;
  page.qps[9000].qpn = 1234;
  page.qps[9000].counters[transport::kRnrNaksSent] = 5;

  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  const auto status = (*admin)->status();
  ASSERT_TRUE(status) << status.error().text;
  EXPECT_EQ(status->pid, agent.pid());
  EXPECT_EQ(status->no_wire_reason, "");
  ASSERT_EQ(status->slots.size(), 1u);
  EXPECT_EQ(status->slots[0].index, slot->index);
  EXPECT_EQ(status->slots[0].pid, ::getpid());
  EXPECT_EQ(status->slots[0].program, program_invocation_short_name);
  EXPECT_TRUE(status->slots[0].has_wire);
  EXPECT_EQ(status->slots[0].port[protocol::kPortSentPackets], 7u);
  ASSERT_EQ(status->slots[0].qps.size(), 1u);
  EXPECT_EQ(status->slots[0].qps[0].qpn, 1234u);
  EXPECT_EQ(status->slots[0].qps[0].counters[transport::kRnrNaksSent], 5u);
  ::munmap(memory, sizeof(protocol::StatusPage));
}

TEST_F(Agent, TakesBackWhatAKilledProcessHeld) {
  AgentProcess agent;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto client = Client::connect(kOnlyRunning);
    const bool good = client && (*client)->take_slot() && (*client)->take_slot();
    [[maybe_unused]] const ssize_t told = ::write(ready[1], good ? "y" : "n", 1);
    ::pause();
    ::_exit(0);
  }
  char told = 0;
  ASSERT_EQ(::read(ready[0], &told, 1), 1);
  ASSERT_EQ(told, 'y');
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  ASSERT_EQ(leased_slots(**admin), 2);
  ::kill(child, SIGKILL);
  const TimePoint killed = MonotonicClock::now();
  EXPECT_TRUE(eventually([&] { return leased_slots(**admin) == 0; }));
  EXPECT_LT(MonotonicClock::now() - killed, std::chrono::seconds(1));
  ::waitpid(child, nullptr, 0);
}

TEST_F(Agent, TakesASlotBackOnce) {
  AgentProcess agent;
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  ASSERT_TRUE((*client)->take_slot());
  EXPECT_TRUE((*client)->return_slot(1));
  EXPECT_EQ((*client)->return_slot(1).error().code, EINVAL);
  const auto second = (*client)->take_slot();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->index, 2u);  // the first slot rests before it is leased again
}

TEST_F(Agent, LendsSlotsWithoutAWireWhenThePortIsTaken) {
  const UniqueFd squatter = test::take_roce_port();
  ASSERT_TRUE(squatter);
  AgentProcess agent;
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  EXPECT_FALSE(slot->socket);
  EXPECT_TRUE(slot->status_page);
  EXPECT_THAT(slot->no_wire_reason, HasSubstr("UDP port 4791 is taken by"));
  EXPECT_THAT(slot->no_wire_reason, HasSubstr(std::to_string(::getpid())));
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  const auto status = (*admin)->status();
  ASSERT_TRUE(status);
  ASSERT_EQ(status->links.size(), 1u);
  EXPECT_THAT(status->links[0].wire, HasSubstr("down: UDP port 4791 is taken by"));
  EXPECT_FALSE(status->links[0].link.is_active());
}

TEST_F(Agent, TakesThePortWhenItIsFree) {
  UniqueFd squatter = test::take_roce_port();
  ASSERT_TRUE(squatter);
  AgentProcess agent;
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto before = (*client)->links();
  ASSERT_TRUE(before && before->size() == 1);
  EXPECT_TRUE((*before)[0].up);
  EXPECT_FALSE((*before)[0].has_wire);
  squatter.reset();
  EXPECT_TRUE(eventually([&] {
    const auto now = (*client)->links();
    return now && now->size() == 1 && (*now)[0].is_active();
  }));
  const auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  EXPECT_TRUE(slot->socket);
}

TEST_F(Agent, AddsAndDeletesLinksForTheCommandLine) {
  AgentProcess agent;
  ASSERT_TRUE(shell("ip link add v0 type veth peer name v1"));
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  ASSERT_TRUE(eventually([&] { return (*admin)->add_link("rxe0", "v0").has_value(); }));
  const auto again = (*admin)->add_link("rxe1", "v0");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, EEXIST);
  EXPECT_THAT(again.error().text, HasSubstr("rxe0"));
  EXPECT_EQ((*admin)->add_link("rxe1", "nothere").error().code, ENODEV);
  EXPECT_EQ((*admin)->delete_link("nothere").error().code, ENODEV);
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  EXPECT_THAT(names(**client), ElementsAre("rxe0", "rxe_lo"));
  ASSERT_TRUE((*admin)->delete_link("rxe0"));
  ASSERT_TRUE((*admin)->delete_link("rxe_lo"));
  EXPECT_THAT(names(**client), ElementsAre());
}

TEST_F(Agent, EndsWhenIdleAndOnlyThen) {
  AgentProcess agent({"--idle-timeout=1"});
  {
    auto client = Client::connect(kOnlyRunning);
    ASSERT_TRUE(client);
    ASSERT_TRUE((*client)->take_slot());
    EXPECT_NE(::poll(nullptr, 0, 1500), -1);  // longer than the idle timeout
    EXPECT_TRUE((*client)->links());
  }
  EXPECT_EQ(agent.wait(), 0);
}

TEST_F(Agent, StaysWhileItHoldsALinkThatTheUserMade) {
  AgentProcess agent({"--idle-timeout=1"});
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  ASSERT_TRUE((*admin)->add_link("mine", "lo"));
  admin->reset();
  EXPECT_NE(::poll(nullptr, 0, 1500), -1);  // longer than the idle timeout
  EXPECT_TRUE(Client::connect(kOnlyRunning));
}

TEST_F(Agent, EndsCleanlyWhenAsked) {
  AgentProcess agent;
  EXPECT_EQ(agent.stop(SIGTERM), 0);
  EXPECT_FALSE(Client::connect(kOnlyRunning));
}

TEST_F(Agent, IsAloneInItsNamespace) {
  AgentProcess agent;
  AgentProcess second;
  const int status = second.wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_TRUE(Client::connect(kOnlyRunning));
}

TEST_F(Agent, ShowsItsDevicesAndTheirCountersInTheStateDirectory) {
  namespace fs = std::filesystem;
  auto agent = std::make_unique<AgentProcess>();
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto directory = paths::find_state_directory();
  ASSERT_TRUE(directory);
  const fs::path device = *directory + "/sys/class/infiniband/rxe_lo";
  EXPECT_TRUE(fs::exists(device / "ports/1/gids/0"));

  auto slot = (*client)->take_slot();
  ASSERT_TRUE(slot);
  void* memory = ::mmap(nullptr, sizeof(protocol::StatusPage), PROT_READ | PROT_WRITE, MAP_SHARED,
                        slot->status_page.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& page = *static_cast<protocol::StatusPage*>(memory);
  page.qps[3].qpn = roce::Qpn::in_slot(slot->index, 3).value();
  const auto links = (*client)->links();
  ASSERT_TRUE(links && !links->empty());
  page.qps[3].device_index = links->front().device_index;
  page.qps[3].counters[transport::kSentPackets] = 1234;
  page.qps[3].in_use = 1;
  page.magic = protocol::StatusPage::kMagic;
  // The file is opened once and read repeatedly, as perftest does.
  const UniqueFd file(::open((device / "ports/1/hw_counters/sent_pkts").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(file);
  const auto shown = [&] {
    char text[32] = {};
    return ::pread(file.get(), text, sizeof text - 1, 0) > 0 ? std::string(text) : std::string();
  };
  for (const uint64_t count : {1234u, 1235u, 99999u}) {
    page.qps[3].counters[transport::kSentPackets] = count;
    EXPECT_TRUE(eventually([&] { return shown() == std::to_string(count) + "\n"; })) << shown();
  }
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  const auto status = (*admin)->status();
  ASSERT_TRUE(status && !status->links.empty());
  EXPECT_EQ(status->links.front().counters[transport::kSentPackets], 99999u);
  admin->reset();

  // Counts survive the process's end.
  page.qps[3].in_use = 0;
  page.qps[3].counters[transport::kSentPackets] = 100000;
  ASSERT_TRUE((*client)->return_slot(slot->index));
  EXPECT_TRUE(eventually([&] { return shown() == "100000\n"; })) << shown();
  ::munmap(memory, sizeof(protocol::StatusPage));
  EXPECT_EQ(agent->stop(SIGTERM), 0);
  EXPECT_FALSE(fs::exists(*directory));
}

TEST_F(Agent, JoinsMulticastGroupsForItsClients) {
  AgentProcess agent;
  auto client = Client::connect(kOnlyRunning);
  ASSERT_TRUE(client);
  const auto links = (*client)->links();
  ASSERT_TRUE(links && !links->empty());
  const uint32_t device = links->front().device_index;
  const uint8_t address[4] = {239, 1, 2, 3};
  const auto group = roce::Address::from_ipv4(address);
  const auto socket = (*client)->join_group(device, group);
  ASSERT_TRUE(socket);
  sockaddr_in bound{};
  socklen_t length = sizeof bound;
  ASSERT_EQ(::getsockname(socket->get(), reinterpret_cast<sockaddr*>(&bound), &length), 0);
  EXPECT_EQ(bound.sin_port, htons(4791));
  EXPECT_EQ(std::memcmp(&bound.sin_addr, address, 4), 0);
  EXPECT_TRUE((*client)->join_group(device, group)) << "another of the same group";

  EXPECT_EQ((*client)->join_group(device + 100, group).error().code, ENODEV);
  const uint8_t one_host[4] = {127, 0, 0, 1};
  EXPECT_EQ((*client)->join_group(device, roce::Address::from_ipv4(one_host)).error().code, EINVAL);
}

TEST_F(Agent, SurvivesBeingKilledWithoutMovingASlot) {
  auto agent = std::make_unique<AgentProcess>();
  auto first = Client::connect(kOnlyRunning);
  auto second = Client::connect(kOnlyRunning);
  ASSERT_TRUE(first && second);
  auto one = (*first)->take_slot();
  auto two = (*second)->take_slot();
  ASSERT_TRUE(one && two);
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE((*admin)->add_link("mine", "lo"));
  admin->reset();
  const auto links_before = (*first)->links();
  ASSERT_TRUE(links_before);

  agent->stop(SIGKILL);
  ASSERT_TRUE(send_to_slot(1, 11));
  ASSERT_TRUE(send_to_slot(2, 12));
  EXPECT_THAT(received_tags(*one), ElementsAre(11u));
  EXPECT_THAT(received_tags(*two), ElementsAre(12u));

  agent = std::make_unique<AgentProcess>();
  // One client reconnects because it makes a request, the other because it notices the agent's end.
  auto three = (*second)->take_slot();
  ASSERT_TRUE(three);
  ASSERT_TRUE(three->socket) << three->no_wire_reason;
  EXPECT_EQ(three->index, 3u);
  std::vector<Link> links;
  ASSERT_TRUE(eventually([&] {
    if (auto newest = (*first)->next_links()) links = std::move(*newest);
    return !links.empty();
  }));
  EXPECT_EQ(links, *links_before);
  for (uint32_t slot = 1; slot <= 3; ++slot) ASSERT_TRUE(send_to_slot(slot, 20 + slot));
  EXPECT_THAT(received_tags(*one), ElementsAre(21u));
  EXPECT_THAT(received_tags(*two), ElementsAre(22u));
  EXPECT_THAT(received_tags(*three), ElementsAre(23u));

  admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  EXPECT_EQ(leased_slots(**admin), 3);
  // The agent knows both again, and takes back their slots.
  EXPECT_TRUE((*first)->return_slot(1));
  EXPECT_TRUE((*second)->return_slot(2));
  EXPECT_EQ(leased_slots(**admin), 1);
}

// A client with several slots, such as a process with several shards.
TEST_F(Agent, LearnsEachSlotOfAClientThatHasSeveralWhenItIsKilled) {
  auto agent = std::make_unique<AgentProcess>();
  auto many = Client::connect(kOnlyRunning);
  auto single = Client::connect(kOnlyRunning);
  ASSERT_TRUE(many && single);
  std::vector<Slot> held;
  for (int i = 0; i < 3; ++i) {
    auto slot = (*many)->take_slot();
    ASSERT_TRUE(slot);
    held.push_back(std::move(*slot));
  }
  ASSERT_TRUE((*many)->return_slot(2)) << "a gap, which is nobody's";
  held.erase(held.begin() + 1);
  agent->stop(SIGKILL);
  agent = std::make_unique<AgentProcess>();

  // The client restores all its slots before the agent leases any new one.
  for (auto* client : {&*single, &*many}) {
    auto another = (*client)->take_slot();
    ASSERT_TRUE(another);
    for (const Slot& slot : held) EXPECT_NE(another->index, slot.index);
    held.push_back(std::move(*another));
  }
  for (const Slot& slot : held) {
    ASSERT_TRUE(send_to_slot(slot.index, 100 + slot.index));
    EXPECT_THAT(received_tags(slot), ElementsAre(100 + slot.index));
  }
  auto admin = Admin::connect(kOnlyRunning);
  ASSERT_TRUE(admin);
  EXPECT_EQ(leased_slots(**admin), 4);
  // All its slots end with the client, and no others.
  many->reset();
  EXPECT_TRUE(eventually([&] { return leased_slots(**admin) == 1; }));
}

}  // namespace
}  // namespace verbena
