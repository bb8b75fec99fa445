// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <rdma/rdma_cma.h>

// Additions to rdma_cma.h since the headers of the build (RDMACM_1.4, rdma-core 60 and later).

namespace verbena::rdmacm {

// enum rdma_cm_event_type, continued
inline constexpr int kAddressInformationResolved = 16;  // RDMA_CM_EVENT_ADDRINFO_RESOLVED
inline constexpr int kAddressInformationError = 17;     // RDMA_CM_EVENT_ADDRINFO_ERROR
inline constexpr int kUserEvent = 18;                   // RDMA_CM_EVENT_USER; its argument: param.arg

// rdma_addrinfo::ai_flags: the service to ask
inline constexpr int kFromSubnet = 0x10;  // RAI_SA
inline constexpr int kFromDns = 0x20;     // RAI_DNS

}  // namespace verbena::rdmacm

extern "C" {
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service, const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** information);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t argument);
}
