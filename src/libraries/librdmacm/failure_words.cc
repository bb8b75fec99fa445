// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/failure_words.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <string>
#include <string_view>

#include "base/failed_call.h"
#include "base/format.h"
#include "libraries/librdmacm/addresses.h"
#include "management/cm/event_names.h"

namespace verbena::rdmacm {

namespace {

// Describes a state, beginning with its name in the kernel (enum rdma_cm_state), which man pages and bug
// reports use.
std::string_view name_of(State state) {
  switch (state) {
    case State::kIdle:
      return "IDLE: not bound, nothing resolved";
    case State::kBound:
      return "ADDR_BOUND: bound, nothing resolved";
    case State::kResolvingAddress:
      return "ADDR_QUERY: the address is being resolved";
    case State::kAddressResolved:
      return "ADDR_RESOLVED: it has no route yet";
    case State::kResolvingRoute:
      return "ROUTE_QUERY: the route is being resolved";
    case State::kResolved:
      return "ROUTE_RESOLVED: not connected yet";
    case State::kConnecting:
      return "CONNECT: the peer has not answered yet";
    case State::kResponded:
      return "CONNECT: the peer has answered";
    case State::kRequested:
      return "CONNECT: a request, not accepted yet";
    case State::kAccepting:
      return "CONNECT: accepted";
    case State::kConnected:
      return "CONNECT: connected";
    case State::kDisconnecting:
    case State::kFailed:
    case State::kOver:
      return "DISCONNECT: its connection has ended, or was refused";
    case State::kListening:
      return "LISTEN";
    case State::kLost:
      break;
  }
  return "lost with its agent";
}

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
    because(code, "it is in state {}{}{}", name_of(identifier.current_state()), is_known ? "; " : "",
            is_known ? need->words : "");
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
