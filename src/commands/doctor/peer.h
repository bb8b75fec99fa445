// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <sys/socket.h>

#include "base/time.h"
#include "commands/doctor/finding.h"
#include "control/model/agent_status.h"
#include "management/mad/agent_info.h"

namespace verbena::commands::doctor {

// The RDMA stack behind UDP port 4791 of another host.
enum class PeerKind : uint8_t {
  kNone,
  kVerbena,      // it reports its version
  kPerformance,  // it has performance counters but reports no version: an adapter, or an older Verbena
  kOther,        // it answers with errors, as the kernel's rdma_rxe
};

// Facts about another host and the path to it.
struct PeerLook {
  std::string address;      // as text
  int route_error = 0;      // errno of a missing route
  std::string source;       // our address on the path
  std::string no_wire;      // why the agent has no UDP port 4791; empty if it has
  bool has_link = false;    // `source` is an address of a link
  std::string link;         // its name
  uint32_t path_mtu = 0;    // of the link, in bytes
  bool is_up = true;        // of the link
  bool is_refused = false;  // the link rejects packets from the host

  PeerKind kind = PeerKind::kNone;
  mad::AgentInfo info{};  // for kVerbena
  Duration round_trip{};
  int udp_error = 0;                 // errno after a datagram to the port: ECONNREFUSED, EHOSTUNREACH, ...
  std::optional<bool> echoes{};      // it answers ICMP echoes; nullopt: this user may not send any
  std::optional<uint32_t> widest{};  // largest path MTU whose packets return; 0: none
};

// Resolves a host's name or address; nullopt if unknown.
std::optional<sockaddr_storage> find_peer(const std::string& name);

// Queries the host over the link that leads to it. Takes some seconds if the host does not answer.
PeerLook look_at(const sockaddr_storage& peer, const control::AgentStatus& agent);

// Reports problems with the peer or the path, and remedies. Pure.
void report_peer(const PeerLook& look, Findings& findings);

}  // namespace verbena::commands::doctor
