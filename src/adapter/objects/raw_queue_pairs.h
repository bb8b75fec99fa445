// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

namespace verbena::adapter {

// What the device says of raw packets.
void fill_raw_packet_capabilities(ibv_device_attr_ex& attr);

}  // namespace verbena::adapter
