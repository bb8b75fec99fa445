// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace verbena::commands::doctor {

enum class Level {
  kFine,    // correct
  kUnseen,  // could not be checked
  kCost,    // works, but slower, less safely or less conveniently than it could
  kFault,   // something does not work
};

struct Finding {
  std::string subject;  // one word for the subject of the check, such as "links"
  Level level = Level::kFine;
  std::string what;  // the observation, in one sentence
  std::string todo;  // the remedy, in one sentence; empty if there is none
};

// The findings of one run of `verbena doctor`, in the order in which the checks added them.
class Findings {
 public:
  void fine(std::string subject, std::string what) { add(std::move(subject), Level::kFine, std::move(what)); }
  void unseen(std::string subject, std::string what, std::string todo = {}) {
    add(std::move(subject), Level::kUnseen, std::move(what), std::move(todo));
  }
  void cost(std::string subject, std::string what, std::string todo) {
    add(std::move(subject), Level::kCost, std::move(what), std::move(todo));
  }
  void fault(std::string subject, std::string what, std::string todo) {
    add(std::move(subject), Level::kFault, std::move(what), std::move(todo));
  }

  const std::vector<Finding>& all() const { return all_; }
  size_t count(Level level) const {
    return static_cast<size_t>(
        std::count_if(all_.begin(), all_.end(), [level](const Finding& one) { return one.level == level; }));
  }
  // Whether this subject has a finding of level kCost or kFault.
  bool amiss(const std::string& subject) const {
    return std::any_of(all_.begin(), all_.end(), [&](const Finding& one) {
      return one.subject == subject && (one.level == Level::kCost || one.level == Level::kFault);
    });
  }

 private:
  void add(std::string subject, Level level, std::string what, std::string todo = {}) {
    all_.push_back({std::move(subject), level, std::move(what), std::move(todo)});
  }

  std::vector<Finding> all_;
};

// Formats findings for people: one line for each, followed by its remedy, and a conclusion at the end.
std::string as_text(const Findings& findings);

// Formats findings as JSON: {"version", "result", "findings": [{"subject", "level", "what", "to_do"}]}.
std::string as_json(const Findings& findings);

// Returns the exit status of `verbena doctor`: 1 if there is a finding of level kCost or kFault, else 0. The
// caller exits with 2 if the check was not possible.
int exit_status(const Findings& findings);

}  // namespace verbena::commands::doctor
