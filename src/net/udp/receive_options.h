// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"

namespace verbena::net {

// Asks the kernel for what a Receiver reads beside the data: addresses, segment size (UDP_GRO), traffic
// class, hop limit and flow label. Harmless when already set.
Result<void> set_receive_options(int fd);

}  // namespace verbena::net
