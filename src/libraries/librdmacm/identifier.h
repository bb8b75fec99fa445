// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <rdma/rdma_cma.h>

#include "base/result.h"
#include "control/protocol/connection_messages.h"
#include "libraries/librdmacm/channel.h"
#include "libraries/librdmacm/devices.h"

namespace verbena::rdmacm {

class Process;

// What an identifier is in the middle of. The agent has the state machine that counts; this is what has to be
// known to go on with another agent, and to tell which events still mean something.
enum class State : uint8_t {
  kIdle,
  kBound,
  kResolvingAddress,
  kAddressResolved,
  kResolvingRoute,
  kResolved,
  kConnecting,  // the REQ or SIDR_REQ is under way
  kResponded,   // the REP is here, and the application has its QP in its own hands
  kRequested,   // passive: neither accepted nor rejected yet
  kAccepting,   // passive: the REP is under way
  kConnected,
  kDisconnecting,  // we have said so
  kFailed,         // CONNECT_ERROR was told: how the peer ends it is no news any more
  kOver,           // disconnected, refused, unreachable
  kListening,
  kLost,  // the agent that knew it is dead, and none can have it back
};

// A multicast group that an identifier has joined, or is joining. Its member functions' lock is the
// identifier's.
struct Membership {
  uint32_t number;
  void* context;
  uint32_t join_flags;
  sockaddr_storage address;
  ibv_gid group{};
  uint16_t lid = 0;
  bool joined = false;
  uint64_t delivered = 0, acknowledged = 0;
};

// What the application knows as rdma_cm_id, and what belongs to it.
//
// The application may call rdma_* for one identifier from several threads as far as librdmacm allows it: the
// fields above `mutex` are written by the calls themselves, those below by the monitor thread too.
class Identifier : public rdma_cm_id {
 public:
  Identifier(Process& process_of, std::shared_ptr<Channel> events, void* context_of, rdma_port_space space,
             ibv_qp_type type);
  ~Identifier();
  Identifier(const Identifier&) = delete;
  Identifier& operator=(const Identifier&) = delete;

  static Identifier& of(rdma_cm_id* id) { return *static_cast<Identifier*>(id); }

  // Whether a pointer of the program's is that of an identifier, of this process or its parent's before
  // fork(). Looks at no memory of it.
  static bool is_one(const rdma_cm_id* id);

  bool is_datagram() const { return qp_type == IBV_QPT_UD; }

  // Its number with the agent of `generation`, as a key of the table of identifiers: the program's own
  // numbers hold for every agent.
  static uint64_t key(uint32_t number, uint32_t generation) {
    const bool agents = (number & protocol::kCmAgentsNumber) != 0;
    return (agents ? static_cast<uint64_t>(generation) << 32 : 0) | number;
  }

  // The events of rdma_get_cm_event(3) and rdma_ack_cm_event(3). Destruction waits until as many are
  // acknowledged as were delivered; where that takes long, the log says that `call` waits.
  // False: the membership that the event is about has ended.
  bool count_delivery(const protocol::CmEvent& message);
  void acknowledge(uint32_t membership);
  void wait_until_acknowledged(const char* call);
  // Whether all that the agent of `generation` has `sent` has been delivered.
  bool has_all_events(uint32_t sent, uint32_t generation);

  // Whether the restoration with the agent of `generation` was the last to tell it something.
  bool was_told_by(uint32_t generation);

  State current_state();
  void set_state(State state);

  Process& process;
  std::shared_ptr<Channel> events;
  bool synchronous = false;  // the channel is its own: calls wait for their events

  std::shared_ptr<Device> device;       // what `verbs` and the default `pd` are of
  std::vector<std::byte> connect_data;  // of rdma_create_ep(3): the REQ's private data begins with it
  std::optional<ibv_qp_init_attr> request_attributes;  // rdma_create_ep(3): for the QPs of its requests
  // The receive queues that were made before an XRC SRQ brought one of its own.
  std::vector<std::pair<ibv_comp_channel*, ibv_cq*>> superseded_queues;
  protocol::ConnectionParameters own{};    // what we have said last, in the REQ or the REP
  protocol::ConnectionParameters peers{};  // what the peer has
  ibv_ece local_ece{};                     // of the QP, or rdma_set_local_ece(3)
  bool resolving_information = false;
  rdma_addrinfo* information = nullptr;

  std::mutex mutex;
  std::condition_variable acknowledged_one;
  uint32_t number = 0;
  uint32_t numbered_by = 0;    // the generation of the agent whose number that is; 0: our own, good for all
  std::vector<uint64_t> keys;  // by which events may name it
  State state = State::kIdle;
  uint32_t backlog = 0;
  std::optional<uint8_t> type_of_service, ack_timeout;
  std::optional<bool> reuse_address, own_family_only;
  protocol::CmRoute path{};
  protocol::CmConnection connection{};
  std::list<Membership> memberships;
  uint32_t told_by = 0;  // the generation of the restoration that has told it something last
  uint64_t delivered = 0, acknowledged = 0;
  uint32_t agents_events = 0;      // of the delivered, those from the agent
  uint32_t agents_generation = 0;  // of that generation
};

}  // namespace verbena::rdmacm
