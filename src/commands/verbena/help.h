// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>

namespace verbena::commands {

// Formats a command's help text with the usage line `usage`. CLI11 2.1 cannot derive that line, since it does
// not know which words follow a program's name.
class HelpWithUsage : public CLI::Formatter {
 public:
  explicit HelpWithUsage(std::string usage) : usage_(std::move(usage)) { column_width(kColumn); }

  std::string make_usage(const CLI::App*, std::string) const override { return "Usage: " + usage_ + "\n"; }

 private:
  static constexpr size_t kColumn = 28;
  const std::string usage_;
};

// Sets a command's usage line, and the examples that follow its list of options.
inline void explain(CLI::App& command, std::string usage, std::string examples) {
  command.formatter(std::make_shared<HelpWithUsage>(std::move(usage)));
  command.footer(std::move(examples));
}

}  // namespace verbena::commands
