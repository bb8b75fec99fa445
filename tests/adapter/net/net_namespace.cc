// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/net_namespace.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace verbena::net::testing {
namespace {

constexpr const char* kThisThreads = "/proc/thread-self/ns/net";

[[noreturn]] void throw_errno(const std::string& what, int error = errno) {
  throw std::system_error(error, std::generic_category(), what);
}

// Runs one ethtool command on a device.
void ethtool(int fd, const std::string& device, void* command) {
  ifreq request{};
  std::strncpy(request.ifr_name, device.c_str(), sizeof request.ifr_name - 1);
  request.ifr_data = static_cast<char*>(command);
  if (ioctl(fd, SIOCETHTOOL, &request) != 0) throw_errno("ethtool on " + device);
}

// Returns the kernel's names of its offloads, in the order of their bits.
std::vector<std::string> feature_names(int fd, const std::string& device) {
  alignas(ethtool_sset_info) std::array<uint32_t, sizeof(ethtool_sset_info) / 4 + 1> set_buffer{};
  auto* set = reinterpret_cast<ethtool_sset_info*>(set_buffer.data());
  set->cmd = ETHTOOL_GSSET_INFO;
  set->sset_mask = 1ull << ETH_SS_FEATURES;
  ethtool(fd, device, set);
  const uint32_t count = set_buffer.back();
  std::vector<char> buffer(sizeof(ethtool_gstrings) + count * ETH_GSTRING_LEN);
  auto* strings = reinterpret_cast<ethtool_gstrings*>(buffer.data());
  strings->cmd = ETHTOOL_GSTRINGS;
  strings->string_set = ETH_SS_FEATURES;
  strings->len = count;
  ethtool(fd, device, strings);
  std::vector<std::string> names;
  for (uint32_t i = 0; i < count; ++i) {
    names.emplace_back(buffer.data() + sizeof(ethtool_gstrings) + i * ETH_GSTRING_LEN);
  }
  return names;
}

}  // namespace

NetNamespace::NetNamespace() {
  int error = 0;
  std::thread([&] {
    if (unshare(CLONE_NEWNET) == 0) fd_.reset(open(kThisThreads, O_RDONLY | O_CLOEXEC));
    if (!fd_) error = errno;
  }).join();
  if (error != 0) throw_errno("unshare", error);
  const InNamespace here(*this);
  run("ip link set lo up");
}

InNamespace::InNamespace(const NetNamespace& where) : before_(open(kThisThreads, O_RDONLY | O_CLOEXEC)) {
  if (setns(where.fd(), CLONE_NEWNET) != 0) throw_errno("setns");
}

InNamespace::~InNamespace() {
  // In the wrong namespace, later tests would use the wrong network.
  if (setns(before_.get(), CLONE_NEWNET) != 0) std::abort();
}

bool can_make_namespaces() {
  bool can = false;
  std::thread([&] { can = unshare(CLONE_NEWNET) == 0; }).join();
  return can;
}

void run(const std::string& command) {
  const int status = std::system(command.c_str());
  if (status != 0) throw std::runtime_error(command + ": status " + std::to_string(status));
}

void set_offload(const std::string& device, const std::string& feature, bool on) {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) throw_errno("socket");
  const std::vector<std::string> names = feature_names(fd.get(), device);
  const size_t blocks = (names.size() + 31) / 32;
  std::vector<uint32_t> buffer((sizeof(ethtool_sfeatures) + blocks * sizeof(ethtool_set_features_block)) / 4);
  auto* set = reinterpret_cast<ethtool_sfeatures*>(buffer.data());
  set->cmd = ETHTOOL_SFEATURES;
  set->size = static_cast<uint32_t>(blocks);
  bool found = false;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != feature) continue;
    found = true;
    set->features[i / 32].valid |= 1u << (i % 32);
    if (on) set->features[i / 32].requested |= 1u << (i % 32);
  }
  if (!found) throw std::runtime_error("no offload " + feature);
  ethtool(fd.get(), device, set);
}

TakenPorts::TakenPorts(uint16_t first, uint16_t last) {
  constexpr rlim_t kOtherDescriptors = 1024;
  if (getrlimit(RLIMIT_NOFILE, &before_) != 0) throw_errno("getrlimit");
  rlimit enough = before_;
  enough.rlim_cur = std::max<rlim_t>(before_.rlim_cur, last - first + kOtherDescriptors);
  enough.rlim_max = std::max(before_.rlim_max, enough.rlim_cur);
  if (setrlimit(RLIMIT_NOFILE, &enough) != 0) throw_errno("setrlimit");
  for (uint32_t port = first; port <= last; ++port) {
    UniqueFd fd(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 name{};  // of all addresses, also those of IPv4
    name.sin6_family = AF_INET6;
    name.sin6_port = htons(static_cast<uint16_t>(port));
    if (!fd) throw_errno("socket");
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) {
      sockets_.push_back(std::move(fd));
    } else if (errno != EADDRINUSE) {
      throw_errno("bind");
    }
  }
}

TakenPorts::~TakenPorts() {
  setrlimit(RLIMIT_NOFILE, &before_);
}

TakenPorts TakenPorts::ephemeral() {
  constexpr uint16_t kOnly = 20000;
  const std::string only = std::to_string(kOnly);
  run("echo " + only + " " + only + " > /proc/sys/net/ipv4/ip_local_port_range");
  return {kOnly, kOnly};
}

TwoHosts::TwoHosts(int mtu) {
  const std::string size = std::to_string(mtu);
  {
    const InNamespace here(b);
    const std::string other = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(a.fd());
    run("ip link add veth-b mtu " + size + " type veth peer name veth-a mtu " + size + " netns " + other);
    run("ip addr add 10.47.91.2/24 dev veth-b && ip addr add fd47:91::2/64 dev veth-b nodad");
    run("ip link set veth-b up");
  }
  const InNamespace here(a);
  run("ip addr add 10.47.91.1/24 dev veth-a && ip addr add fd47:91::1/64 dev veth-a nodad");
  run("ip link set veth-a up");
}

}  // namespace verbena::net::testing
