// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/port_holder.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/format.h"
#include "base/text.h"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;

// Descriptors that one search looks at. Beyond that the holder's process stays unknown.
constexpr size_t kMaxLinks = 65536;

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

std::string process_with_socket(uint64_t inode, const std::function<bool()>& may_go_on) {
  const std::string wanted = verbena::format("socket:[{}]", inode);
  std::error_code ignored;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code error;
    for (fs::directory_iterator fd(process.path() / "fd", error), end; !error && fd != end;
         fd.increment(error)) {
      if (!may_go_on()) return {};
      std::error_code unreadable;
      if (fs::read_symlink(fd->path(), unreadable).native() == wanted) return pid;
    }
  }
  return {};
}

std::string describe_holder(const PortHolder& holder, const std::function<bool()>& may_go_on) {
  const std::string pid = process_with_socket(holder.inode, may_go_on);
  if (pid.empty()) return verbena::format("a program of user {}", holder.uid);
  std::string program;
  std::ifstream name("/proc/" + pid + "/comm");
  std::getline(name, program);
  return verbena::format("{} (pid {}) of user {}", program.empty() ? "a program" : printable(program), pid,
                         holder.uid);
}

PortHolderSearch::PortHolderSearch(Search search) : search_(std::move(search)) {}

PortHolderSearch::~PortHolderSearch() {
  ends_ = true;
  if (thread_.joinable()) thread_.join();
}

void PortHolderSearch::begin(uint16_t port) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(goes_on_, true)) return;
    found_.reset();
  }
  if (thread_.joinable()) thread_.join();  // it has come to its end
  try {
    thread_ = std::thread([this, port] {
      std::string found = search_(port, [this] { return !ends_; });
      const std::lock_guard lock(mutex_);
      found_ = std::move(found);
      goes_on_ = false;
      is_done_.notify_all();
    });
  } catch (const std::system_error&) {  // no more threads: the next call tries again
    const std::lock_guard lock(mutex_);
    goes_on_ = false;
  }
}

std::optional<std::string> PortHolderSearch::take(Duration patience) {
  std::unique_lock lock(mutex_);
  is_done_.wait_for(lock, patience, [this] { return !goes_on_; });
  return std::exchange(found_, std::nullopt);
}

std::string PortHolderSearch::look(uint16_t port, const std::function<bool()>& may_go_on) {
  const auto holders = holders_of_port(port);
  if (holders.empty()) return {};
  size_t left = kMaxLinks;
  return describe_holder(holders.front(), [&] { return may_go_on() && left-- > 0; });
}

}  // namespace verbena::agent
