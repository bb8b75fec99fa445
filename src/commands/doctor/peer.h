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

// The stack that answers on UDP port 4791 of another host.
enum class PeerKind : uint8_t {
  kNone,
  kVerbena,      // it says its version
  kPerformance,  // it counts as an adapter does, and says no version: an adapter, or an older Verbena
  kOther,        // it speaks RoCEv2 and refuses both questions, as the kernel's rdma_rxe does
};

// Facts about another host, and about the way to it.
struct PeerLook {
  std::string address;      // as text
  int route_error = 0;      // errno: the kernel has no way to it
  std::string source;       // our address on the way
  std::string no_wire;      // why the agent has no UDP port 4791; empty: it has
  bool has_link = false;    // our address is one of a link
  std::string link;         // its name
  uint32_t path_mtu = 0;    // in bytes, of the link
  bool is_up = true;        // the link
  bool is_refused = false;  // the link accepts no packets from the host

  PeerKind kind = PeerKind::kNone;
  mad::AgentInfo info{};  // of kVerbena
  Duration round_trip{};
  int udp_error = 0;                 // errno, of a datagram to the port: ECONNREFUSED, EHOSTUNREACH, ...
  std::optional<bool> echoes{};      // whether it answers ICMP echoes; nothing: this user may not ask
  std::optional<uint32_t> widest{};  // the largest path MTU whose packets come back; 0: not even 256
};

// A host by name or address. Nothing: no such name.
std::optional<sockaddr_storage> find_peer(const std::string& name);

// Asks the host, by the link that leads to it; takes some seconds where it does not answer.
PeerLook look_at(const sockaddr_storage& peer, const control::AgentStatus& agent);

// Pure: what of it is amiss, and what to do.
void report_peer(const PeerLook& look, Findings& findings);

}  // namespace verbena::commands::doctor
