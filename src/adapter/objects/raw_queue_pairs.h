// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::adapter {

// Fills in the attributes of the device that concern raw packets.
void fill_raw_packet_capabilities(ibv_device_attr_ex& attr);

}  // namespace verbena::adapter
