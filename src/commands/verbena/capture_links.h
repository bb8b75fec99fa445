// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/time.h"
#include "control/model/link.h"
#include "observe/capture/frame_builder.h"
#include "wire/roce/path.h"

namespace verbena::commands {

// Finds the links of this host that have a GID, and the MAC address of the first, for `verbena capture`. Asks
// the agent about unknown GIDs, at most once a second.
class CaptureLinks {
 public:
  using Ask = std::function<std::vector<control::Link>()>;
  explicit CaptureLinks(Ask ask) : ask_(std::move(ask)) {}

  // Returns the MAC address of the first link with this GID, or zeros if there is no such link or address.
  capture::MacAddress mac_of(const roce::Address& address, TimePoint now);
  // Whether the link named `link` has the source or the destination address of `path` as a GID.
  bool is_on(const std::string& link, const roce::Path& path, TimePoint now);

 private:
  struct Less {
    bool operator()(const roce::Address& a, const roce::Address& b) const { return a.bytes < b.bytes; }
  };
  struct Owner {
    std::vector<std::string> links;
    capture::MacAddress mac{};
  };

  const Owner* find(const roce::Address& address, TimePoint now);
  void refresh(TimePoint now);

  const Ask ask_;
  std::map<roce::Address, Owner, Less> owners_;
  TimePoint next_refresh_ = TimePoint::min();
};

}  // namespace verbena::commands
