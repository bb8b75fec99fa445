// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <list>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/time.h"
#include "libraries/librdmacm/channel.h"
#include "libraries/librdmacm/devices.h"

namespace verbena::rdmacm {

class Process;

// The state of an identifier. The agent's state machine is authoritative; this copy serves to restore the
// identifier at another agent, and to tell which events are still relevant.
enum class State : uint8_t {
  kIdle,
  kBound,
  kResolvingAddress,
  kAddressResolved,
  kResolvingRoute,
  kResolved,
  // From here to kConnected, the CM knows the connection.
  kConnecting,  // a REQ or SIDR_REQ was sent
  kResponded,   // the REP has arrived, and the application manages its own QP
  kRequested,   // passive: neither accepted nor rejected yet
  kAccepting,   // passive: the REP was sent
  kConnected,
  kDisconnecting,  // this side has disconnected
  kFailed,         // CONNECT_ERROR was delivered; further events about the end are suppressed
  kOver,           // disconnected, refused or unreachable
  kListening,
  kLost,  // the agent that knew the identifier is dead, and no other agent can restore it
};

// A multicast group that an identifier has joined or is joining. Guarded by the identifier's mutex.
struct Membership {
  uint32_t number;
  void* context;
  uint32_t join_flags;
  sockaddr_storage address;
  ibv_gid group{};
  uint16_t lid = 0;
  bool joined = false;
  uint64_t delivered = 0, acknowledged = 0;  // numbers of events about the group
};

// The application's rdma_cm_id, and the state behind it.
//
// The application may call rdma_* functions for one identifier from several threads, to the same extent as
// with rdma-core's librdmacm. The members above `mutex` are written only by such calls. The members below
// `mutex` are written by calls and by AgentLink's monitor thread, under the mutex.
class Identifier : public rdma_cm_id {
 public:
  Identifier(Process& process_of, std::shared_ptr<Channel> events, void* context_of, rdma_port_space space,
             ibv_qp_type type);
  ~Identifier();
  Identifier(const Identifier&) = delete;
  Identifier& operator=(const Identifier&) = delete;

  static Identifier& of(rdma_cm_id* id) { return *static_cast<Identifier*>(id); }

  // Returns whether `id` is a live identifier of this process, or of its parent before fork(). Does not read
  // the memory at `id`.
  static bool is_one(const rdma_cm_id* id);

  bool is_datagram() const { return qp_type == IBV_QPT_UD; }

  // Returns the key under which IdentifierTable lists an identifier. `number`: the identifier's number in an
  // event. `generation`: the generation of the agent that sent the event. A number that an agent assigned is
  // valid only with that agent; numbers of this process are valid with every agent.
  static uint64_t key(uint32_t number, uint32_t generation) {
    const bool agents = (number & protocol::kCmAgentsNumber) != 0;
    return (agents ? static_cast<uint64_t>(generation) << 32 : 0) | number;
  }

  // Count delivered events (rdma_get_cm_event(3)) and acknowledged ones (rdma_ack_cm_event(3)).
  // wait_until_acknowledged() returns when the counts match; after 2 s it logs that `call` waits.
  // count_delivery() returns false if the event's multicast membership has ended: then the application must
  // not see the event, and no acknowledgement is expected.
  bool count_delivery(const protocol::CmEvent& message);
  void acknowledge(uint32_t membership);
  void wait_until_acknowledged(const char* call);
  // Returns whether all events about this identifier that the agent of `generation` has sent were delivered.
  // `sent` is their number. Used when the identifier is destroyed.
  bool has_all_events(uint32_t sent, uint32_t generation) {
    const std::lock_guard lock(mutex);
    return sent == 0 || (generation == agents_generation && sent == agents_events);
  }

  // Returns whether `generation` is the agent generation of the last restoration that posted an event to this
  // identifier. (A restoration moves identifiers to a new agent, and posts events about what was lost.)
  bool was_told_by(uint32_t generation) {
    const std::lock_guard lock(mutex);
    return told_by == generation;
  }

  State current_state() {
    const std::lock_guard lock(mutex);
    return state;
  }
  void set_state(State next) {
    const std::lock_guard lock(mutex);
    state = next;
  }
  // Returns the membership of this number, or null. REQUIRES: `mutex` is held
  Membership* find_membership(uint32_t wanted) {
    const auto found = std::ranges::find(memberships, wanted, &Membership::number);
    return found != memberships.end() ? &*found : nullptr;
  }

  Process& process;
  std::shared_ptr<Channel> events;
  bool synchronous = false;  // has its own channel, and calls wait for their events

  std::shared_ptr<Device> device;       // the device of `verbs` and of the default `pd`
  std::vector<std::byte> connect_data;  // of rdma_create_ep(3): the start of the REQ's private data
  std::optional<ibv_qp_init_attr>
      request_attributes;  // of rdma_create_ep(3), for a listener: for the QPs of requests
  // Receive queues that librdmacm created before an XRC SRQ brought its own.
  std::vector<std::pair<ibv_comp_channel*, ibv_cq*>> superseded_queues;
  protocol::ConnectionParameters own{};    // our parameters in the last REQ or REP
  protocol::ConnectionParameters peers{};  // the peer's parameters
  ibv_ece local_ece{};                     // of the QP, or from rdma_set_local_ece(3)
  bool resolving_information = false;
  rdma_addrinfo* information = nullptr;

  // Held while an event is processed, so that rdma_destroy_qp(3) in another thread does not destroy the QP
  // meanwhile. Taken before all other locks.
  std::mutex processing;

  std::mutex mutex;
  std::condition_variable acknowledged_one;
  uint32_t number = 0;
  // Generation of the agent that assigned the number; 0 if this process assigned it, for all agents.
  uint32_t numbered_by = 0;
  std::vector<uint64_t> keys;  // keys of events for this identifier
  State state = State::kIdle;
  uint32_t backlog = 0;
  std::optional<uint8_t> type_of_service, ack_timeout;
  std::optional<bool> reuse_address, own_family_only;
  protocol::CmRoute path{};
  protocol::CmConnection connection{};
  std::list<Membership> memberships;
  uint32_t told_by = 0;  // agent generation of the last restoration that posted an event
  uint64_t delivered = 0, acknowledged = 0;
  uint32_t agents_events = 0;  // the number of delivered events from the agent of agents_generation
  uint32_t agents_generation = 0;
};

// The identifiers and event channels of a process, by the numbers that events carry. Thread-safe. The table's
// lock is taken before an identifier's mutex. A thread that holds the table's lock sends the agent no
// requests, except those that restore identifiers.
class IdentifierTable {
 public:
  // Assigns numbers after `last_number`.
  explicit IdentifierTable(uint32_t last_number = 0) : last_number_(last_number) {}

  // Returns a number for a new identifier, channel or membership: one that no live identifier or channel has.
  // Numbers wrap around after two billion. A program that opens a connection for each request can reach that.
  uint32_t draw_number() {
    const std::lock_guard lock(mutex_);
    return draw();
  }

  void add(std::shared_ptr<Channel> channel);
  void remove(const Channel& channel);
  // Returns whether this channel was the last one to be removed, within the last 100 ms. In this case
  // rdma_get_cm_event() waits before it fails: a program may destroy its channel at its end, just before
  // another thread waits there.
  bool was_just_removed(const rdma_event_channel* channel);
  std::vector<std::shared_ptr<Channel>> channels();
  // Returns the channel of the application's pointer; EBADF if the channel was destroyed or never existed.
  // The result keeps the channel alive, because programs may read a channel in one thread and destroy it in
  // another.
  Result<std::shared_ptr<Channel>> find(const rdma_event_channel* channel);

  void add(Identifier& identifier);
  // Excludes the identifier from restorations, before the agent is asked to destroy it. Events still find the
  // identifier.
  void begin_removal(const Identifier& identifier) {
    const std::lock_guard lock(mutex_);
    ending_.insert(&identifier);
  }
  // Removes the identifier: events do not find it any more.
  void remove(Identifier& identifier);
  // Replaces a number that the dead agent assigned by a number of this process, so that the next agent can
  // restore the identifier. Events with the old number still find the identifier. REQUIRES: called from the
  // `visit` function of for_each(), which holds the table's lock
  void renumber(Identifier& identifier);

  // Returns the identifier of an event, or its listener for a connection request. Counts the event as
  // delivered, so that the identifier lives until the acknowledgement. Returns null if the identifier was
  // destroyed, or the event's multicast membership has ended.
  Identifier* deliver(const protocol::CmEvent& event);

  bool empty() {
    const std::lock_guard lock(mutex_);
    return identifiers_.empty() && channels_.empty();
  }
  // Calls `visit` for every identifier except those whose removal has begun. No identifier is removed
  // meanwhile.
  void for_each(const std::function<void(Identifier&)>& visit);

 private:
  uint32_t draw();  // REQUIRES: mutex_ is held

  std::mutex mutex_;
  uint32_t last_number_;
  std::unordered_map<const rdma_event_channel*, std::shared_ptr<Channel>> channels_;
  std::unordered_set<uint32_t> channel_numbers_;
  const rdma_event_channel* removed_ = nullptr;  // the channel removed last
  TimePoint removed_at_{};
  std::unordered_map<uint64_t, Identifier*> identifiers_;
  std::unordered_set<const Identifier*> ending_;  // identifiers whose removal has begun
};

}  // namespace verbena::rdmacm
