// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/cm/service.h"
#include "protocol/connection_status.h"

namespace verbena::agent {

// What the service has counted, and how its identifiers stand now. Looks at each of them, so it takes a
// while.
protocol::CmStatus status_of(CmService& service);

}  // namespace verbena::agent
