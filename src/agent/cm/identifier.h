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

// Where an identifier stands; the kernel's enum rdma_cm_state.
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

// What rdma_cm_id is to the kernel. Belongs to one client.
struct CmIdentifier : PortBinding {
  // The CONNECT_REQUESTs that the application may not have seen yet, for the backlog.
  struct Listening {
    uint32_t backlog = 0;
    std::deque<uint64_t> unseen;  // their numbers in the channel
  };

  CmClient* client = nullptr;
  uint32_t number = 0;
  uint32_t listed_number = 0;  // among all that the service has
  uint32_t channel = 0;
  uint16_t port_space = 0;
  uint8_t qp_type = 0;
  CmState state = CmState::kIdle;
  bool holds_port = false;
  bool is_active = false;
  // A request that its program has neither accepted nor rejected: the program hears of no event of it, and
  // finds out when it answers. (The kernel's ucma does so; and a channel must not be readable for an event
  // that rdma_get_cm_event() would not return.)
  bool is_unanswered = false;
  bool family_option_set = false;

  std::optional<uint8_t> type_of_service;
  std::optional<uint8_t> ack_timeout;

  // The device and the path, once known: route.link is not empty then. Its addresses are filled in when it is
  // told of; those above count.
  protocol::CmRoute route{};
  bool may_connect = false;  // its route was resolved with a former agent

  Neighbours::Ticket resolving = 0;
  uint32_t starting_psn = 0;
  cm::LocalId connection = 0;  // 0: none
  std::unique_ptr<Listening> listening_state;
  uint32_t events_sent = 0;  // into its channels' sockets, or waiting to be
  uint32_t port_entry = 0;   // in the ledger; 0: none
  uint32_t connection_entry = 0;
  bool is_counted = false;  // in CmTally, as an identifier, as one that listens, and as one that resolves
  bool is_counted_listening = false;
  bool is_counted_resolving = false;
  uint8_t traced_messages = 0;   // of its connection, up to a limit
  std::vector<uint32_t> groups;  // multicast, by the client's numbers

  bool has_device() const { return route.link[0] != '\0'; }
};

}  // namespace verbena::agent
