// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <infiniband/verbs.h>

#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {

// A bit and its name.
struct Flag {
  uint64_t bit;
  const char* name;
};

// The column, in characters, at which the values of a device's attributes begin.
inline constexpr int kDeviceColumn = 40;

// Prints the text of ibv_devinfo: rows of name and value, aligned by tabs, and lines below them. Callers
// build a JSON object with the same names beside it.
class Sheet {
 public:
  using Json = nlohmann::ordered_json;

  explicit Sheet(const Output& output) : output_(output) {}

  // Prints "NAME: VALUE" after `indent` tabs. VALUE begins at column `column`, or behind a longer name.
  void row(int indent, const std::string& name, int column, const std::string& value) const;

  // Prints the name of each bit that is set, one per line, and returns the names as a JSON array. With
  // `unknown_in_hex`, unknown bits follow as one hexadecimal number.
  Json flags(uint64_t value, std::span<const Flag> known, bool unknown_in_hex = true) const;

  const Output& output() const { return output_; }

 private:
  const Output& output_;
};

// Return ibv_devinfo's names for values of verbs.h, or a text such as "invalid state" for unknown values.
const char* transport_name(int transport);
const char* port_state_name(int state);
const char* physical_state_name(int state);
const char* atomic_name(int capability);
const char* mtu_name(int mtu);
const char* width_name(int width);
const char* speed_name(int speed);
const char* virtual_lanes_name(int number);
const char* link_layer_name(int layer);

// Formats a GUID as "0011:2233:4455:6677".
std::string guid_text(uint64_t guid_in_network_order);

// Formats a GID as eight groups of four digits, without the abbreviations of IPv6.
std::string long_gid_text(const ibv_gid& gid);

}  // namespace verbena::rdma_core
