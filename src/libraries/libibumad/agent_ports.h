// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/model/link.h"
#include "control/protocol/mad_messages.h"

namespace verbena::umad {

// The beginning of a request whose response has not arrived. If the agent ends, the program gets this part
// back as timed out.
struct AwaitedAnswer {
  protocol::UserMad header{};
  std::array<std::byte, protocol::kLeastSentMadBytes> mad{};
};

// A port that this process has open, with the data to open the port at the next agent.
struct OpenedPort {
  uint64_t number = 0;  // the agent's number for the port
  std::string device;
  bool takes_long = false;  // the agent accepts messages longer than a MAD
  bool is_lost = false;     // the last attempt to move the port to another agent has failed
  std::map<uint32_t, protocol::MadRegisterRequest> agents;  // MAD agents, by the program's numbers
  // Identifies a request by MAD agent, management class, and low 32 bits of the transaction ID.
  using AnswerKey = std::tuple<uint32_t, uint8_t, uint32_t>;
  std::map<AnswerKey, AwaitedAnswer> awaited;
};

// The open ports of this process, by descriptor. A child after fork() inherits them. Thread-safe; the lock is
// never held during a call that waits.
class OpenPorts {
 public:
  static OpenPorts& current();

  void add(int socket, OpenedPort port);
  void remove(int socket);
  // Stores the port's number with its new agent, and forgets the awaited responses.
  void renumber(int socket, uint64_t number);
  void set_lost(int socket, bool is_lost);
  // Returns a copy of the port's data; nullopt if this process does not have the port open.
  std::optional<OpenedPort> find(int socket);
  // takes_long() tells whether the agent accepts messages longer than a MAD for the port. cuts_for() tells
  // whether this MAD agent leaves RMPP segmentation to the daemon. Both return false for an unknown port or
  // MAD agent.
  bool takes_long(int socket);
  bool cuts_for(int socket, uint32_t agent);

  void add_agent(int socket, uint32_t agent, const protocol::MadRegisterRequest& request);
  void remove_agent(int socket, uint32_t agent);
  // sent() stores a request that expects a response. received() forgets the request when its response or its
  // timeout arrives, not_sent() when sending has failed. sent() and not_sent() need a `mad` with at least the
  // header.
  void sent(int socket, const protocol::UserMad& header, ConstBytes mad);
  void not_sent(int socket, const protocol::UserMad& header, ConstBytes mad);
  void received(int socket, const protocol::UserMad& header, ConstBytes mad);

  std::mutex& mutex() { return mutex_; }

 private:
  std::mutex mutex_;
  std::map<int, OpenedPort> ports_;
};

}  // namespace verbena::umad

// Requests to the agent (the daemon) about links, and about ports for management datagrams (MADs).
// Thread-safe. A process has one session with the agent. A child after fork() gets a session of its own; both
// processes keep inherited ports open.
namespace verbena::umad {

Result<std::vector<control::Link>> links();
Result<protocol::MadPortReply> query_port(uint32_t device_index);
// Opens a port for management datagrams and adds the port to OpenPorts. Returns the port's socket.
Result<UniqueFd> open_port(const control::Link& link);
// Moves a port whose agent has ended to the next agent. No control::Restorer does this for all ports at once:
// a port also ends alone, with its device, and several processes may have it open. The port keeps its
// descriptor, which stays in its epoll sets. Unanswered requests return to the program as timed out. If no
// agent can be started, waits up to 2 s for an agent to appear. After a wait without success, later calls for
// the port try once and do not wait. Errors: EIO if there is no agent or the agent cannot serve the port.
Result<void> revive_port(int socket);
// add_mad_agent() registers a MAD agent of the program with the socket's port, after reviving the port if
// necessary, and returns the MAD agent's number. remove_mad_agent() unregisters a MAD agent, and also
// succeeds if the port's agent has ended: the next agent will not learn of this MAD agent.
Result<uint32_t> add_mad_agent(int socket, protocol::MadRegisterRequest request);
Result<void> remove_mad_agent(int socket, uint32_t agent);

}  // namespace verbena::umad
