// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {

// A bit and what it is called.
struct Flag {
  uint64_t bit;
  const char* name;
};

// Where the values of a device stand.
inline constexpr int kDeviceColumn = 40;

// What ibv_devinfo prints: rows of a name and a value, which stand in columns by tabs, and lines below them.
// The JSON object has the same names.
class Sheet {
 public:
  using Json = nlohmann::ordered_json;

  explicit Sheet(const Output& output) : output_(output) {}

  // "NAME:   VALUE", so many tabs from the margin, the value in that column.
  void row(int indent, const std::string& name, int column, const std::string& value) const;

  // The names of a value's bits, a line each, and of those that have none their number. The answer has them,
  // too.
  Json flags(uint64_t value, std::span<const Flag> known, bool unknown_in_hex = true) const;

  const Output& output() const { return output_; }

 private:
  const Output& output_;
};

}  // namespace verbena::rdma_core
