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

// A slot lent by the agent: the shard's receive socket and its share of the QPN space.
struct Slot {
  uint32_t index = 0;
  UniqueFd socket;             // bound to UDP 4791, steered by slot; empty when there is no wire
  UniqueFd handed_over;        // or where the agent hands packets over, of which one kind there is
  std::string no_wire_reason;  // why there is none, a sentence for the user: "UDP port 4791 is taken by ..."
  UniqueFd status_page;        // a memfd of sizeof(StatusPage)
};

// What a process with devices asks of the agent: links, slots, multicast groups, XRC domains, channels to
// other slots.
//
// Thread-safe: calls are serialized inside. Calls block for as long as the agent takes while its process
// lives; they answer ECONNREFUSED when there is no agent and none can be started. When
// the agent died, a call starts or finds another and tells it of the slots this process holds. Never called
// on the data path.
class Client {
 public:
  // With an agent that has been reached.
  static Result<std::unique_ptr<Client>> connect(const ConnectOptions& options = {});
  static Result<std::unique_ptr<Client>> connect(std::unique_ptr<AgentDialer> dialer);

  Result<std::vector<Link>> links();
  // ENODEV: no such link; EOPNOTSUPP: the agent is of before there were any.
  Result<DeviceCounters> device_counters(uint32_t device_index);
  Result<Slot> take_slot();
  Result<void> return_slot(uint32_t index);

  // A socket for the packets of a multicast group on a link: see adapter/net/udp/multicast_socket.h. The
  // agent keeps no copy; we are a member for as long as we hold it. ENODEV: no such link; ENETDOWN: there is
  // no wire.
  Result<UniqueFd> join_group(uint32_t device_index, const roce::Address& group);

  // Joins the XRC domain of a file on a link, for the targets and queues of a slot of ours; `domain` is what
  // we call it. A copy of the descriptor is kept until it is closed, to tell the next agent. As the kernel:
  // EAGAIN when there is none and not `create`, EINVAL when there is one and `exclusive`. EOPNOTSUPP: the
  // agent knows nothing of them.
  struct DomainFile {
    int fd = -1;
    uint32_t device_index = 0;
    bool create = false;
    bool exclusive = false;
  };
  Result<void> open_domain(uint64_t domain, uint32_t slot, const DomainFile& file);
  void close_domain(uint64_t domain);
  // Asks for a link to the process at `slot`, which is to have the domain open. Never blocks; next_peers()
  // has the answer, unless the agent ends before.
  void ask_for_peer(uint64_t domain, uint32_t slot);

  // Asks for a channel from a slot of ours to another, whatever process has that one. Never blocks;
  // next_channels() has the answer, unless the agent ends before: then the question is lost, and the asker
  // asks again after a while, as it does after EAGAIN. Errors, to which no answer comes: EOPNOTSUPP: the
  // agent is of a version without channels; ENOTCONN: there is none now; EAGAIN: it is behind.
  Result<void> ask_for_channel(uint32_t own_slot, uint32_t peer_slot);

  // Readable when next_links(), next_peers(), next_channels(), next_captures() or next_trace_details() has
  // something. Its meaning and its number never change (an epoll set may keep it).
  int event_fd() const { return session_.event_fd(); }
  // The newest link table, if it changed since last asked. Never blocks. Also notices the agent's death and,
  // without blocking longer than a connect, reaches the restarted one.
  std::optional<std::vector<Link>> next_links();
  // What the agent has said of other processes until the last next_links().
  std::vector<DomainPeer> next_peers() { return news_.take_peers(); }
  // What it has said of channels until then: those that we asked for, and those that others did.
  std::vector<SlotChannel> next_channels() { return news_.take_channels(); }
  // What it has said of captures until then. They come ahead of the channels that were told of after them:
  // ask for channels first, and do what is said of captures before them, and nothing goes by a new channel
  // unseen.
  std::vector<SlotCapture> next_captures() { return news_.take_captures(); }
  // Whether each packet is to be traced, if the agent has said so since last asked.
  std::optional<bool> next_trace_details() { return news_.take_trace_details(); }

  // The agent's process (0: unknown, or no agent), and a copy of the end of its takeover state
  // (agent/takeover/takeover_state.h), if the agent has given it to us.
  struct VaultEnd {
    pid_t agent = 0;
    UniqueFd end;
  };
  VaultEnd vault();

  // In a child after fork(): drops descriptors without telling the agent anything.
  void abandon();

 private:
  explicit Client(std::unique_ptr<AgentDialer> dialer);
  void say_what_is_owed();

  HeldSlots slots_;
  OpenDomains domains_;
  AgentNews news_;
  AgentSession session_;  // of those three
};

}  // namespace verbena::control
