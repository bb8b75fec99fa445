// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/report.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace verbena::commands {
namespace {

namespace fs = std::filesystem;

// The agent's name for the memfd of a slot's status page. A process keeps it mapped while it has the slot, so
// /proc/PID/maps shows which processes have one.
constexpr std::string_view kStatusPage = "/memfd:verbena-status";
constexpr size_t kMaxNamed = 5;

bool has_slot(const fs::path& process) {
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(kStatusPage) != std::string::npos) return true;
  }
  return false;
}

// Returns "name (pid 12)" for each process of this network namespace, except agents, that has a slot.
std::vector<std::string> programs_with_slots() {
  std::vector<std::string> found;
  std::error_code ignored;
  const fs::path own_network = fs::read_symlink("/proc/self/ns/net", ignored);
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (fs::read_symlink(entry.path() / "ns/net", ignored) != own_network) continue;
    if (!has_slot(entry.path())) continue;
    std::string name;
    std::ifstream comm(entry.path() / "comm");
    std::getline(comm, name);
    if (!name.starts_with("verbena-agent"))
      found.push_back(verbena::format("{} (pid {})", printable(name), pid));
  }
  return found;
}

}  // namespace

bool is_absence(const control::AdminError& error) {
  return error.code == ECONNREFUSED || error.code == ENOENT;
}

std::string describe_absence() {
  std::vector<std::string> programs = programs_with_slots();
  if (programs.empty()) return "No agent is running: nothing uses Verbena.";
  const size_t count = programs.size();
  programs.resize(std::min(count, kMaxNamed));
  return verbena::format(
      "No agent is running. {} program{} without one: {}{}. 'verbena agent' starts the next one.", count,
      count == 1 ? " goes on" : "s go on", verbena::join(programs, ", "), count > kMaxNamed ? ", ..." : "");
}

}  // namespace verbena::commands
