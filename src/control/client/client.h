// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "control/client/agent_dialer.h"
#include "control/client/agent_news.h"
#include "control/client/agent_session.h"
#include "control/client/held_slots.h"
#include "control/client/open_domains.h"
#include "control/model/device_counters.h"
#include "control/model/domain_peer.h"
#include "control/model/link.h"
#include "control/model/slot_capture.h"
#include "control/model/slot_channel.h"
#include "wire/roce/path.h"

namespace verbena::control {

// A slot leased by the agent: the shard's receive socket and its share of the QPNs.
struct Slot {
  uint32_t index = 0;
  UniqueFd socket;             // bound to UDP port 4791, steered by slot
  UniqueFd is_forwarded;       // else the socket on which the agent forwards packets
  std::string no_wire_reason;  // if neither is set, for the user: "UDP port 4791 is taken by ..."
  UniqueFd status_page;        // a memfd of sizeof(StatusPage)
};

// The agent's services for a process with devices: links, slots, multicast groups, XRC domains, channels to
// other slots.
//
// Thread-safe: calls are serialized inside. A call blocks for as long as the agent takes while the agent's
// process lives. It fails with ECONNREFUSED when there is no agent and none can be started. After the agent's
// death, a call starts or finds another and reports this process's slots to it. Never called on the data
// path.
class Client {
 public:
  // Returns a client that has reached an agent.
  static Result<std::unique_ptr<Client>> connect(const ConnectOptions& options = {});
  static Result<std::unique_ptr<Client>> connect(std::unique_ptr<AgentDialer> dialer);

  Result<std::vector<Link>> links();
  // ENODEV: no such link; EOPNOTSUPP: the agent is too old to have counters.
  Result<DeviceCounters> device_counters(uint32_t device_index);
  Result<Slot> take_slot();
  Result<void> return_slot(uint32_t index);

  // Returns a socket for the packets of a multicast group on a link: see adapter/net/udp/multicast_socket.h.
  // The agent keeps no copy, so the process is a member for as long as it holds the socket. ENODEV: no such
  // link; ENETDOWN: there is no wire.
  Result<UniqueFd> join_group(uint32_t device_index, const roce::Address& group);

  // Joins the XRC domain of a file on a link, for the targets and queues of this process's slot. `domain` is
  // this process's number for it. The client keeps a copy of the descriptor until close_domain(), to report
  // it to the next agent. Errors as the kernel's: EAGAIN when there is none and not `create`, EINVAL when
  // there is one and `exclusive`. EOPNOTSUPP: the agent knows no XRC domains.
  struct DomainFile {
    int fd = -1;
    uint32_t device_index = 0;
    bool create = false;
    bool exclusive = false;
  };
  Result<void> open_domain(uint64_t domain, uint32_t slot, const DomainFile& file);
  void close_domain(uint64_t domain);
  // Asks for a link to the process at `slot`, which should have the domain open. Never blocks. next_peers()
  // brings the answer, unless the agent ends before.
  void ask_for_peer(uint64_t domain, uint32_t slot);

  // Asks for a channel from a slot of this process to another slot, of any process. Never blocks.
  // next_channels() brings the answer. If the agent ends before, the question is lost and the caller repeats
  // it after a while, as it does after EAGAIN. Errors, after which no answer comes: EOPNOTSUPP: the agent's
  // version has no channels; ENOTCONN: there is no agent now; EAGAIN: it is behind with reading.
  Result<void> ask_for_channel(uint32_t own_slot, uint32_t peer_slot);

  // Readable when next_links(), next_peers(), next_channels(), next_captures() or next_trace_details() has
  // something. Its number and its meaning never change (an epoll set may keep it).
  int event_fd() const { return session_.event_fd(); }
  // The newest link table, if it changed since the last call. Never blocks. It reads the agent's events for
  // the calls below, too. It also notices the agent's death and, without blocking longer than a connect,
  // reaches the restarted one.
  std::optional<std::vector<Link>> next_links();
  // The agent's news of other processes, up to the last next_links().
  std::vector<DomainPeer> next_peers() { return news_.take_peers(); }
  // Its news of channels up to then: those that this process asked for, and those that others did.
  std::vector<SlotChannel> next_channels() { return news_.take_channels(); }
  // Its news of captures up to then. The agent announces a capture before channels that are newer than it. To
  // capture everything that goes by a new channel, call next_channels() first, but process the captures
  // before these channels.
  std::vector<SlotCapture> next_captures() { return news_.take_captures(); }
  // Whether the process should trace each packet, if the agent has said so since the last call.
  std::optional<bool> next_trace_details() { return news_.take_trace_details(); }

  // The agent's process (0: unknown, or no agent), and a copy of the descriptor of its takeover state
  // (agent/takeover/takeover_state.h), if the agent has entrusted it to this process.
  struct TakeoverEnd {
    pid_t agent = 0;
    UniqueFd end;
  };
  TakeoverEnd takeover_state();

  // In a child after fork(): drops descriptors without telling the agent anything.
  void abandon();

 private:
  explicit Client(std::unique_ptr<AgentDialer> dialer);
  void say_what_is_owed();

  HeldSlots slots_;
  OpenDomains domains_;
  AgentNews news_;
  AgentSession session_;  // has these three as restorers
};

}  // namespace verbena::control
