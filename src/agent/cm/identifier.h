// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "agent/cm/port_space.h"
#include "agent/cm/routes.h"
#include "control/protocol/connection_messages.h"
#include "management/cm/events.h"
#include "management/cm/manager.h"
#include "management/cm/parameters.h"

namespace verbena::agent {

class CmClient;

// The state of an identifier, as in the kernel's enum rdma_cm_state.
enum class CmState : uint8_t {
  kIdle,
  kBound,
  kAddressQuery,
  kAddressResolved,
  kRouteResolved,
  kConnect,  // from the REQ on: being set up, established, or rejected
  kDisconnect,
  kListen,
  kDeviceRemoved,
};
inline constexpr size_t kCmStates = 9;

// The agent's counterpart of the kernel's rdma_cm_id. Belongs to one client.
struct CmIdentifier : PortBinding {
  // A listener's backlog, and the CONNECT_REQUEST events that the application may not have read yet.
  struct Listening {
    uint32_t backlog = 0;
    std::deque<uint64_t> unseen;  // numbers of these events on the channel
  };

  CmClient* client = nullptr;
  uint32_t number = 0;         // set by the program, or by the agent for an incoming request
  uint32_t listed_number = 0;  // unique among all clients, for lists and traces
  uint32_t channel = 0;
  uint16_t port_space = 0;
  uint8_t qp_type = 0;
  CmState state = CmState::kIdle;
  bool holds_port = false;
  bool is_active = false;  // this side sent the REQ
  // True for an incoming request that its program has neither accepted nor rejected. Meanwhile the program
  // gets no further events about the request. If the request ends, the program learns this when it answers
  // the request. The kernel's ucma does the same. The reason: a channel must not be readable for an event
  // that rdma_get_cm_event() would not return.
  bool is_unanswered = false;
  bool family_option_set = false;

  std::optional<uint8_t> type_of_service;
  std::optional<uint8_t> ack_timeout;

  // The device and the path. route.link is empty until the device is known. Do not read route.source and
  // route.destination: PortBinding has the addresses, and route_of() copies them from there for messages. The
  // GIDs in `route` may be read.
  protocol::CmRoute route{};
  bool may_connect = false;  // connect() is allowed in kAddressResolved: a former agent resolved the route

  Neighbours::Ticket resolving = 0;
  uint32_t starting_psn = 0;
  cm::LocalId connection = 0;  // 0: none
  std::unique_ptr<Listening> listening_state;
  uint32_t events_sent = 0;       // events sent on or queued in its channels
  uint32_t port_entry = 0;        // Ledger::Number of the port; 0: none
  uint32_t connection_entry = 0;  // Ledger::Number of the connection; 0: none
  bool is_counted = false;        // in CmTally::identifiers; the next two: in listening, resolving
  bool is_counted_listening = false;
  bool is_counted_resolving = false;
  uint8_t traced_messages = 0;   // messages of its connection in the trace, counted up to 64
  std::vector<uint32_t> groups;  // multicast groups, by the client's numbers

  bool has_device() const { return route.link[0] != '\0'; }
};

// Returns a connection's data in the form of the agent protocol. Events carry this record to the program,
// which restores the connection from it with the next agent. `id`: the connection's identifier.
protocol::CmConnection record_of(const cm::ConnectionInfo& info, const CmIdentifier& id);

// Returns the data with which the connection manager restores a connection. `record` comes from the program
// and is untrusted: numbers are cut to their width. Role, QP type, receive PSN and path MTU come from `id`.
cm::ConnectionInfo agreed_in(const protocol::CmConnection& record, const CmIdentifier& id,
                             const roce::Path& path);

// Returns id.route with the identifier's addresses filled in, as replies and events contain it.
protocol::CmRoute route_of(const CmIdentifier& id);
// Returns an event about the identifier, with route and connection data if known. `type`: RDMA_CM_EVENT_*.
// `status`: rdma_cm_event::status, which is 0, a negative errno value or the reason of a REJ.
protocol::CmEvent event_of(const CmIdentifier& id, const cm::Manager& manager, int type, int status = 0,
                           const protocol::ConnectionParameters* parameters = nullptr);

}  // namespace verbena::agent
