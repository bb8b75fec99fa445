// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/format.h"
#include "commands/doctor/checks.h"
#include "commands/verbena/names.h"
#include "control/model/link.h"

namespace verbena::commands::doctor {
namespace {

constexpr const char* kLinks = "links";
constexpr const char* kMtu = "mtu";

constexpr uint32_t kSmallestPacket = 256 + control::kPacketOverhead;
constexpr uint32_t kUsualPathMtu = 1024;

using control::LinkStatus;

const Netdev* find(const Netdevs& netdevs, uint32_t index) {
  const auto found = std::ranges::find(netdevs.all, index, &Netdev::index);
  return found == netdevs.all.end() ? nullptr : &*found;
}

bool is_loopback(const LinkStatus& one, const Netdevs& netdevs) {
  const Netdev* netdev = find(netdevs, one.link.interface_index);
  return netdev != nullptr ? netdev->loopback : one.link.netdev == "lo";
}

template <class Predicate>
bool has_gid(const LinkStatus& one, Predicate is_such) {
  return std::ranges::any_of(one.link.gids, is_such, &control::GidEntry::gid);
}

// ---- no links

std::string unlinked(const Netdevs& netdevs) {
  std::string names;
  for (const Netdev& one : netdevs.all) {
    if (one.loopback || one.master != 0) continue;
    names += verbena::format("{}{} ({})", names.empty() ? "" : ", ", one.name,
                             !one.up            ? "down"
                             : !one.carrier     ? "no carrier"
                             : !one.has_address ? "has no address"
                                                : "its link was deleted");
  }
  return names;
}

void say_there_is_none(const Netdevs& netdevs, Findings& findings) {
  const std::string names = unlinked(netdevs);
  const std::string what = names.empty() ? "there is no link, and no network device to have one"
                                         : "there is no link; network devices that have none: " + names;
  const auto deleted = std::ranges::find_if(netdevs.all, [](const Netdev& one) {
    return !one.loopback && one.master == 0 && one.up && one.carrier && one.has_address;
  });
  if (deleted != netdevs.all.end()) {
    findings.fault(kLinks, what, verbena::format("make one: verbena link add rxe_{0} {0}", deleted->name));
  } else if (names.empty()) {
    findings.fault(kLinks, what, "switch loopback on: ip link set lo up");
  } else {
    findings.fault(kLinks, what,
                   "switch a device on and give it an address, 'ip link set DEV up', 'ip addr add ADDRESS/24 "
                   "dev DEV', or add a link by name: verbena link add NAME DEV");
  }
}

bool leads_outward(const LinkStatus& one, const Netdevs& netdevs) {
  return one.link.up && !is_loopback(one, netdevs);
}

// Reports links that are down. Some devices are always down, such as a bridge without containers. So
// automatic links are reported only if no other link leads out of the host.
void look_at_states(const std::vector<LinkStatus>& links, const Netdevs& netdevs, Findings& findings) {
  const bool other_way = std::any_of(links.begin(), links.end(),
                                     [&](const LinkStatus& one) { return leads_outward(one, netdevs); });
  for (const LinkStatus& one : links) {
    if (one.link.up || (other_way && one.link.automatic)) continue;
    const Netdev* netdev = find(netdevs, one.link.interface_index);
    const bool switched_off = netdev != nullptr && !netdev->up;
    findings.fault(kLinks,
                   verbena::format("link {} is down: its network device {} {}", one.link.name,
                                   one.link.netdev, switched_off ? "is switched off" : "has no carrier"),
                   switched_off ? verbena::format("switch it on: ip link set {} up", one.link.netdev)
                                : "look at the cable, or at the other end of the virtual one");
  }
}

// Reports devices that are switched off: the agent removes their links.
void look_at_switched_off(const Netdevs& netdevs, Findings& findings) {
  for (const Netdev& one : netdevs.all) {
    if (one.loopback || one.master != 0 || one.up || !one.has_address) continue;
    findings.fault(kLinks,
                   verbena::format("{} has an address and is switched off, so it has no link", one.name),
                   verbena::format("switch it on: ip link set {} up", one.name));
  }
}

// Reports missing kinds of addresses. Only if no link has one, since some devices serve a single purpose.
void look_at_addresses(const std::vector<LinkStatus>& links, const Netdevs& netdevs, Findings& findings) {
  std::vector<const LinkStatus*> outward;
  for (const LinkStatus& one : links) {
    if (leads_outward(one, netdevs)) outward.push_back(&one);
  }
  if (outward.empty()) return look_at_switched_off(netdevs, findings);
  const auto none_has = [&](auto is_such) {
    return std::ranges::none_of(outward, [&](const LinkStatus* one) { return has_gid(*one, is_such); });
  };
  if (none_has([](const roce::Address& address) { return !address.is_link_local(); })) {
    findings.fault(kLinks,
                   verbena::format("{} has a link-local address only, which works on one cable",
                                   outward.front()->link.name),
                   verbena::format("give {} an address: ip addr add ADDRESS/24 dev {}",
                                   outward.front()->link.netdev, outward.front()->link.netdev));
  } else if (none_has(&roce::Address::is_ipv4)) {
    findings.cost(
        kLinks,
        "no link has an IPv4 address: programs have to be given IPv6 ones and the index of such a GID",
        "take the index from 'verbena link show' (ibv_rc_pingpong -g INDEX, perftest -x INDEX --ipv6-addr), "
        "or add an IPv4 address");
  }
}

// ---- packet sizes

void look_at_sizes(const LinkStatus& one, const Netdevs& netdevs, Findings& findings) {
  const std::string& netdev = one.link.netdev;
  if (one.link.mtu < kSmallestPacket) {
    findings.fault(kMtu,
                   verbena::format("{} carries {} bytes, and the smallest path MTU needs {}", netdev,
                                   one.link.mtu, kSmallestPacket),
                   verbena::format("raise it: ip link set {} mtu 1500", netdev));
  } else if (active_mtu(one.link) < kUsualPathMtu) {
    findings.cost(kMtu,
                  verbena::format("{} carries {} bytes, so that the path MTU is {}: programs are slow, and "
                                  "those that ask for 1024 send IP fragments, which adapters drop",
                                  netdev, one.link.mtu, active_mtu(one.link)),
                  verbena::format("raise it: ip link set {} mtu 1500, on each device of the way", netdev));
  }
  const uint32_t needed = active_mtu(one.link) + control::kPacketOverhead;
  for (const Netdev& port : netdevs.all) {
    if (port.master != one.link.interface_index || port.mtu >= needed) continue;
    findings.fault(kMtu,
                   verbena::format("{} has a path MTU of {}, which needs {} bytes, and its port {} carries "
                                   "{}: larger packets are lost without a word",
                                   netdev, active_mtu(one.link), needed, port.name, port.mtu),
                   verbena::format("make them equal: ip link set {} mtu {}", port.name, one.link.mtu));
  }
}

std::string remedy(const LinkStatus& one, uint32_t narrowest) {
  return verbena::format("give programs a smaller path MTU (perftest -m {}), or make the way as wide as {}",
                         128u << control::path_mtu_of(narrowest), one.link.netdev);
}

// Reports routes with a smaller MTU than the path MTU needs. A configured one is a fault. One learned from
// routers is only a cost, since its hosts may not be peers.
void look_at_routes(const LinkStatus& one, const Netdevs& netdevs, Findings& findings) {
  const uint32_t needed = active_mtu(one.link) + control::kPacketOverhead;
  const auto what = [&](const NarrowRoute& route, const std::string& by) {
    return verbena::format(
        "the way to {} carries {} bytes ({}), and the path MTU of {} is {}, which needs {}",
        route.destination, route.mtu, by, one.link.name, active_mtu(one.link), needed);
  };
  const NarrowRoute* learned = nullptr;
  size_t learned_count = 0;
  for (const NarrowRoute& route : netdevs.narrow_routes) {
    if (route.netdev != one.link.interface_index || route.mtu >= needed) continue;
    if (!route.learned) {
      findings.fault(kMtu, what(route, "by its route"), remedy(one, route.mtu));
      continue;
    }
    ++learned_count;
    if (learned == nullptr || route.mtu < learned->mtu) learned = &route;
  }
  if (learned == nullptr) return;
  const std::string others =
      learned_count == 1 ? "" : verbena::format("; of {} more ways, too", learned_count - 1);
  findings.cost(kMtu, what(*learned, "a router said so" + others), remedy(one, learned->mtu));
}

void look_at_mtus(const std::vector<LinkStatus>& links, const Netdevs& netdevs, Findings& findings) {
  std::string sizes;
  for (const LinkStatus& one : links) {
    if (is_loopback(one, netdevs)) continue;
    look_at_sizes(one, netdevs, findings);
    look_at_routes(one, netdevs, findings);
    sizes += verbena::format("{}{} {}", sizes.empty() ? "" : ", ", one.link.name, active_mtu(one.link));
  }
  if (findings.amiss(kMtu)) return;
  findings.fine(kMtu,
                sizes.empty() ? "nothing is in the way of a path MTU" : "path MTUs fit their ways: " + sizes);
}

std::string states_of(const std::vector<LinkStatus>& links) {
  std::string up;
  std::string down;
  for (const LinkStatus& one : links) {
    std::string& names = one.link.up ? up : down;
    names += (names.empty() ? "" : ", ") + one.link.name;
  }
  return "up: " + up + (down.empty() ? "" : "; down: " + down);
}

}  // namespace

void look_at_links(const std::vector<LinkStatus>& links, const Netdevs& netdevs, Findings& findings) {
  if (links.empty()) return say_there_is_none(netdevs, findings);
  look_at_states(links, netdevs, findings);
  look_at_addresses(links, netdevs, findings);
  if (!findings.amiss(kLinks)) findings.fine(kLinks, states_of(links));
  look_at_mtus(links, netdevs, findings);
}

}  // namespace verbena::commands::doctor
