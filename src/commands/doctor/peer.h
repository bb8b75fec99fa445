// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <sys/socket.h>

#include "base/time.h"
#include "commands/doctor/checks.h"
#include "control/model/agent_status.h"
#include "management/mad/agent_messages.h"

namespace verbena::commands::doctor {

// The kind of RDMA stack that answers on UDP port 4791 of another host.
enum class PeerKind : uint8_t {
  // Nothing answers on the port.
  kNone,
  kVerbena,      // reports its version
  kPerformance,  // has performance counters but reports no version, as an adapter or an older Verbena
  kOther,        // answers, but without performance counters, as the kernel's rdma_rxe
};

// Facts about another host and the path to it.
struct PeerLook {
  std::string address;      // the host's IP address as text
  int route_error = 0;      // errno if the kernel has no route to the host; else 0
  std::string source;       // this host's address on the path
  std::string no_wire;      // why the agent does not have UDP port 4791; empty if it has
  bool has_link = false;    // a link of this host has the address `source`
  std::string link;         // name of that link; empty if there is none
  uint32_t path_mtu = 0;    // path MTU of the link, in bytes; 0 if there is no link
  bool is_up = true;        // the link is up
  bool is_refused = false;  // the link's peer filter rejects packets from the host

  PeerKind kind = PeerKind::kNone;
  mad::AgentInfo info{};  // set if `kind` is kVerbena
  Duration round_trip{};  // shortest time of a query by management datagrams; 0 if `kind` is kNone
  // The errno that an empty datagram to the host's UDP port 4791 has caused (ECONNREFUSED, EHOSTUNREACH,
  // ...), or 0. The datagram is sent only if `kind` is kNone.
  int udp_error = 0;
  std::optional<bool> echoes{};  // the host answers ICMP echoes; nullopt if this user may not send any
  // The largest path MTU, in bytes and at most `path_mtu`, for which ICMP echoes of a full packet's size
  // return. 0 if only smaller echoes return; nullopt if none returns or none was sent.
  std::optional<uint32_t> widest{};
};

// Resolves a host's name or address. Returns the first address to which the kernel has a route, or the first
// of all if it has a route to none. Returns nullopt for unknown names.
std::optional<sockaddr_storage> find_peer(const std::string& name);

// Finds the link that leads to the host, and queries the host over it with management datagrams and ICMP
// echoes. Takes some seconds if the host does not answer.
PeerLook look_at(const sockaddr_storage& peer, const control::AgentStatus& agent);

// Adds findings about the peer and the path, with remedies. Pure.
void report_peer(const PeerLook& look, Findings& findings);

}  // namespace verbena::commands::doctor
