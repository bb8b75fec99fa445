// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <sys/types.h>

#include "agent/cm/service.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// Returns the service's counters, and how many identifiers and connections are in each state.
protocol::CmStatus status_of(CmService& service);

// Lists the identifiers of one user's programs or of all programs. Works in steps, because a program may have
// 131,072 identifiers. Identifiers that come or go meanwhile may be listed or not. Lists at most as many as
// there are at the start, and at most protocol::kMaxCmIdRecords.
class CmIdListing {
 public:
  // `user`: lists only this user's identifiers; nullopt: all. REQUIRES: the service outlives this object
  CmIdListing(const CmService& service, std::optional<uid_t> user);

  // Returns the next records. Looks at up to `most` identifiers and clients.
  std::vector<protocol::CmIdRecord> next(size_t most);
  bool is_done() const { return is_done_; }
  size_t listed() const { return listed_; }
  size_t most() const { return max_; }
  // Returns the current number of identifiers, listed or not.
  size_t there_are() const;

 private:
  const CmService::Clients& clients() const;

  const CmService& service_;
  const std::optional<uid_t> user_;
  const size_t max_;
  uint64_t client_ = 0;   // where to continue
  uint64_t next_id_ = 0;  // of that client; may be larger than any number
  size_t listed_ = 0;
  bool is_done_ = false;
};

}  // namespace verbena::agent
