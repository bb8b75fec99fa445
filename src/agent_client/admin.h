// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>
#include <tl/expected.hpp>

#include "agent_client/client.h"
#include "agent_client/device_counters.h"
#include "agent_client/link.h"
#include "protocol/connection_status.h"
#include "protocol/status_page.h"
#include "transport/counters.h"

namespace verbena::agent_client {

// What went wrong with a command: an errno value, and a sentence that tells the user what to do about it.
struct AdminError {
  int code;
  std::string text;
};
template <class T>
using AdminResult = tl::expected<T, AdminError>;

struct LinkStatus {
  Link link;
  std::string wire;  // "up", or "down: why"
  DeviceCounters counters{};
};

// Numbers that a process published about one QP. Nobody vouches for them.
struct QpNumbers {
  uint32_t qpn = 0;
  uint32_t type = 0;   // enum ibv_qp_type
  uint32_t state = 0;  // enum ibv_qp_state
  uint32_t remote_qpn = 0;
  uint32_t device_index = 0;
  std::array<uint64_t, transport::kQpCounterCount> counters{};  // by transport::QpCounter
};

struct SlotStatus {
  uint32_t index = 0;
  pid_t pid = 0;  // 0: in a pid namespace that the agent does not see
  uid_t uid = 0;
  std::string program;
  uint16_t protocol_version = 0;  // that its library and the agent speak; 0: not known
  bool has_wire = false;
  std::array<uint64_t, protocol::kPortNumbers> port{};  // by PortCounter
  std::vector<QpNumbers> qps;                           // those in use
};

struct AgentStatus {
  pid_t pid = 0;
  uid_t uid = 0;
  std::string version;
  uint16_t protocol_version = 1;  // the agent's own
  // Programs whose version of the protocol the agent does not speak: how many came, and the last of them.
  struct Refused {
    uint32_t count = 0;
    pid_t last_pid = 0;
    uint16_t last_version = 0;
  } refused{};
  std::string no_wire_reason;  // empty: UDP port 4791 is ours
  std::vector<LinkStatus> links;
  std::vector<SlotStatus> slots;  // lent ones, by index
  protocol::CmStatus connection_management{};
};

// The administrator's side of the agent protocol, for the command line. Not thread-safe. Every call answers
// within two seconds. Everyone whom the agent serves may ask for status; only the agent's own user and root
// may change links (EPERM).
class Admin {
 public:
  static AdminResult<std::unique_ptr<Admin>> connect(const ConnectOptions& options = {});
  virtual ~Admin() = default;

  // Makes link `name` over `netdev`. An automatic link over it takes the new name instead; EEXIST when the
  // netdev has a link that somebody added, or the name is in use.
  virtual AdminResult<void> add_link(std::string_view name, std::string_view netdev) = 0;
  // A netdev whose link was deleted gets none by itself until one is added to it again.
  virtual AdminResult<void> delete_link(std::string_view name) = 0;
  virtual AdminResult<AgentStatus> status() = 0;
};

}  // namespace verbena::agent_client
