// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>

namespace verbena::commands {

// Formats help texts with a usage line of our own: CLI11 2.1 cannot know which words follow a program's name.
class HelpWithUsage : public CLI::Formatter {
 public:
  explicit HelpWithUsage(std::string usage) : usage_(std::move(usage)) { column_width(kColumn); }

  std::string make_usage(const CLI::App*, std::string) const override { return "Usage: " + usage_ + "\n"; }

 private:
  static constexpr size_t kColumn = 28;
  const std::string usage_;
};

inline void explain(CLI::App& command, std::string usage, std::string examples) {
  command.formatter(std::make_shared<HelpWithUsage>(std::move(usage)));
  command.footer(std::move(examples));
}

}  // namespace verbena::commands
