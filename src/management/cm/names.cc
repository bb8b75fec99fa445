// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>

#include <rdma/rdma_cma.h>

#include "base/format.h"
#include "management/cm/event_names.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"

namespace verbena::cm {

namespace {

constexpr std::array<const char*, kMessageTypes> kMessageNames = {
    "REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"};

constexpr std::array<const char*, kStates> kStateNames = {
    "IDLE",      "REQ_SENT",  "REQ_RCVD",     "MRA_REQ_SENT",  "MRA_REQ_RCVD",
    "REP_SENT",  "REP_RCVD",  "MRA_REP_SENT", "MRA_REP_RCVD",  "ESTABLISHED",
    "DREQ_SENT", "DREQ_RCVD", "TIMEWAIT",     "SIDR_REQ_SENT", "SIDR_REQ_RCVD"};

constexpr std::array<const char*, kDropReasons> kDropReasonNames = {
    "not whole",  "not ours",           "malformed",    "unknown connection", "wrong peer",
    "unexpected", "too many half open", "not admitted", "peer to peer"};

constexpr std::array<const char*, 36> kReasonNames = {
    nullptr,
    "no QP available",
    "no EEC available",
    "no resources available",
    "timeout",
    "unsupported request",
    "invalid communication ID",
    "invalid communication instance",
    "invalid service ID",
    "invalid transport service type",
    "stale connection",
    "RDC does not exist",
    "invalid GID",
    "invalid LID",
    "invalid service level",
    "invalid traffic class",
    "invalid hop limit",
    "invalid packet rate",
    "invalid alternate GID",
    "invalid alternate LID",
    "invalid alternate service level",
    "invalid alternate traffic class",
    "invalid alternate hop limit",
    "invalid alternate packet rate",
    "CM redirection",
    "redirection",
    "invalid path MTU",
    "insufficient responder resources",
    "consumer reject",
    "invalid RNR retry count",
    "duplicate local communication ID",
    "invalid class version",
    "invalid flow label",
    "invalid alternate flow label",
    nullptr,
    "vendor option not supported",
};

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

const char* message_name(MessageType type) {
  return kMessageNames[static_cast<size_t>(type)];
}

const char* state_name(State state) {
  return kStateNames[static_cast<size_t>(state)];
}

const char* drop_reason_name(DropReason reason) {
  return kDropReasonNames[static_cast<size_t>(reason)];
}

const char* reason_name(uint16_t reason) {
  const char* const name = reason < kReasonNames.size() ? kReasonNames[reason] : nullptr;
  return name != nullptr ? name : "unknown reason";
}

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
