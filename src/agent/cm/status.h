// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include <sys/types.h>

#include "agent/cm/service.h"
#include "protocol/connection_status.h"

namespace verbena::agent {

// What the service has counted, and how its identifiers stand now. Looks at each of them, so it takes a
// while.
protocol::CmStatus status_of(CmService& service);

// The identifiers of programs, for who may see those of `user`, or all: at most protocol::kMostCmIdRecords.
// How many there are besides.
struct CmIdList {
  std::vector<protocol::CmIdRecord> records;
  uint32_t left_out = 0;
};
CmIdList identifiers_of(const CmService& service, std::optional<uid_t> user);

}  // namespace verbena::agent
