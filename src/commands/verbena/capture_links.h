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

// The links of this host, for those who ask by address: which has it, and what its MAC address is. Asks the
// agent again when an address is not known, once a second at most.
class CaptureLinks {
 public:
  using Ask = std::function<std::vector<control::Link>()>;
  explicit CaptureLinks(Ask ask) : ask_(std::move(ask)) {}

  // Zeros where no link has the address, and for those without one.
  capture::MacAddress mac_of(const roce::Address& address, TimePoint now);
  // Whether the link of this name has one of the path's two addresses.
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
