// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rdma/rdma_cma.h>

#include "commands/rdma_core/common/handles.h"

namespace verbena::rdma_core {

using Channel = Handle<rdma_event_channel, rdma_destroy_event_channel>;
using Event = Handle<rdma_cm_event, rdma_ack_cm_event>;
using Id = Handle<rdma_cm_id, rdma_destroy_id>;
using Endpoint = Handle<rdma_cm_id, rdma_destroy_ep>;
using AddressInfo = Handle<rdma_addrinfo, rdma_freeaddrinfo>;

// Owns the queue pair that rdma_create_qp() attached to this id, but not the id.
using QueuePairOfId = Handle<rdma_cm_id, rdma_destroy_qp>;

}  // namespace verbena::rdma_core
