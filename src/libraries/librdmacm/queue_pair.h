// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// Create and destroy the completion queues, each with a channel, that librdmacm provides if the application
// does not: rdma_cm_id::send_cq, recv_cq and their channels. Sizes are in entries; a size of 0 creates no
// queue. create_completion_queues() returns 0 or an errno value.
int create_completion_queues(Identifier& identifier, uint32_t send_size, uint32_t receive_size);
void destroy_completion_queues(Identifier& identifier);

}  // namespace verbena::rdmacm
