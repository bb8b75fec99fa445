// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// The completion queues, each with a channel, that librdmacm makes where the application brings none: in
// rdma_cm_id::send_cq, recv_cq and beside. A size of 0: none. An errno value.
int create_completion_queues(Identifier& identifier, uint32_t send_size, uint32_t receive_size);
void destroy_completion_queues(Identifier& identifier);

}  // namespace verbena::rdmacm
