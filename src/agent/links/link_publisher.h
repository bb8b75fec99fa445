// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string_view>
#include <vector>

#include "agent/links/link_table.h"
#include "base/unique_fd.h"
#include "control/model/admin_error.h"
#include "control/model/link.h"
#include "wire/roce/prefix.h"

namespace verbena::agent {

// Publishes the link table: writes a file of it for clients, and announces each change. Also knows whether a
// program may have seen the automatic link of loopback, which must stay then.
class LinkPublisher {
 public:
  struct Surroundings {
    // Whether a client of a former agent lives and has not reconnected yet.
    std::function<bool()> awaits_programs;
    // Called with each new file. `before`: the links that were published until then.
    std::function<void(const std::vector<control::Link>& before)> on_change;
  };
  LinkPublisher(LinkTable& table, Surroundings surroundings);

  // Starts publishing.
  void begin();
  // Publishes the table if it has changed.
  void publish();
  // Returns the current file, or -1 if there is none yet.
  int file() const { return file_.get(); }
  const std::vector<control::Link>& links() const { return table_.snapshot().links; }

  control::AdminResult<void> add(std::string_view name, std::string_view netdev);
  control::AdminResult<void> remove(std::string_view name);
  control::AdminResult<void> rename(std::string_view name, std::string_view new_name);
  control::AdminResult<void> set_peers(std::string_view name, std::vector<roce::Prefix> peers);

  void session_came(uint64_t session);
  void session_went(uint64_t session);
  // Checks again whether any program is left that has seen loopback's automatic link.
  void consider_loopback();

 private:
  LinkTable& table_;
  const Surroundings surroundings_;
  bool begun_ = false;
  bool published_ = false;  // the file is up to date
  std::vector<control::Link> shown_;
  UniqueFd file_;
  std::set<uint64_t> sessions_;
  std::set<uint64_t> loopback_viewers_;  // sessions that have seen loopback's automatic link
};

}  // namespace verbena::agent
