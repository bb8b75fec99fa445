// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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
  std::string text(size_t indent = 0) const {
    std::vector<size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows_) {
      std::string line(indent, ' ');
      for (size_t i = 0; i < row.size(); ++i) {
        line += row[i];
        line.append(widths[i] - row[i].size() + 2, ' ');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + '\n';
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace verbena::commands
