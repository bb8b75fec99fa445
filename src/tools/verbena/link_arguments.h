// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <tl/expected.hpp>

namespace verbena::tools {

struct LinkAddition {
  std::string name;
  std::string netdev;

  friend bool operator==(const LinkAddition&, const LinkAddition&) = default;
};

// Reads what follows `link add`: NAME DEV, or NAME type rxe netdev DEV as iproute2's rdma takes it. The error
// says what is wrong and what would be right.
tl::expected<LinkAddition, std::string> parse_link_addition(const std::vector<std::string>& words);

}  // namespace verbena::tools
