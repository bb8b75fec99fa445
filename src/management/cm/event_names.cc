// SPDX-License-Identifier: Apache-2.0
#include "management/cm/event_names.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include <rdma/rdma_cma.h>

#include "base/format.h"
#include "management/cm/reasons.h"

namespace verbena::cm {
namespace {

constexpr const char* kNames[] = {
    "RDMA_CM_EVENT_ADDR_RESOLVED",  "RDMA_CM_EVENT_ADDR_ERROR",        "RDMA_CM_EVENT_ROUTE_RESOLVED",
    "RDMA_CM_EVENT_ROUTE_ERROR",    "RDMA_CM_EVENT_CONNECT_REQUEST",   "RDMA_CM_EVENT_CONNECT_RESPONSE",
    "RDMA_CM_EVENT_CONNECT_ERROR",  "RDMA_CM_EVENT_UNREACHABLE",       "RDMA_CM_EVENT_REJECTED",
    "RDMA_CM_EVENT_ESTABLISHED",    "RDMA_CM_EVENT_DISCONNECTED",      "RDMA_CM_EVENT_DEVICE_REMOVAL",
    "RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR",   "RDMA_CM_EVENT_ADDR_CHANGE",
    "RDMA_CM_EVENT_TIMEWAIT_EXIT",  "RDMA_CM_EVENT_ADDRINFO_RESOLVED", "RDMA_CM_EVENT_ADDRINFO_ERROR",
};
static_assert(std::size(kNames) == kEventNames);

constexpr uint32_t kFailures[] = {RDMA_CM_EVENT_ADDR_ERROR,    RDMA_CM_EVENT_ROUTE_ERROR,
                                  RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_UNREACHABLE,
                                  RDMA_CM_EVENT_REJECTED,      RDMA_CM_EVENT_MULTICAST_ERROR,
                                  RDMA_CM_EVENT_DEVICE_REMOVAL};

// The most likely cause of an event. A status of 0 matches any.
struct Cause {
  uint32_t type;
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
    {RDMA_CM_EVENT_UNREACHABLE, static_cast<int>(SidrStatus::kUnsupported),
     "nobody listens on this port there: start the server first, or correct the port"},
    {RDMA_CM_EVENT_UNREACHABLE, static_cast<int>(SidrStatus::kRejected),
     "its program has called rdma_reject(), or ended"},
    {RDMA_CM_EVENT_UNREACHABLE, static_cast<int>(SidrStatus::kNoQp),
     "its program has given it no queue pair"},
    {RDMA_CM_EVENT_CONNECT_ERROR, -ETIMEDOUT,
     "the peer has stopped answering before the connection was made"},
    {RDMA_CM_EVENT_REJECTED, static_cast<int>(RejReason::kInvalidServiceId),
     "nobody listens on this port there: start the server first, or correct the port"},
    {RDMA_CM_EVENT_REJECTED, static_cast<int>(RejReason::kConsumer),
     "its program has called rdma_reject(), or ended"},
    {RDMA_CM_EVENT_REJECTED, static_cast<int>(RejReason::kStaleConnection),
     "it has an older connection with this queue pair number: try again"},
    {RDMA_CM_EVENT_DEVICE_REMOVAL, 0, "its link or network device was removed"},
};

}  // namespace

const char* event_name(uint32_t type) {
  return type < std::size(kNames) ? kNames[type] : "UNKNOWN EVENT";
}

bool is_failure(uint32_t type) {
  return std::ranges::find(kFailures, type) != std::end(kFailures);
}

std::string status_text(uint32_t type, int status) {
  if (type == RDMA_CM_EVENT_REJECTED && status > 0 && status <= UINT16_MAX)
    return verbena::format("{} ({})", status, reason_name(static_cast<uint16_t>(status)));
  const char* const name = status < 0 ? ::strerrorname_np(-status) : nullptr;
  return name != nullptr ? verbena::format("-{}", name) : verbena::format("{}", status);
}

std::string_view cause_of(uint32_t type, int status) {
  const auto* const found = std::ranges::find_if(kCauses, [&](const Cause& cause) {
    return cause.type == type && (cause.status == status || cause.status == 0);
  });
  return found != std::end(kCauses) ? found->words : std::string_view();
}

}  // namespace verbena::cm
