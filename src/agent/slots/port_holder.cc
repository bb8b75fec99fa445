// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/port_holder.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/format.h"
#include "base/text.h"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;

void append_holders(const char* table, uint16_t port, std::vector<PortHolder>& holders) {
  std::ifstream lines(table);
  std::string line;
  std::getline(lines, line);  // the headings
  while (std::getline(lines, line)) {
    // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode ...
    unsigned local_port = 0;
    unsigned uid = 0;
    unsigned long inode = 0;
    const int fields = std::sscanf(line.c_str(), " %*d: %*[0-9A-Fa-f]:%x %*s %*x %*s %*s %*x %u %*d %lu",
                                   &local_port, &uid, &inode);
    if (fields == 3 && local_port == port) holders.push_back({uid, inode});
  }
}

}  // namespace

std::vector<PortHolder> holders_of_port(uint16_t port) {
  std::vector<PortHolder> holders;
  append_holders("/proc/thread-self/net/udp", port, holders);
  append_holders("/proc/thread-self/net/udp6", port, holders);
  return holders;
}

std::string process_with_socket(uint64_t inode) {
  const std::string wanted = verbena::format("socket:[{}]", inode);
  std::error_code ignored;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code error;
    for (fs::directory_iterator fd(process.path() / "fd", error), end; !error && fd != end;
         fd.increment(error)) {
      std::error_code unreadable;
      if (fs::read_symlink(fd->path(), unreadable).native() == wanted) return pid;
    }
  }
  return {};
}

std::string describe_holder(const PortHolder& holder) {
  const std::string pid = process_with_socket(holder.inode);
  if (pid.empty()) return verbena::format("a program of user {}", holder.uid);
  std::string program;
  std::ifstream name("/proc/" + pid + "/comm");
  std::getline(name, program);
  return verbena::format("{} (pid {}) of user {}", program.empty() ? "a program" : printable(program), pid,
                         holder.uid);
}

}  // namespace verbena::agent
