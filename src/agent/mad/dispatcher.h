// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <sys/types.h>

#include "agent/agent_host.h"
#include "agent/cm/service.h"
#include "agent/event_loop.h"
#include "agent/mad/agents.h"
#include "agent/mad/discovery.h"
#include "agent/mad/long_messages.h"
#include "agent/sessions/client_sockets.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/slot_table.h"
#include "agent/status/counter_publisher.h"
#include "base/bytes.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/protocol/mad_messages.h"
#include "control/protocol/messages.h"
#include "management/cm/events.h"
#include "management/cm/messages.h"
#include "management/mad/mad.h"

namespace verbena::agent {

class MadDispatcher;

// A port of a link that a program has opened for management datagrams (a MAD port, as with ib_umad). Owns the
// agent's end of the socket over which the program sends and receives them. Trusts no input. For the agent's
// thread.
class OpenPort {
 public:
  // `number` is the owner's number for the port. `takes_files`: the program supports messages of several
  // datagrams, which come in files. `share` is the quota share in which the port counts until its socket is
  // closed. When the program has closed its end or sent invalid input, the port calls owner.close() once,
  // from the event loop.
  OpenPort(MadDispatcher& owner, uint64_t number, EventLoop& loop, ClientSockets& sockets, uid_t user,
           uint32_t device_index, UniqueFd socket, bool takes_files, QuotaShare share);
  ~OpenPort();

  uid_t user() const { return user_; }
  uint32_t device_index() const { return device_index_; }
  // Reads again after MadDispatcher::has_room() has returned false.
  void resume();
  // Makes the port call owner.on_timer() at `deadline` or earlier, in a turn of its user.
  void arm(TimePoint deadline) { timer_.arm(deadline); }
  // Handles a message after its file was read. Then lets the event loop read the next message. `message` is
  // empty if the file was invalid: then the port ends.
  void take_whole(const protocol::UserMad& header, ConstBytes message);
  // Sends a datagram, or a message of several datagrams, to the program. The message is lost if the program's
  // socket is full, as in the kernel. It is also lost while SlowUsers makes the program's user pause. A
  // message that needs a file is also lost if the user's programs hold too many files, or the program does
  // not support files.
  void deliver(protocol::UserMad header, ConstBytes mad);

 private:
  // Receives one datagram. Returns false if there is none now, the owner has no room, or the port has ended.
  bool on_readable();
  // Passes a received message to the owner. If the message has a file, ForeignCloser first reads the file on
  // a thread for the program's user. Returns false if the message is invalid.
  bool take(ConstBytes message, ClientFile file);
  Result<void> send_with_file(ConstBytes header_and_first, ConstBytes rest);
  void end();

  MadDispatcher& owner_;
  const uint64_t number_;
  EventLoop& loop_;
  ClientSockets& sockets_;
  const uid_t user_;
  const uint32_t device_index_;
  ClientSocket socket_;
  DeadlineTimer timer_;
  const bool takes_files_;
  bool paused_ = false;
  uint64_t ticket_ = 0;   // of the wait until a message's file may be received; 0: none
  QuotaShare read_file_;  // counts the memory of a message whose file is being read; null: none
  bool ended_ = false;
};

// Dispatches management datagrams of all classes except communication management: those that programs send,
// and those that arrive at QP1. A datagram goes to one of three receivers. The link's simulated subnet
// answers at once. Another host gets the datagram at its QP1. A local program gets a request that it has
// registered for, or an answer that it awaits. Handles timeouts and retries of requests, as the kernel does
// for its users. For the agent's thread.
class MadDispatcher : private LongMessages::Host {
 public:
  // Returns the quota of open ports for an agent that may open `descriptors`: a 32nd of them, at most 1,024.
  // Each port takes one descriptor.
  static constexpr Quota::Size room_with(size_t descriptors) {
    return Quota::Size::of(std::min<size_t>(1024, descriptors / 32));
  }
  // `own`: the agent's own user. `host`: this host's name, which describes its adapters in the subnet.
  // REQUIRES: the references outlive this object
  MadDispatcher(EventLoop& loop, ClientSockets& sockets, uid_t own, std::string host, CmService& cm,
                CounterPublisher& counters, AgentHost& agent);

  // Updates the subnets. Closes the ports of removed links.
  void links_changed(const std::vector<control::Link>& links);
  LinkFabrics& fabrics() { return fabrics_; }
  size_t open_ports() const { return ports_.size(); }

  // Carry out clients' requests about ports and MAD agents. control/protocol/mad_messages.h describes them
  // and their errors. Also EMFILE if the user has too many ports open.
  RequestResult<protocol::MadPortReply> get_port(const Lessee& client,
                                                 const protocol::DeviceRequest& request);
  RequestResult<> open_port(const Lessee& client, const protocol::DeviceRequest& request);
  RequestResult<protocol::MadRegisterReply> add_agent(const Lessee& client,
                                                      const protocol::MadRegisterRequest& request);
  RequestResult<> remove_agent(const Lessee& client, const protocol::MadRegisterRequest& request);

  // Handles a datagram that has arrived at QP1. Returns false if the datagram is invalid or has no receiver,
  // and the caller may answer with an error. Returns true for an RMPP segment even without a receiver: the
  // segment's sender would take an error for a segment of the answer.
  bool on_mad(ConstBytes bytes, const cm::Arrival& arrival);
  // Records the sender of a datagram as a neighbour. Called for datagrams of communication management.
  void heard(const cm::Arrival& arrival);

  // ---- for OpenPort
  // Handles a datagram that a program has sent, or a whole message of several datagrams. Does not destroy the
  // port.
  void on_datagram(uint64_t port, const protocol::UserMad& header, ConstBytes message);
  // Counts the memory of a message before its file is read.
  QuotaShare reserve(uid_t user, size_t bytes) { return long_.reserve(user, bytes); }
  // Calls OpenPort::take_whole(), unless the port was closed meanwhile. Then resumes all ports.
  void on_file(uint64_t port, const protocol::UserMad& header, ConstBytes message);
  // Returns whether the port may read another datagram now. If not, the port is resumed later.
  bool has_room(uint64_t port);
  // Repeats or gives up a request whose timeout has expired. Resumes the port.
  void on_timer(uint64_t port);
  // Destroys the port with its MAD agents, waiting requests and unsent messages.
  void close(uint64_t port);

 private:
  // LongMessages::Host
  void send_segment(const LongMessages::Sending& sending, const mad::Mad& segment) override;
  void reply(uint32_t device_index, const mad::Mad& mad, const Correspondent& to) override;
  void abort(uint32_t transaction, const roce::Address& to, const mad::Mad& mad) override;
  void on_sent(const LongMessages::Sending& sending, const mad::Mad& first, bool arrived) override;
  void resume_all() override;

  LinkFabric* fabric_with(const roce::Address& address, uint32_t interface_index);
  uint16_t lid_of(LinkFabric& fabric, const roce::Path& arrival);
  OpenPort* port_of(uid_t user, uint64_t port);

  void send_single(uint64_t port, const protocol::UserMad& header, const mad::Mad& mad,
                   const std::optional<Correspondent>& to);
  void send_long(uint64_t port, const protocol::UserMad& header, const mad::Mad& first, ConstBytes message,
                 const std::optional<Correspondent>& to);
  bool wait_for_answer(uint64_t port, const protocol::UserMad& header, const mad::Mad& mad,
                       const std::optional<Correspondent>& to, uint32_t retries);
  void give_back(uint64_t port, const protocol::UserMad& header, const mad::Mad& mad);
  void dispatch(LinkFabric& fabric, const mad::Mad& mad, uint16_t lid, const Correspondent& to);
  std::optional<Correspondent> destination_of(LinkFabric& fabric, const protocol::UserMad& header);
  void ask_administration(LinkFabric& fabric, const mad::Mad& request);
  void ask_switch(LinkFabric& fabric, const mad::Mad& request);
  // Handles a datagram for this link from any sender. Returns false for a request without a receiver.
  bool take(LinkFabric& fabric, const mad::Mad& mad, const Correspondent& from);
  // Handles an RMPP segment. Returns true if the segment was handled here. Returns nullopt if it was not,
  // because it has no receiver or its receiver reassembles messages itself. The caller then handles it like a
  // datagram that is no segment.
  std::optional<bool> take_segment(LinkFabric& fabric, const mad::Mad& mad, const Correspondent& from);
  // Handles a request for this link. Returns false if the request has no receiver.
  bool take_request(LinkFabric& fabric, const mad::Mad& request, const Correspondent& from);
  void answer(LinkFabric& fabric, const mad::Mad& mad, const Correspondent& to);
  // Delivers an answer to the program that awaits it, or an RMPP segment to a program that reassembles its
  // messages itself. Drops all other answers.
  void take_answer(uint32_t device_index, ConstBytes mad, const Correspondent& from);
  void deliver(uint64_t port, uint32_t agent, ConstBytes message, const Correspondent& from);
  // Sends to QP1 of another host. A datagram that cannot be sent is lost.
  void send(const mad::Mad& mad, const Correspondent& to);

  EventLoop& loop_;
  ClientSockets& sockets_;
  CmService& cm_;
  CounterPublisher& counters_;
  AgentHost& agent_;
  const std::shared_ptr<Quota> quota_;  // counts ports until their sockets are closed
  LinkFabrics fabrics_;
  Registrations registrations_;
  WaitingRequests waiting_;
  LongMessages long_;
  std::map<uint64_t, std::unique_ptr<OpenPort>> ports_;
};

}  // namespace verbena::agent
