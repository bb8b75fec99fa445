// SPDX-License-Identifier: Apache-2.0
#include "rdmacm/event_words.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <string_view>

#include <fmt/format.h>

#include "base/failed_call.h"
#include "cm/reasons.h"
#include "rdmacm/addresses.h"

namespace verbena::rdmacm {
namespace {

// By event and status: a negative one is an errno value, a positive one of REJECTED a reason of IBTA volume
// 1, 12.6.7.2, of UNREACHABLE a status of 12.11.2. 0: any.
struct Cause {
  rdma_cm_event_type type;
  int status;
  std::string_view words;
};
constexpr Cause kCauses[] = {
    {RDMA_CM_EVENT_ADDR_ERROR, -ENODEV,
     "no link has the address or the network device that the route goes by"},
    {RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT, "no answer to ARP or neighbour discovery: no such host there"},
    {RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, "no answer to ARP or neighbour discovery: no such host there"},
    {RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT,
     "the peer has not answered: does 'verbena status' run there, and does a firewall drop UDP port 4791?"},
    {RDMA_CM_EVENT_UNREACHABLE, static_cast<int>(cm::SidrStatus::kUnsupported),
     "nobody listens on this port there: start the server first, or correct the port"},
    {RDMA_CM_EVENT_UNREACHABLE, static_cast<int>(cm::SidrStatus::kRejected),
     "its program has called rdma_reject(), or ended"},
    {RDMA_CM_EVENT_UNREACHABLE, static_cast<int>(cm::SidrStatus::kNoQp),
     "its program has given it no queue pair"},
    {RDMA_CM_EVENT_CONNECT_ERROR, -ETIMEDOUT,
     "the peer has stopped answering before the connection was made"},
    {RDMA_CM_EVENT_REJECTED, static_cast<int>(cm::RejReason::kInvalidServiceId),
     "nobody listens on this port there: start the server first, or correct the port"},
    {RDMA_CM_EVENT_REJECTED, static_cast<int>(cm::RejReason::kConsumer),
     "its program has called rdma_reject(), or ended"},
    {RDMA_CM_EVENT_REJECTED, static_cast<int>(cm::RejReason::kStaleConnection),
     "it has an older connection with this queue pair number: try again"},
    {RDMA_CM_EVENT_DEVICE_REMOVAL, 0, "its link or network device was removed"},
};

std::string_view cause_of(const rdma_cm_event& event) {
  const auto found = std::ranges::find_if(kCauses, [&](const Cause& cause) {
    return cause.type == event.event && (cause.status == event.status || cause.status == 0);
  });
  if (found != std::end(kCauses)) return found->words;
  return event.status < 0 ? reason_of(-event.status) : std::string_view();
}

std::string status_text(const rdma_cm_event& event) {
  if (event.event == RDMA_CM_EVENT_REJECTED && event.status > 0)
    return fmt::format("{} ({})", event.status, cm::reason_name(static_cast<uint16_t>(event.status)));
  const char* const name = event.status < 0 ? ::strerrorname_np(-event.status) : nullptr;
  return name != nullptr ? fmt::format("-{}", name) : fmt::format("{}", event.status);
}

// Whether the application takes the event for an error.
bool is_failure(const rdma_cm_event& event) {
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return true;
    default:
      return false;
  }
}

}  // namespace

void say_failure(const Event& event) noexcept {
  if (log_level() >= LogLevel::kError && is_failure(event)) log_error("{}", failure_words(event));
}

std::string failure_words(const Event& event) noexcept try {
  const std::string peer = event.id != nullptr ? text_of(event.id->route.addr.dst_storage) : std::string();
  const std::string_view cause = cause_of(event);
  return fmt::format("{}{}{}, status {}{}{}", rdma_event_str(event.event), peer.empty() ? "" : " for ", peer,
                     status_text(event), cause.empty() ? "" : ": ", cause);
} catch (const std::bad_alloc&) {
  return {};
}

}  // namespace verbena::rdmacm
