// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {

// A bit and its name.
struct Flag {
  uint64_t bit;
  const char* name;
};

// The column of a device's values.
inline constexpr int kDeviceColumn = 40;

// The text of ibv_devinfo: rows of name and value, aligned by tabs, and lines below them. The JSON object has
// the same names.
class Sheet {
 public:
  using Json = nlohmann::ordered_json;

  explicit Sheet(const Output& output) : output_(output) {}

  // Prints "NAME: VALUE" after `indent` tabs, with the value in column `column`.
  void row(int indent, const std::string& name, int column, const std::string& value) const;

  // Prints the name of each bit that is set, one per line, and unknown bits as a number. Returns the same as
  // JSON.
  Json flags(uint64_t value, std::span<const Flag> known, bool unknown_in_hex = true) const;

  const Output& output() const { return output_; }

 private:
  const Output& output_;
};

}  // namespace verbena::rdma_core
