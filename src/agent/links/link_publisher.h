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

// Shows the link table to the world: a file of it for clients, and word of each change. Also knows whether a
// program may have seen the link that loopback got by itself: then that link stays.
class LinkPublisher {
 public:
  struct Surroundings {
    // Whether a program lives that was a former agent's client and has not come back yet.
    std::function<bool()> awaits_programs;
    // The file is a new one. `before` is what was shown until then.
    std::function<void(const std::vector<control::Link>& before)> on_change;
  };
  LinkPublisher(LinkTable& table, Surroundings surroundings);

  // What is known is shown from now on.
  void begin();
  // Shows what has changed.
  void publish();
  // -1: there is none yet.
  int file() const { return file_.get(); }
  const std::vector<control::Link>& links() const { return table_.snapshot().links; }

  control::AdminResult<void> add(std::string_view name, std::string_view netdev);
  control::AdminResult<void> remove(std::string_view name);
  control::AdminResult<void> rename(std::string_view name, std::string_view new_name);
  control::AdminResult<void> set_peers(std::string_view name, std::vector<roce::Prefix> peers);

  void session_came(uint64_t session);
  void session_went(uint64_t session);
  // Looks again whether a program is left that has seen loopback's link.
  void consider_loopback();

 private:
  LinkTable& table_;
  const Surroundings surroundings_;
  bool begun_ = false;
  bool published_ = false;  // the file says what the table says
  std::vector<control::Link> shown_;
  UniqueFd file_;
  std::set<uint64_t> sessions_;
  std::set<uint64_t> loopback_viewers_;  // sessions that have seen loopback's own link
};

}  // namespace verbena::agent
