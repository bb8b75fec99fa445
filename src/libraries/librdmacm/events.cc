// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/events.h"

#include <cstdlib>
#include <cstring>

#include "base/format.h"
#include "base/probes.h"
#include "libraries/librdmacm/addresses.h"
#include "libraries/librdmacm/calls.h"
#include "management/cm/event_names.h"

namespace verbena::rdmacm {
namespace {

using protocol::CmEvent;

// Whether the event came from a dead agent and is useless without it, because the successor does not know its
// subject. A restoration has informed the identifier (Restoration). The peer of a request sends its REQ
// again.
bool died_with_its_agent(const CmEvent& message, const Identifier& identifier) {
  if ((message.flags & protocol::kCmFromProgram) != 0) return false;
  if (message.generation == identifier.process.agent.generation()) return false;
  switch (message.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      return true;
    default:
      return false;
  }
}

bool is_news(const CmEvent& message, Identifier& identifier) {
  if (died_with_its_agent(message, identifier)) return false;
  const State state = identifier.current_state();
  // Like the kernel, suppresses events of a request until it is accepted. Accepting it will fail.
  if (state == State::kRequested && message.listener == 0) return false;
  const bool told =
      (message.flags & protocol::kCmFromProgram) != 0 && message.type <= RDMA_CM_EVENT_TIMEWAIT_EXIT;
  if (!told) return true;
  // If two agents died one after the other, only the second agent's death is reported.
  return identifier.was_told_by(message.generation) &&
         still_concerns(state, static_cast<rdma_cm_event_type>(message.type));
}

// The time that rdma_get_cm_event() waits on a channel that was destroyed just before. A program may destroy
// its channel at its end while one of its threads is about to wait there again, as rping does. A thread that
// waits already keeps waiting until the process ends. A thread that comes a moment late must not report a
// failure.
constexpr Duration kEndOfProcess = std::chrono::milliseconds(500);

}  // namespace

Result<Event*> next_event(Channel& channel) {
  auto event = std::make_unique<Event>();
  for (;;) {
    const auto message = channel.next();
    if (!message) return fail(message.error().code);
    Process& process_of = Process::current();
    Identifier* identifier = process_of.identifiers.deliver(*message);
    if (identifier == nullptr) {
      abandon_request(process_of, *message);
      continue;
    }
    *event = Event();
    event->owner = identifier;
    event->membership = message->multicast;
    event->id = identifier;
    std::memcpy(&event->event, &message->type, sizeof event->event);  // the type may be newer than our header
    event->status = message->status;
    if (is_news(*message, *identifier) && process(*event, *message, *identifier)) return event.release();
    identifier->acknowledge(message->multicast);
  }
}

void acknowledge(Event& event) {
  const std::unique_ptr<Event> done(&event);
  event.owner->acknowledge(event.membership);
}

int complete(Identifier& identifier) {
  if (!identifier.synchronous) return 0;
  if (identifier.event != nullptr) {
    acknowledge(Event::of(identifier.event));
    identifier.event = nullptr;
  }
  const auto event = next_event(*identifier.events);
  if (!event) return event.error().code;
  identifier.event = *event;
  const int status = identifier.event->status;
  if (status == 0) return 0;
  const int code = identifier.event->event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED : std::abs(status);
  if (log_level() < LogLevel::kError) return code;
  return because(code, "{}", failure_words(Event::of(identifier.event)));
}

namespace {

// Descriptions of the states, in their order. Each begins with the state's name in the kernel (enum
// rdma_cm_state), which man pages and bug reports use.
constexpr std::string_view kStateNames[] = {
    "IDLE: not bound, nothing resolved",
    "ADDR_BOUND: bound, nothing resolved",
    "ADDR_QUERY: the address is being resolved",
    "ADDR_RESOLVED: it has no route yet",
    "ROUTE_QUERY: the route is being resolved",
    "ROUTE_RESOLVED: not connected yet",
    "CONNECT: the peer has not answered yet",
    "CONNECT: the peer has answered",
    "CONNECT: a request, not accepted yet",
    "CONNECT: accepted",
    "CONNECT: connected",
    "DISCONNECT: its connection has ended, or was refused",
    "DISCONNECT: its connection has ended, or was refused",
    "DISCONNECT: its connection has ended, or was refused",
    "LISTEN",
    "lost with its agent",
};
static_assert(std::size(kStateNames) == static_cast<size_t>(State::kLost) + 1);

struct Need {
  std::string_view call;
  std::string_view words;
};
constexpr Need kNeeds[] = {
    {"rdma_bind_addr", "an identifier is bound once, before all else"},
    {"rdma_resolve_addr", "an identifier resolves one address: create another for another peer"},
    {"rdma_resolve_route", "first rdma_resolve_addr(), until RDMA_CM_EVENT_ADDR_RESOLVED"},
    {"rdma_listen", "listen with an identifier that is new or bound, and once"},
    {"rdma_connect", "first rdma_resolve_route(), until RDMA_CM_EVENT_ROUTE_RESOLVED"},
    {"rdma_accept", "accept the id of an RDMA_CM_EVENT_CONNECT_REQUEST, and once"},
    {"rdma_reject", "reject the id of an RDMA_CM_EVENT_CONNECT_REQUEST, and before rdma_accept()"},
    {"rdma_reject_ece", "reject the id of an RDMA_CM_EVENT_CONNECT_REQUEST, and before rdma_accept()"},
    {"rdma_establish", "first RDMA_CM_EVENT_CONNECT_RESPONSE, of an identifier without a queue pair"},
    {"rdma_notify", "first rdma_accept()"},
    {"rdma_disconnect", "first rdma_connect() or rdma_accept()"},
    {"rdma_join_multicast", "first rdma_bind_addr() or rdma_resolve_addr()"},
    {"rdma_join_multicast_ex", "first rdma_bind_addr() or rdma_resolve_addr()"},
};

std::string addresses_of(const Identifier& identifier) {
  const std::string own = text_of(identifier.route.addr.src_storage);
  const std::string peer = text_of(identifier.route.addr.dst_storage);
  if (own.empty() && peer.empty()) return {};
  return verbena::format(" ({}{}{})", own, peer.empty() ? "" : own.empty() ? "to " : " to ", peer);
}

}  // namespace

void explain_failure(Identifier& identifier, const char* call, int code) noexcept try {
  if (code == 0 || log_level() < LogLevel::kError) return;
  if (reason_of(code) == protocol::kCmWrongState) {
    const auto need = std::ranges::find(kNeeds, std::string_view(call), &Need::call);
    const bool is_known = need != std::end(kNeeds);
    because(code, "it is in state {}{}{}", kStateNames[static_cast<size_t>(identifier.current_state())],
            is_known ? "; " : "", is_known ? need->words : "");
  }
  concerning(code, "rdma_cm_id {}{}", verbena::ptr(static_cast<rdma_cm_id*>(&identifier)),
             addresses_of(identifier));
} catch (const std::bad_alloc&) {  // the log has less to say
}

namespace {

std::string_view cause_of(const rdma_cm_event& event) {
  const std::string_view cause = cm::cause_of(event.event, event.status);
  return cause.empty() && event.status < 0 ? reason_of(-event.status) : cause;
}

// Returns the number of the event's type, which older headers have no enumerator for (UBSan would object).
int number_of(const rdma_cm_event& event) {
  int number;
  std::memcpy(&number, &event.event, sizeof number);
  return number;
}

}  // namespace

void say_failure(const Event& event) noexcept {
  if (log_level() >= LogLevel::kError && cm::is_failure(event.event)) log_error("{}", failure_words(event));
}

std::string failure_words(const Event& event) noexcept try {
  const std::string peer = event.id != nullptr ? text_of(event.id->route.addr.dst_storage) : std::string();
  const std::string_view cause = cause_of(event);
  return verbena::format("{}{}{}, status {}{}{}", rdma_event_str(event.event), peer.empty() ? "" : " for ",
                         peer, cm::status_text(event.event, event.status), cause.empty() ? "" : ": ", cause);
} catch (const std::bad_alloc&) {
  return {};
}

}  // namespace verbena::rdmacm

VERBENA_ABI int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  using namespace verbena::rdmacm;
  return answer([&] {
    if (channel == nullptr || event == nullptr) return because(EINVAL, "channel or event is null");
    // Keeps the channel alive during the wait: another thread may destroy it.
    IdentifierTable& identifiers = Process::current().identifiers;
    const auto found = identifiers.find(channel);
    const auto next = found ? next_event(**found) : verbena::Result<Event*>(tl::unexpected(found.error()));
    if (next) {
      *event = *next;
      VERBENA_PROBE(cm_event, number_of(**event), (*event)->status, (*event)->id);
      say_failure(**next);
    }
    if (error_of(next) == EBADF && identifiers.was_just_removed(channel)) {
      std::this_thread::sleep_for(kEndOfProcess);
    }
    return error_of(next);
  });
}

VERBENA_ABI int rdma_ack_cm_event(rdma_cm_event* event) {
  using namespace verbena::rdmacm;
  return answer([&] {
    if (event == nullptr) return because(EINVAL, "event is null");
    acknowledge(Event::of(event));
    return 0;
  });
}

static_assert(verbena::cm::kEventNames == verbena::rdmacm::kAddressInformationError + 1);

VERBENA_ABI const char* rdma_event_str(rdma_cm_event_type event) {
  uint32_t type;  // may be newer than the enumeration in our header
  std::memcpy(&type, &event, sizeof type);
  return verbena::cm::event_name(type);
}
