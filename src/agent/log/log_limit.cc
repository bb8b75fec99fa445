// SPDX-License-Identifier: Apache-2.0
#include "agent/log/log_limit.h"

#include "base/format.h"

namespace verbena::agent {

LogLimit::Count* LogLimit::count_of(std::optional<uid_t> user) {
  const auto known = counts_.find(user);
  if (known != counts_.end()) return &known->second;
  if (user && counts_.size() >= sizes_.users) return nullptr;
  return &counts_[user];
}

bool LogLimit::admits(std::optional<uid_t> user, TimePoint now) {
  if (counts_.empty()) end_ = now + sizes_.window;
  Count* const count = count_of(user);
  const bool is_admitted =
      count != nullptr && (user ? count->written < sizes_.of_user && written_of_users_ < sizes_.of_all
                                : count->written < sizes_.of_all);
  if (!is_admitted) {
    ++(count != nullptr ? count->left_out : left_out_of_others_);
    leaves_out_ = true;
    return false;
  }
  ++count->written;
  if (user) ++written_of_users_;
  return true;
}

std::vector<std::string> LogLimit::take_reports(TimePoint now) {
  std::vector<std::string> reports;
  if (counts_.empty() || now < end_) return reports;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(sizes_.window).count();
  const auto report = [&](const std::string& whose, size_t lines) {
    if (lines == 0) return;
    reports.push_back(verbena::format("{}: {} lines were left out, more than are logged in {} seconds", whose,
                                      lines, seconds));
  };
  for (const auto& [user, count] : counts_) {
    report(user ? verbena::format("user {}", *user) : "the agent itself", count.left_out);
  }
  report("further users", left_out_of_others_);
  counts_.clear();
  written_of_users_ = left_out_of_others_ = 0;
  leaves_out_ = false;
  return reports;
}

}  // namespace verbena::agent
