// SPDX-License-Identifier: Apache-2.0
// A user who attacks root's agent and other users in every way, again and again, until it is killed.
//
//     hostile_user [moderate]     moderate: does not exhaust resources or take the port, which root may do
//
// Prints a line for each kind of attack when it has been done for the first time.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/sessions/misdeeds.h"
#include "agent/sessions/raw_connection.h"
#include "base/lingering_socket.h"
#include "base/unique_fd.h"
#include "control/client/client.h"
#include "control/model/message_socket.h"
#include "control/protocol/messages.h"
#include "control/protocol/status_page.h"

namespace verbena {
namespace {

using control::Client;
using protocol::MessageType;
using test::LingeringSocket;
using test::RawConnection;

constexpr uid_t kRoot = 0;
constexpr uint16_t kRocePort = 4791;
const control::ConnectOptions kOnlyRunning{.start_agent = false, .agent_program = {}};

uint32_t draw() {
  static uint64_t state = static_cast<uint64_t>(::getpid()) * 0x9e37'79b9'7f4a'7c15;
  state = state * 6'364'136'223'846'793'005 + 1'442'695'040'888'963'407;
  return static_cast<uint32_t>(state >> 32);
}

void rest() {
  ::usleep(1000);
}

// ---- exhausting resources

void take_slots() {
  test::KeptConnections kept;
  (void)test::take_all_slots(kept);
  ::usleep(200'000);
}

void take_connections() {
  test::KeptConnections kept;
  (void)test::take_all_connections(kept, 2000);
  ::usleep(200'000);
}

void read_nothing() {
  test::KeptConnections kept;
  (void)test::read_nothing(kept);
  ::usleep(100'000);
}

void take_channels() {
  test::KeptConnections kept;
  (void)test::take_all_channels(kept);
}

// ---- delaying the agent

// Sends slow descriptors with requests that take none.
void send_lingering() {
  RawConnection connection(kRoot);
  if (!connection.hello()) return;
  LingeringSocket slow;
  const int fd = slow.fd();
  const auto request = protocol::request_header(MessageType::kGetLinks, 2);
  (void)connection.send(protocol::bytes_of(request), {&fd, 1});
  slow.reset();
  rest();
}

void fill_pages() {
  auto client = Client::connect(kOnlyRunning);
  if (!client) return;
  for (int i = 0; i < 20; ++i) {
    auto slot = (*client)->take_slot();
    if (!slot) return;
    const bool filled = test::fill_status_page(*slot, [](protocol::QpStatus& qp) {
      if (draw() % 2 == 0) qp.qpn = draw();
      qp.device_index = draw() % 3 == 0 ? draw() : 0;
      for (auto& counter : qp.counters) counter = draw();
    });
    if (!filled) return;
  }
}

void say_nonsense() {
  RawConnection connection(kRoot);
  if (draw() % 2 == 0 && !connection.hello()) return;
  for (int i = 0; i < 50; ++i) {
    std::array<std::byte, 256> message;
    for (std::byte& byte : message) byte = static_cast<std::byte>(draw());
    protocol::MessageHeader header = protocol::request_header(static_cast<MessageType>(draw() % 64), draw());
    std::memcpy(message.data(), &header, sizeof header);
    if (!connection.send({message.data(), sizeof header + draw() % (message.size() - sizeof header)})) return;
  }
}

// ---- attacking others

void bend(int fd) {
  const int on = 1;
  sock_filter code[] = {{BPF_RET | BPF_K, 0, 0, 0}};
  const sock_fprog program{.len = 1, .filter = code};
  ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
  ::setsockopt(fd, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
  ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kRocePort);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  [[maybe_unused]] const int connected = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  ::shutdown(fd, SHUT_RDWR);
}

// Changes every descriptor that a program gets.
void bend_sockets() {
  auto client = Client::connect(kOnlyRunning);
  if (!client) return;
  const auto slot = (*client)->take_slot();
  if (!slot) return;
  for (int fd = 3; fd < 64; ++fd) bend(fd);
}

// Sends packets to others' QPs, and connection management messages, from an address of this host.
void forge_packets() {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(kRocePort);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int i = 0; i < 100; ++i) {
    std::array<uint8_t, 320> packet;
    for (uint8_t& byte : packet) byte = static_cast<uint8_t>(draw());
    packet[1] = 0;
    packet[2] = packet[3] = 0xff;
    if (draw() % 2 == 0) packet[5] = packet[6] = 0, packet[7] = 1;  // QP 1
    (void)::sendto(socket.get(), packet.data(), 20 + draw() % 300, 0, reinterpret_cast<sockaddr*>(&to),
                   sizeof to);
  }
}

// Takes the names of agents.
void take_names() {
  static std::vector<UniqueFd> kept;
  for (const uid_t user : {kRoot, ::geteuid(), uid_t{65533}, uid_t{65534}}) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const control::AgentAddress address(user);
    if (::bind(socket.get(), address.address(), address.length) != 0) continue;
    ::listen(socket.get(), 1);
    kept.push_back(std::move(socket));
  }
}

struct Deed {
  const char* name;
  void (*act)();
  bool is_for_root;
};
constexpr Deed kDeeds[] = {
    {"takes all slots", take_slots, true},
    {"takes all connections", take_connections, true},
    {"reads nothing", read_nothing, true},
    {"takes all event channels", take_channels, true},
    {"sends descriptors that linger", send_lingering, false},
    {"fills status pages", fill_pages, false},
    {"says nonsense", say_nonsense, false},
    {"bends sockets", bend_sockets, true},
    {"forges packets", forge_packets, false},
    {"takes names", take_names, true},
};

}  // namespace
}  // namespace verbena

int main(int argc, char** argv) {
  const bool is_moderate = argc > 1 && std::string(argv[1]) == "moderate";
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::array<bool, std::size(verbena::kDeeds)> done{};
  for (;;) {
    const size_t which = verbena::draw() % std::size(verbena::kDeeds);
    const auto& deed = verbena::kDeeds[which];
    if (deed.is_for_root && is_moderate) continue;
    deed.act();
    if (!std::exchange(done[which], true)) {
      std::printf("%s\n", deed.name);
      std::fflush(stdout);
    }
    verbena::rest();
  }
}
