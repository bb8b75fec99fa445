// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/process_state.h"

#include <fstream>
#include <string>
#include <string_view>

#include "base/format.h"
#include "control/model/agent_silence.h"

namespace verbena::agent {
namespace {

constexpr std::string_view kUnifiedGroup = "0::";
constexpr std::string_view kFreezerGroup = ":freezer:";

bool has_line(const std::string& file, std::string_view wanted) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line == wanted) return true;
  }
  return false;
}

// Whether the process's control group is frozen. cgroups(7): version 2 has one hierarchy; in version 1 the
// freezer is one of several.
bool is_frozen(pid_t pid) {
  std::ifstream groups(verbena::format("/proc/{}/cgroup", pid));
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with(kUnifiedGroup)) {
      const std::string group = "/sys/fs/cgroup" + line.substr(kUnifiedGroup.size());
      if (has_line(group + "/cgroup.events", "frozen 1")) return true;
    }
    const size_t freezer = line.find(kFreezerGroup);
    if (freezer != std::string::npos) {
      const std::string group = "/sys/fs/cgroup/freezer" + line.substr(freezer + kFreezerGroup.size());
      if (has_line(group + "/freezer.state", "FROZEN")) return true;
    }
  }
  return false;
}

}  // namespace

bool is_stopped(pid_t pid) {
  if (pid <= 0) return false;
  const char state = control::process_state(pid);
  return state == 'T' || state == 't' || is_frozen(pid);
}

}  // namespace verbena::agent
