// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "agent/cm/link_directory.h"
#include "agent/cm/neighbours.h"
#include "agent/cm/port_space.h"
#include "control/protocol/connection_messages.h"
#include "management/cm/events.h"

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
const char* cm_state_name(CmState state);

// The kernel's rdma_cm_id. Belongs to one client.
struct CmIdentifier : PortBinding {
  // The CONNECT_REQUEST events that the application may not have read yet, for the backlog.
  struct Listening {
    uint32_t backlog = 0;
    std::deque<uint64_t> unseen;  // their numbers in the channel
  };

  CmClient* client = nullptr;
  uint32_t number = 0;
  uint32_t listed_number = 0;  // unique in the service
  uint32_t channel = 0;
  uint16_t port_space = 0;
  uint8_t qp_type = 0;
  CmState state = CmState::kIdle;
  bool holds_port = false;
  bool is_active = false;
  // True for a request that its program has neither accepted nor rejected. The program gets no events about
  // it, and finds out when it answers. The kernel's ucma does the same; and a channel must not be readable
  // for an event that rdma_get_cm_event() would not return.
  bool is_unanswered = false;
  bool family_option_set = false;

  std::optional<uint8_t> type_of_service;
  std::optional<uint8_t> ack_timeout;

  // The device and the path, once known: then route.link is not empty. Its addresses are only filled in for
  // messages; `source` and `destination` above count.
  protocol::CmRoute route{};
  bool may_connect = false;  // the route was resolved with a former agent

  Neighbours::Ticket resolving = 0;
  uint32_t starting_psn = 0;
  cm::LocalId connection = 0;  // 0: none
  std::unique_ptr<Listening> listening_state;
  uint32_t events_sent = 0;  // sent or queued in its channels
  uint32_t port_entry = 0;   // in the ledger; 0: none
  uint32_t connection_entry = 0;
  bool is_counted = false;  // in CmTally as an identifier; below: as listening, resolving
  bool is_counted_listening = false;
  bool is_counted_resolving = false;
  uint8_t traced_messages = 0;   // of its connection, up to a limit
  std::vector<uint32_t> groups;  // multicast groups, by the client's numbers

  bool has_device() const { return route.link[0] != '\0'; }
};

}  // namespace verbena::agent
