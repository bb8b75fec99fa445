// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <infiniband/verbs.h>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {

// A bit and its name.
struct Flag {
  uint64_t bit;
  const char* name;
};

// The column, in characters, at which the values of a device's attributes begin.
inline constexpr int kDeviceColumn = 40;

// Prints the text of ibv_devinfo: rows of name and value, aligned by tabs, and lines below them. It prints no
// JSON: for that, callers add the same names and values to an object of their own.
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

// Prints rows of one indentation and column, and adds each under its name to the JSON object.
class Rows {
 public:
  Rows(const Sheet& sheet, Sheet::Json& json, int indent, int column)
      : sheet_(sheet), json_(json), indent_(indent), column_(column) {}

  void row(const char* name, const std::string& value, const Sheet::Json& json) const {
    sheet_.row(indent_, name, column_, value);
    json_[name] = json;
  }
  void row(const char* name, const std::string& value) const { row(name, value, value); }
  void number(const char* name, long long value) const { row(name, std::to_string(value), value); }
  void hexadecimal(const char* name, uint64_t value, int digits = 1) const {
    row(name, verbena::format("0x{:0{}x}", value, digits), value);
  }
  // Prints the value's name, or `unknown`, with the number in parentheses.
  void named(const char* name, std::span<const Name> names, int value, const char* unknown,
             const char* unit = "") const;

 private:
  const Sheet& sheet_;
  Sheet::Json& json_;
  int indent_;
  int column_;
};

// Formats a GUID as "0011:2233:4455:6677".
std::string guid_text(uint64_t guid_in_network_order);

// Formats a GID as eight groups of four digits, without the abbreviations of IPv6.
std::string long_gid_text(const ibv_gid& gid);

}  // namespace verbena::rdma_core
