// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/agent_link.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/detached_thread.h"
#include "base/log.h"
#include "base/plain_calls.h"
#include "libraries/librdmacm/addresses.h"

namespace verbena::rdmacm {
namespace {

using protocol::CmEvent;
using protocol::MessageType;
using protocol::PlainReply;

constexpr size_t kMonitorStack = 256 << 10;
constexpr int kPauseWithoutMemoryMs = 10;

// For each state: the state in which an identifier is restored, and the event that it gets, which is news
// only in that state.
constexpr int kNothing = -1;
constexpr uint32_t kNot = ~0u;

struct StateRow {
  State state;
  uint32_t restored;  // CmRestoreRequest::state, or kNot
  int told;           // enum rdma_cm_event_type, or kNothing
};
constexpr StateRow kStateRows[] = {
    {State::kIdle, protocol::kCmIdle, kNothing},
    {State::kBound, protocol::kCmBound, kNothing},
    {State::kResolvingAddress, protocol::kCmIdle, RDMA_CM_EVENT_ADDR_ERROR},
    {State::kAddressResolved, protocol::kCmResolved, kNothing},
    {State::kResolvingRoute, protocol::kCmResolved, RDMA_CM_EVENT_ROUTE_ERROR},
    {State::kResolved, protocol::kCmResolved, kNothing},
    {State::kConnecting, protocol::kCmResolved, RDMA_CM_EVENT_UNREACHABLE},
    {State::kResponded, protocol::kCmResolved, RDMA_CM_EVENT_CONNECT_ERROR},
    // The peer repeats its REQ, which becomes a new request.
    {State::kRequested, kNot, kNothing},
    {State::kAccepting, protocol::kCmConnected, RDMA_CM_EVENT_CONNECT_ERROR},
    {State::kConnected, protocol::kCmConnected, kNothing},
    {State::kDisconnecting, protocol::kCmConnected, kNothing},
    {State::kFailed, protocol::kCmResolved, kNothing},
    {State::kOver, protocol::kCmIdle, kNothing},
    {State::kListening, protocol::kCmListening, kNothing},
    {State::kLost, kNot, kNothing},
};

const StateRow& row_of(State state) {
  return *std::ranges::find(kStateRows, state, &StateRow::state);
}

bool has_connection(State state) {
  return row_of(state).restored == protocol::kCmConnected;
}

}  // namespace

protocol::CmChannelRequest open_request(const Channel& channel, uint32_t generation) {
  protocol::CmChannelRequest request{};
  request.channel = channel.number();
  request.generation = generation;
  return request;
}

protocol::CmCreateRequest create_request(const Identifier& identifier) {
  protocol::CmCreateRequest request{};
  request.id = identifier.number;
  request.channel = identifier.events->number();
  request.port_space = static_cast<uint16_t>(identifier.ps);
  request.qp_type = static_cast<uint8_t>(identifier.qp_type);
  return request;
}

bool still_concerns(State state, rdma_cm_event_type type) {
  if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
    return state == State::kLost;
  }
  return row_of(state).told == type;
}

Result<void> Restoration::run() {
  for (const auto& channel : identifiers_.channels()) {
    const int fd = channel->agents_end();
    call(MessageType::kCmOpenChannel, open_request(*channel, generation_), {&fd, 1});
  }
  identifiers_.for_each([&](Identifier& identifier) { restore(identifier); });
  if (error_ != 0) return fail(error_);
  if (connection_.lost()) return fail(ECONNRESET);
  return {};
}

Restoration::Plan Restoration::plan_for(State state, const Identifier& identifier) {
  const StateRow& row = row_of(state);
  Plan plan{row.restored, row.told};
  // An active datagram identifier has no connection; with a resolved address it can send another SIDR_REQ. A
  // passive one stays as it is: its port is its listener's.
  const bool resolved = identifier.path.destination.family != 0 && identifier.path.link[0] != '\0';
  if (identifier.is_datagram() && has_connection(state) && identifier.connection.is_active != 0) {
    plan.restored = resolved ? protocol::kCmResolved : protocol::kCmIdle;
  }
  if (state == State::kResolvingAddress && identifier.path.source.port != 0) {
    plan.restored = protocol::kCmBound;
  }
  return plan;
}

void Restoration::restore(Identifier& identifier) {
  if (is_over()) return;
  const bool kept = kept_.first == &identifier;
  State state;
  Plan plan;
  {
    const std::lock_guard lock(identifier.mutex);
    state = kept ? kept_.second : identifier.state;
    plan = plan_for(state, identifier);
  }
  if (plan.restored == kNot) {
    if (!kept) identifier.set_state(State::kLost);
    return;
  }
  const bool created = create(identifier, plan);
  if (is_over()) return;
  if (created) repeat(identifier, state);
  if (plan.told != kNothing) {
    tell(identifier, static_cast<rdma_cm_event_type>(plan.told));
  } else if (!created) {  // another process has its address or port
    identifier.set_state(State::kLost);
    tell(identifier, has_connection(state) ? RDMA_CM_EVENT_DISCONNECTED : RDMA_CM_EVENT_DEVICE_REMOVAL);
  }
}

bool Restoration::create(Identifier& identifier, const Plan& plan) {
  if ((identifier.number & protocol::kCmAgentsNumber) != 0) identifiers_.renumber(identifier);
  protocol::CmRestoreRequest request{};
  {
    const std::lock_guard lock(identifier.mutex);
    request.create = create_request(identifier);
    request.state = plan.restored;
    request.backlog = identifier.backlog;
    request.tos = identifier.type_of_service ? *identifier.type_of_service : ~0u;
    request.options = (identifier.reuse_address.value_or(false) ? protocol::kCmReuseAddress : 0) |
                      (identifier.own_family_only.value_or(false) ? protocol::kCmOwnFamilyOnly : 0) |
                      (identifier.own_family_only ? protocol::kCmFamilyOptionSet : 0);
    request.route = identifier.path;
    request.connection = identifier.connection;
  }
  return call<protocol::CmAddressReply>(MessageType::kCmRestoreId, request);
}

// Repeats requests to the new agent: options, multicast memberships, a disconnect in progress.
void Restoration::repeat(Identifier& identifier, State state) {
  std::vector<protocol::CmJoinRequest> joins;
  protocol::CmOptionRequest option{};
  {
    const std::lock_guard lock(identifier.mutex);
    for (const Membership& each : identifier.memberships) {
      protocol::CmJoinRequest join{};
      join.id = identifier.number;
      join.multicast = each.number;
      join.join_flags = each.join_flags;
      join.group = address_of(reinterpret_cast<const sockaddr*>(&each.address));
      joins.push_back(join);
    }
    option.id = identifier.number;
    option.option = RDMA_OPTION_ID_ACK_TIMEOUT;
    option.value = identifier.ack_timeout.value_or(0);
  }
  if (identifier.ack_timeout) call(MessageType::kCmSetOption, option);
  for (const auto& join : joins) call(MessageType::kCmJoin, join);
  if (state != State::kDisconnecting) return;
  protocol::CmIdRequest disconnect{};
  disconnect.id = identifier.number;
  call(MessageType::kCmDisconnect, disconnect);
}

void Restoration::tell(Identifier& identifier, rdma_cm_event_type type) {
  {
    const std::lock_guard lock(identifier.mutex);
    identifier.told_by = generation_;
  }
  CmEvent event{};
  event.magic = CmEvent::kMagic;
  event.type = type;
  event.status = -ECONNRESET;
  event.id = identifier.number;
  event.flags = protocol::kCmFromProgram;
  event.generation = generation_;
  told_.push_back({identifier.events, event});
}

AgentLink::AgentLink(IdentifierTable& identifiers, std::unique_ptr<control::AgentDialer> dialer)
    : identifiers_(identifiers),
      session_(std::move(dialer), {this}, nullptr, {.attend_limit = control::Patience::kAsLongAsItLives}) {}

Result<void> AgentLink::open(const std::shared_ptr<Channel>& channel) {
  Turn turn(session_);
  const int fd = channel->agents_end();
  const auto request = [&]() -> Result<protocol::CmChannelRequest> {
    return open_request(*channel, generation());
  };
  const auto reply = exchange<PlainReply>(turn, MessageType::kCmOpenChannel, request, {&fd, 1});
  if (!reply) return fail(reply.error().code);
  identifiers_.add(channel);
  return {};
}

Result<void> AgentLink::create(Identifier& identifier) {
  Turn turn(session_);
  const auto request = [&]() -> Result<protocol::CmCreateRequest> { return create_request(identifier); };
  const auto reply = exchange<PlainReply>(turn, MessageType::kCmCreateId, request);
  if (!reply) return fail(reply.error().code);
  identifiers_.add(identifier);
  return {};
}

Result<void> AgentLink::restore(const control::NewAgent& agent) {
  Restoration restoration(agent, identifiers_);
  if (calling_ != nullptr) restoration.keep(*calling_, before_call_);
  const auto restored = restoration.run();
  for (const Told& each : restoration.told()) post(*each.channel, each.event);
  if (restored) start_monitor();
  return restored;
}

// Starts the monitor thread, unless one runs and can be woken. Its wake-up descriptor may have been closed by
// the application (base/own_fd.h).
void AgentLink::start_monitor() {
  const std::lock_guard lock(wakeup_mutex_);
  if (monitored_ && wakeup_.is_ours()) return;
  wakeup_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ++monitors_;
  const auto run = [](void* of) -> void* {
    auto* const link = static_cast<AgentLink*>(of);
    uint32_t number;
    {
      const std::lock_guard started(link->wakeup_mutex_);
      number = link->monitors_;
    }
    link->monitor(number);
    return nullptr;
  };
  monitored_ = start_detached_thread(run, this, kMonitorStack);
  // Calls still notice an agent's death. A program that only waits for events does not.
  if (!monitored_) log_error("no thread could be started: the agent's end will not be noticed at once");
}

void AgentLink::wake_monitor() {
  const uint64_t one = 1;
  const std::lock_guard lock(wakeup_mutex_);
  if (wakeup_.is_ours()) [[maybe_unused]]
    const ssize_t written = ::write(wakeup_.get(), &one, sizeof one);
}

void AgentLink::monitor(uint32_t number) {
  ::pthread_setname_np(::pthread_self(), "verbena-rdmacm");
  while (may_watch(number)) {
    try {
      attend_once(number);
    } catch (const std::bad_alloc&) {
      plain_poll(nullptr, 0, kPauseWithoutMemoryMs);  // memory may become available
    }
  }
}

// Waits for one event. If the application has closed a descriptor that the thread waits for, the thread ends,
// and the next call starts another.
void AgentLink::attend_once(uint32_t number) {
  std::vector<pollfd> entries{{wakeup_.get(), POLLIN, 0}, {session_.event_fd(), POLLIN, 0}};
  std::vector<std::shared_ptr<Channel>> full;
  for (auto& channel : identifiers_.channels()) {
    if (!channel->waits_for_room()) continue;
    entries.push_back({channel->agents_end(), POLLOUT, 0});
    full.push_back(std::move(channel));
  }
  plain_poll(entries.data(), entries.size(), -1);
  if (!may_watch(number)) return;
  if ((entries[1].revents & POLLNVAL) != 0) {
    const std::lock_guard lock(wakeup_mutex_);
    wakeup_.reset();
    return;
  }
  if (entries[0].revents != 0) {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = ::read(wakeup_.get(), &count, sizeof count);
  }
  // The agent also reports changes of links, which this thread ignores: libibverbs watches links itself.
  if (entries[1].revents != 0) session_.attend();
  for (const auto& channel : full) channel->flush();
}

}  // namespace verbena::rdmacm
