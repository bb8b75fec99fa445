// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "wire/roce/prefix.h"

namespace verbena::commands {

struct LinkAddition {
  std::string name;
  std::string netdev;

  friend bool operator==(const LinkAddition&, const LinkAddition&) = default;
};

// Parses the words after `link add`: NAME DEV, or NAME type rxe netdev DEV as in iproute2's rdma. On failure
// returns a text with the mistake and the correct form.
tl::expected<LinkAddition, std::string> parse_link_addition(const std::vector<std::string>& words);

struct PeerSetting {
  std::string name;
  std::vector<roce::Prefix> peers;  // the only peers that the link accepts; empty if it accepts any

  friend bool operator==(const PeerSetting&, const PeerSetting&) = default;
};

// Parses the words after `link set`: NAME peers CIDR..., or NAME peers any. On failure returns a text with
// the mistake and the correct form.
tl::expected<PeerSetting, std::string> parse_peer_setting(const std::vector<std::string>& words);

}  // namespace verbena::commands
