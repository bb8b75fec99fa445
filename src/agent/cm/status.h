// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <sys/types.h>

#include "agent/cm/service.h"
#include "control/protocol/connection_status.h"

namespace verbena::agent {

// Answers what the service has counted, and how its identifiers stand now.
protocol::CmStatus status_of(CmService& service);

// Lists the identifiers of programs, of one user or all, little by little: a program may have 131,072. What
// comes and goes meanwhile is listed or not. At most as many as there are at the beginning, and
// protocol::kMaxCmIdRecords.
class CmIdListing {
 public:
  // REQUIRES: the service outlives this
  CmIdListing(const CmService& service, std::optional<uid_t> user);

  // The next ones. Looks at so many identifiers and clients at most.
  std::vector<protocol::CmIdRecord> next(size_t most);
  bool is_done() const { return is_done_; }
  size_t listed() const { return listed_; }
  size_t most() const { return max_; }
  // How many identifiers there are now, listed or not.
  size_t there_are() const;

 private:
  const CmService::Clients& clients() const;

  const CmService& service_;
  const std::optional<uid_t> user_;
  const size_t max_;
  uint64_t client_ = 0;   // where to go on
  uint64_t next_id_ = 0;  // of that client; it may be larger than any number
  size_t listed_ = 0;
  bool is_done_ = false;
};

}  // namespace verbena::agent
