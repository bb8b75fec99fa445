// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::adapter {

// Fills in the raw-packet attributes of the device: flags, receive scaling, work queues and packet pacing.
void fill_raw_packet_capabilities(ibv_device_attr_ex& attr);

}  // namespace verbena::adapter
