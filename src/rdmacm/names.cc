// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>

#include "rdmacm/abi.h"
#include "rdmacm/newer.h"

namespace {

constexpr std::array kNames = {
    "RDMA_CM_EVENT_ADDR_RESOLVED",  "RDMA_CM_EVENT_ADDR_ERROR",        "RDMA_CM_EVENT_ROUTE_RESOLVED",
    "RDMA_CM_EVENT_ROUTE_ERROR",    "RDMA_CM_EVENT_CONNECT_REQUEST",   "RDMA_CM_EVENT_CONNECT_RESPONSE",
    "RDMA_CM_EVENT_CONNECT_ERROR",  "RDMA_CM_EVENT_UNREACHABLE",       "RDMA_CM_EVENT_REJECTED",
    "RDMA_CM_EVENT_ESTABLISHED",    "RDMA_CM_EVENT_DISCONNECTED",      "RDMA_CM_EVENT_DEVICE_REMOVAL",
    "RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR",   "RDMA_CM_EVENT_ADDR_CHANGE",
    "RDMA_CM_EVENT_TIMEWAIT_EXIT",  "RDMA_CM_EVENT_ADDRINFO_RESOLVED", "RDMA_CM_EVENT_ADDRINFO_ERROR",
};
static_assert(kNames.size() == verbena::rdmacm::kAddressInformationError + 1);

}  // namespace

VERBENA_ABI const char* rdma_event_str(rdma_cm_event_type event) {
  unsigned index;  // which may be beyond the enumeration that we know
  std::memcpy(&index, &event, sizeof index);
  return index < kNames.size() ? kNames[index] : "UNKNOWN EVENT";
}
