// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace verbena::commands {

// Formats a text table. Columns are as wide as their widest cell, in bytes, and two spaces apart. Rows may
// differ in their number of cells.
class Table {
 public:
  explicit Table(std::vector<std::string> heading) { add(std::move(heading)); }

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.size() == 1; }
  // Returns the table as text. Every line begins with `indent` spaces and has no trailing spaces.
  std::string text(size_t indent = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace verbena::commands
