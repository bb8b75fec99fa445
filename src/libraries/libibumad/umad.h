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

#include <infiniband/umad.h>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/model/link.h"
#include "control/protocol/mad_messages.h"

namespace verbena::umad {

// Returns the level that the program set with umad_debug(3); at level 0, nothing is written.
int debug_level();

// Writes a line to standard error, in libibumad's format.
[[gnu::format(printf, 2, 3)]] void say(const char* function, const char* format, ...);

// The port number of all our adapters: each has one port.
inline constexpr int kPortNumber = 1;

// Returns all adapters, except those whose names are too long for libibumad's structs. Thread-safe.
Result<std::vector<control::Link>> adapters();

// The result of choose(): an adapter and a port number. The port number is 0 if the program named an adapter
// but no port.
struct Choice {
  control::Link link;
  int port = 0;
};
// Selects an adapter and a port as libibumad does. If the program names an adapter and `port` is nullopt or
// positive, returns both without a check: the port may be down or not exist. Otherwise selects an active
// adapter that has the given name and port, preferably one with an address that is not link-local. A null
// `name` and a port of 0 stand for any. Errors: ENODEV if there is none.
Result<Choice> choose(const char* name, std::optional<int> port);

// struct umad_ca_pair of umad.h since rdma-core 56. Names the devices that serve a port's SMI (subnet
// management) and GSI (all other classes), with the port number on each device. A name is empty if there is
// no such device.
struct CaPair {
  char smi_name[UMAD_CA_NAME_LEN];
  uint32_t smi_port;
  char gsi_name[UMAD_CA_NAME_LEN];
  uint32_t gsi_port;
};
static_assert(sizeof(CaPair) == 48 && offsetof(CaPair, smi_port) == 20 && offsetof(CaPair, gsi_name) == 24 &&
              offsetof(CaPair, gsi_port) == 44);

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

  void add(int socket, OpenedPort port) {
    const std::lock_guard lock(mutex_);
    ports_.insert_or_assign(socket, std::move(port));
  }
  void remove(int socket) {
    const std::lock_guard lock(mutex_);
    ports_.erase(socket);
  }
  // Stores the port's number with its new agent, and forgets the awaited responses.
  void renumber(int socket, uint64_t number);
  void set_lost(int socket, bool is_lost);
  // Returns a copy of the port's data; nullopt if this process does not have the port open.
  std::optional<OpenedPort> find(int socket);
  // takes_long() tells whether the agent accepts messages longer than a MAD on the port. cuts_for() tells
  // whether the MAD agent `agent` leaves RMPP segmentation to the daemon. Both return false for an unknown
  // port or MAD agent.
  bool takes_long(int socket);
  bool cuts_for(int socket, uint32_t agent);

  void add_agent(int socket, uint32_t agent, const protocol::MadRegisterRequest& request);
  void remove_agent(int socket, uint32_t agent);
  // sent() stores a request that expects a response. received() forgets the request when its response or its
  // timeout arrives, and not_sent() forgets it when it could not be sent. sent() and not_sent() need a `mad`
  // with at least the header.
  void sent(int socket, const protocol::UserMad& header, ConstBytes mad);
  void not_sent(int socket, const protocol::UserMad& header, ConstBytes mad);
  void received(int socket, const protocol::UserMad& header, ConstBytes mad);

  std::mutex& mutex() { return mutex_; }

 private:
  template <class Action>
  void with(int socket, Action action);

  std::mutex mutex_;
  std::map<int, OpenedPort> ports_;
};

// Requests to the agent (the daemon) about links, and about ports for management datagrams (MADs).
// Thread-safe. A process has one session with the agent. A child after fork() gets a session of its own; both
// processes keep inherited ports open.
Result<std::vector<control::Link>> links();
Result<protocol::MadPortReply> query_port(uint32_t device_index);
// Opens a port for management datagrams and adds the port to OpenPorts. Returns the port's socket.
Result<UniqueFd> open_port(const control::Link& link);
// Moves a port whose agent has ended to the next agent. Does nothing while the agent lives. The port keeps
// its descriptor, which stays in its epoll sets. Messages that are still unread in the port are lost, so read
// them first. Their requests return to the program as timed out, like unanswered ones. Ports are moved one by
// one, and not all when the program reconnects to an agent (control::Restorer): a port may also end alone,
// with its device, and several processes may have it open. If no agent can be started, waits up to 2 s for an
// agent to appear. After a wait without success, later calls for the port try once and do not wait. Errors:
// EIO if there is no agent or the agent cannot serve the port.
Result<void> revive_port(int socket);
// add_mad_agent() registers a MAD agent of the program with the socket's port, after reviving the port if
// necessary, and returns the MAD agent's number. remove_mad_agent() unregisters a MAD agent, and also
// succeeds if the port's agent has ended: the next agent will not learn of this MAD agent.
Result<uint32_t> add_mad_agent(int socket, protocol::MadRegisterRequest request);
Result<void> remove_mad_agent(int socket, uint32_t agent);

}  // namespace verbena::umad
