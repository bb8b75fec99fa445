// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "adapter/net/sim/link_model.h"
#include "network/direction.h"

namespace verbena::network {

struct Options {
  std::string devices[2];
  net::LinkSettings link;
  DirectionOptions direction;
  uint64_t seed = 1;
  bool one_way = false;  // packets from the second device to the first get only rate, queue, delay and MTU

  // The settings for packets from this device to the other.
  net::LinkSettings link_from(int device) const;
};

// Adds all options to `app`. `options` holds their values after parsing.
void add_options(CLI::App& app, Options& options);

}  // namespace verbena::network
