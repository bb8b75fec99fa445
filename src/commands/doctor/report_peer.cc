// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/format.h"
#include "commands/doctor/peer.h"
#include "control/model/link.h"

namespace verbena::commands::doctor {
namespace {

constexpr const char* kPeerSubject = "peer";
constexpr const char* kPathSubject = "mtu";

// ---- obstacles on this host

// Reports why the peer could not be queried. False: it could not.
bool look_at_this_end(const PeerLook& look, Findings& findings) {
  if (look.route_error != 0) {
    findings.fault(
        kPeerSubject,
        verbena::format("this host has no way to {}: {}", look.address, std::strerror(look.route_error)),
        verbena::format("see 'ip route get {}'; add a route or an address of that network", look.address));
  } else if (!look.no_wire.empty()) {
    findings.fault(kPeerSubject,
                   verbena::format("the agent of this host has no UDP port 4791: {}", look.no_wire),
                   "'verbena doctor' names who has the port");
  } else if (!look.has_link) {
    findings.fault(
        kPeerSubject,
        verbena::format("packets to {} leave from {}, which is no link's address", look.address, look.source),
        verbena::format("'verbena link show' lists the links; 'ip route get {}' the device, which needs one: "
                        "verbena link add NAME DEV",
                        look.address));
  } else if (!look.is_up) {
    findings.fault(kPeerSubject,
                   verbena::format("link {}, which leads to {}, is down", look.link, look.address),
                   "'verbena doctor' says why");
  } else if (look.is_refused) {
    findings.fault(kPeerSubject,
                   verbena::format("link {} does not accept packets from {} (its peers are set)", look.link,
                                   look.address),
                   verbena::format("verbena link set {} peers any, or name its network", look.link));
  } else {
    return true;
  }
  return false;
}

// ---- the peer does not answer

void report_silence(const PeerLook& look, Findings& findings) {
  const std::string& host = look.address;
  if (look.udp_error == ECONNREFUSED) {
    findings.fault(
        kPeerSubject, verbena::format("{} is there, and nobody listens on UDP port 4791", host),
        "start an agent there (verbena agent): one that a program starts ends with the program; or, on a "
        "host with rdma_rxe, add a link (rdma link add rxe0 type rxe netdev DEV)");
  } else if (look.udp_error == EHOSTUNREACH) {
    findings.fault(
        kPeerSubject,
        verbena::format("no host answers at {} (ARP, neighbour discovery, or a router said so)", host),
        verbena::format("check the address and the cable; see 'ip neigh show {}'", host));
  } else if (look.udp_error == EACCES || look.udp_error == EPERM) {
    findings.fault(kPeerSubject,
                   verbena::format("this host's firewall lets nothing out to UDP port 4791 of {}", host),
                   "let UDP port 4791 out; 'sudo verbena doctor' names the rule");
  } else if (look.udp_error != 0) {
    findings.fault(kPeerSubject,
                   verbena::format("{} cannot be reached: {}", host, std::strerror(look.udp_error)),
                   verbena::format("see 'ip route get {}'", host));
  } else if (look.echoes == true) {
    findings.fault(
        kPeerSubject,
        verbena::format("{} answers ICMP echoes, and nothing comes back from its UDP port 4791", host),
        "let UDP port 4791 in at both ends, also for new flows, as nothing is an answer to it; "
        "run 'sudo verbena doctor' there; on a host with rdma_rxe, 'rdma link' names the links; "
        "'tcpdump -n udp port 4791' there shows whether the requests arrive");
  } else {
    findings.fault(
        kPeerSubject,
        verbena::format("nothing comes back from {}: neither from UDP port 4791{}", host,
                        look.echoes ? " nor an ICMP echo" : ""),
        verbena::format(
            "is the host up? 'ping {}'; a firewall on the way may drop everything: 'tcpdump -n udp "
            "port 4791' at both ends shows how far requests and answers come",
            host));
  }
}

// ---- the peer answers

std::string kind_of(const PeerLook& look) {
  switch (look.kind) {
    case PeerKind::kVerbena:
      return verbena::format("Verbena {} ({})", look.info.version, look.info.description);
    case PeerKind::kPerformance:
      return "an RDMA adapter, or a Verbena that does not say its version";
    default:
      return "RoCEv2 of a kernel, such as rdma_rxe";
  }
}

void report_answer(const PeerLook& look, Findings& findings) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(look.round_trip).count();
  findings.fine(
      kPeerSubject,
      verbena::format("{} answers on UDP port 4791, so packets go both ways by {}: {}; {} us there and back",
                      look.address, look.link, kind_of(look), us));
  if (look.kind == PeerKind::kVerbena && look.info.version != VERBENA_VERSION) {
    findings.fine(kPeerSubject, verbena::format("the versions differ, which works: {} there, {} here",
                                                look.info.version, VERBENA_VERSION));
  }
}

void report_path_mtu(const PeerLook& look, Findings& findings) {
  const uint32_t theirs = look.kind == PeerKind::kVerbena ? 128u << look.info.path_mtu : look.path_mtu;
  if (!look.widest) {
    findings.unseen(
        kPathSubject,
        look.echoes ? "the host answers no ICMP echoes: which packets fit on the way is not known"
                    : "this user may not send ICMP echoes: which packets fit on the way is not known",
        look.echoes ? ""
                    : "sudo verbena doctor, or as root: sysctl -w net.ipv4.ping_group_range='0 2147483647'");
  } else if (*look.widest < look.path_mtu) {
    findings.fault(
        kPathSubject,
        verbena::format("the path MTU of {} is {}, and of packets of {} bytes none come back; {}", look.link,
                        look.path_mtu, look.path_mtu + control::kPacketOverhead,
                        *look.widest == 0 ? std::string("not even those of a path MTU of 256 do")
                                          : verbena::format("a path MTU of {} fits", *look.widest)),
        *look.widest == 0
            ? std::string("raise the MTU of the devices on the way")
            : verbena::format("give programs the smaller path MTU (perftest -m {}), or raise the MTU of each "
                              "device on the way",
                              *look.widest));
  } else {
    findings.fine(kPathSubject, verbena::format("a path MTU of {} fits on the way", *look.widest));
  }
  if (theirs != look.path_mtu) {
    findings.cost(
        kPathSubject,
        verbena::format("the path MTU here is {}, there {}: a program that takes its own for both ends fails",
                        look.path_mtu, theirs),
        verbena::format("give both network devices the same MTU, or programs the smaller (perftest -m {})",
                        std::min(theirs, look.path_mtu)));
  }
}

}  // namespace

void report_peer(const PeerLook& look, Findings& findings) {
  if (!look_at_this_end(look, findings)) return;
  if (look.kind == PeerKind::kNone) return report_silence(look, findings);
  report_answer(look, findings);
  report_path_mtu(look, findings);
}

}  // namespace verbena::commands::doctor
