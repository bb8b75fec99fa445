// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/own_fd.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/client/agent_connection.h"
#include "control/client/agent_session.h"
#include "control/model/device_counters.h"
#include "control/model/link.h"
#include "control/model/slot_messages.h"
#include "control/protocol/messages.h"
#include "wire/roce/path.h"

namespace verbena::control {

// Records the slots that the agent has leased to this process, and reclaims them from each new agent. Used
// only in turns of the session (AgentSession::Turn).
class HeldSlots final : public Restorer {
 public:
  void add(uint32_t index, const protocol::SlotSecret& secret) { slots_.push_back({index, secret}); }
  void remove(uint32_t index);
  bool contains(uint32_t index) const;

  Result<void> restore(const NewAgent& agent) override;
  bool needs_agent() override { return !slots_.empty(); }

 private:
  struct Held {
    uint32_t index;
    protocol::SlotSecret secret;
  };
  static Result<void> restore(const Held& slot, const NewAgent& agent);

  std::vector<Held> slots_;
};

// An XRC domain that this process has open.
struct OpenDomain {
  uint64_t domain;  // this process's number for the domain
  uint32_t slot;    // the slot with the process's target QPs and shared receive queues of the domain
  uint32_t device_index;
  OwnFd file;

  // Returns a request about the domain with these DomainRequest flags.
  protocol::DomainRequest request(uint32_t flags) const;
};

// Records the XRC domains that the process has open, and opens them again at each new agent. Used only in
// turns of the session (AgentSession::Turn).
class OpenDomains final : public Restorer {
 public:
  void add(OpenDomain domain) { domains_.push_back(std::move(domain)); }
  // Removes a domain and returns the request that closes it, or nullopt if the domain was not open.
  std::optional<protocol::DomainRequest> remove(uint64_t domain);
  // Closes the files in a child process after fork().
  void abandon() { domains_.clear(); }

  Result<void> restore(const NewAgent& agent) override;
  bool needs_agent() override { return !domains_.empty(); }

 private:
  std::vector<OpenDomain> domains_;
};

// Collects messages that the agent sends without a request: new link tables, connections to other processes,
// channels, captures and tracing. The take_…() functions return them. After a restart of the agent, adds the
// new agent's link table, and messages that end the previous agent's captures and traces. Thread-safe.
class AgentNews final : public Restorer, public AgentListener {
 public:
  ~AgentNews();

  // Returns the newest link table, or nullopt if none has come since the last call.
  std::optional<std::vector<Link>> take_links() { return take(links_); }
  // These functions return the messages since the last call, in the order of arrival.
  std::vector<DomainPeer> take_peers() { return take(peers_); }
  std::vector<SlotChannel> take_channels() { return take(channels_); }
  // Returns the messages about captures since the last call, in the order of arrival.
  std::vector<SlotCapture> take_captures() { return take(captures_); }
  // Returns whether the process should trace each packet, or nullopt if the agent has sent nothing about it
  // since the last call.
  std::optional<bool> take_trace_details() { return take(trace_details_); }

  Result<void> restore(const NewAgent& agent) override;
  // Returns true. Without an agent, the process would not learn of changes of links.
  bool needs_agent() override { return true; }
  bool on_event(AgentEvent event) override;
  // Sends a message to the agent. Returns whether it was sent.
  using Send = std::function<bool(const protocol::MessageHeader&)>;
  // Sends the outstanding acknowledgements of events that brought sockets of other processes. Sends none for
  // sockets from a user while eight or more sockets from this user wait to be closed. Sends none at all while
  // 128 sockets wait. The agent sends no further sockets while 64 are unacknowledged (fewer for one user). So
  // other processes cannot use up this process's descriptors.
  void send_owed(const Send& send);

 private:
  struct Owed {
    protocol::MessageHeader acknowledgement;
    uid_t user;  // of the other process
  };

  // Stores an acknowledgement for send_owed(). acknowledge() also tries to send it at once.
  void owe(const AgentEvent& event, protocol::MessageType type, uid_t user);
  void acknowledge(const AgentEvent& event, protocol::MessageType type, uid_t user);
  // Acknowledges the end of a slot's lease, however many sockets are yet to be closed. Otherwise other
  // processes could delay this acknowledgement with sockets that take long to close.
  void acknowledge_at_once(const AgentEvent& event, protocol::MessageType type);
  // Returns what `news` has collected since the last call, and empties it.
  template <class T>
  T take(T& news) {
    const std::lock_guard lock(mutex_);
    return std::exchange(news, T());
  }

  bool knows_an_agent_ = false;  // used only in turns (AgentSession::Turn)
  std::mutex mutex_;
  std::optional<std::vector<Link>> links_;
  std::vector<DomainPeer> peers_;
  std::vector<SlotChannel> channels_;
  std::vector<SlotCapture> captures_;
  std::optional<bool> trace_details_;
  std::vector<Owed> owed_;
};

// A slot leased by the agent: a share of the QP numbers, with a receive socket and a status page.
struct Slot {
  uint32_t index = 0;
  UniqueFd socket;             // bound to UDP port 4791, steered by slot
  UniqueFd is_forwarded;       // instead of `socket`: the socket on which the agent forwards packets
  std::string no_wire_reason;  // text for the user if neither is set: "UDP port 4791 is taken by ..."
  UniqueFd status_page;        // a memfd of sizeof(StatusPage)
};

// Requests the agent's services for a process with devices: links, slots, multicast groups, XRC domains,
// channels to other slots.
//
// Thread-safe: calls wait for each other. A call waits for the agent's reply as long as the agent's process
// runs. It fails with ECONNREFUSED when there is no agent and none can be started. After an agent's end, the
// next call finds or starts another and reports this process's slots and domains to it. Never called on the
// data path.
class Client {
 public:
  // Returns a client that is connected to an agent. Starts an agent if none runs and `options` or `dialer`
  // allow it. Errors: those of AgentSession::Turn::connect().
  static Result<std::unique_ptr<Client>> connect(const ConnectOptions& options = {});
  static Result<std::unique_ptr<Client>> connect(std::unique_ptr<AgentDialer> dialer);

  // Returns the current link table.
  Result<std::vector<Link>> links();
  // Returns the counters of a device: zeros if there is no such device. EOPNOTSUPP if the agent is too old to
  // have counters.
  Result<DeviceCounters> device_counters(uint32_t device_index);
  // Leases a slot. ENOSPC if the agent has no slot left for this user.
  Result<Slot> take_slot();
  // Ends the lease of a slot. EINVAL if this process does not have the slot.
  Result<void> return_slot(uint32_t index);

  // Returns a socket for the packets of a multicast group on a link: see adapter/net/udp/multicast_socket.h.
  // The agent keeps no copy, so the membership ends when the process closes the socket. ENODEV if there is no
  // such link, ENETDOWN if the agent does not have UDP port 4791.
  Result<UniqueFd> join_group(uint32_t device_index, const roce::Address& group);

  // The file and flags of open_domain(), which joins the XRC domain of the file on a link. `slot` has this
  // process's target QPs and shared receive queues of the domain. `domain` is a number that this process
  // chooses. The client keeps a copy of the descriptor until close_domain(), to report it to the next agent.
  // As in the kernel, EAGAIN if the domain does not exist and `create` is false, EINVAL if it exists and
  // `exclusive` is true. EOPNOTSUPP if the agent does not serve XRC domains.
  struct DomainFile {
    int fd = -1;
    uint32_t device_index = 0;
    bool create = false;
    bool exclusive = false;
  };
  Result<void> open_domain(uint64_t domain, uint32_t slot, const DomainFile& file);
  // Leaves the domain. No effect if the domain is not open.
  void close_domain(uint64_t domain);
  // Requests a connection to the process at `slot`, which should have the domain open. Never blocks.
  // next_peers() returns the answer. None comes if the request could not be sent, or if the agent ends before
  // it answers.
  void ask_for_peer(uint64_t domain, uint32_t slot);

  // Requests a channel from a slot of this process to another slot, of any process. Never blocks.
  // next_channels() returns the answer. If the agent ends before the answer, the request is lost, and the
  // caller should repeat it later. EOPNOTSUPP if the agent's version has no channels, ENOTCONN if there is no
  // agent now, EAGAIN if the event socket is full. After an error of this function, no answer follows; after
  // EAGAIN, the caller should repeat the call later.
  Result<void> ask_for_channel(uint32_t own_slot, uint32_t peer_slot);

  // Returns a descriptor that is readable when next_links() has work. The caller then calls all five next_…()
  // methods. The descriptor stays the same, so that it can stay in an epoll set.
  int event_fd() const { return session_.event_fd(); }
  // Returns event_fd() if the application has not closed it by mistake; else -1.
  int checked_event_fd() { return session_.checked_event_fd(); }
  // Reads the events that the agent has sent, without waiting for any. Returns the newest link table, or
  // nullopt if none has come since the last call. The other next_…() methods return what else has come. After
  // an agent's end, connects to the next agent, which may block for up to two seconds.
  std::optional<std::vector<Link>> next_links();
  // Returns the connections to other processes that had come by the last next_links().
  std::vector<DomainPeer> next_peers() { return news_.take_peers(); }
  // Returns the channels that had come by the last next_links(), also those that other processes requested.
  std::vector<SlotChannel> next_channels() { return news_.take_channels(); }
  // Returns the captures that had come by the last next_links(). The agent announces a capture before any
  // channel that is newer than the capture. So take the channels before the captures, but process the
  // captures first: then all traffic of a new channel is captured.
  std::vector<SlotCapture> next_captures() { return news_.take_captures(); }
  // Returns whether the process should trace each packet, or nullopt if the agent has sent nothing about it
  // since the last call.
  std::optional<bool> next_trace_details() { return news_.take_trace_details(); }

  // The result of takeover_state(): the agent's pid, and a copy of the takeover state's descriptor
  // (agent/takeover/takeover_state.h). `agent` is 0 if unknown or not connected. `end` is not open if this
  // process has no takeover state.
  struct TakeoverEnd {
    pid_t agent = 0;
    UniqueFd end;
  };
  TakeoverEnd takeover_state();

  // Closes the descriptors in a child process after fork(), without a message to the agent.
  void abandon();

 private:
  explicit Client(std::unique_ptr<AgentDialer> dialer);
  void say_what_is_owed();

  HeldSlots slots_;
  OpenDomains domains_;
  AgentNews news_;
  AgentSession session_;  // calls the three members above as restorers
};

}  // namespace verbena::control
