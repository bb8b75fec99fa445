// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibumad/epoll_sets.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>

namespace verbena::umad {
namespace {

namespace fs = std::filesystem;

// Parses a line of a set's fdinfo; nothing if the line is not about the descriptor `wanted`.
std::optional<epoll_event> read_watch(const std::string& line, int wanted) {
  int descriptor = -1;
  uint32_t events = 0;  // a separate variable: epoll_event is packed, so no pointer may point into it
  uint64_t data = 0;
  const int found =
      std::sscanf(line.c_str(), "tfd: %d events: %" SCNx32 " data: %" SCNx64, &descriptor, &events, &data);
  if (found != 3 || descriptor != wanted) return std::nullopt;
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return event;
}

std::vector<int> all_sets() {
  std::vector<int> sets;
  std::error_code failed;
  for (fs::directory_iterator entry("/proc/self/fd", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::error_code gone;
    if (fs::read_symlink(entry->path(), gone) != "anon_inode:[eventpoll]") continue;
    sets.push_back(std::atoi(entry->path().filename().c_str()));
  }
  return sets;
}

}  // namespace

EpollSets::EpollSets(int socket) : socket_(socket) {
  for (const int set : all_sets()) {
    std::ifstream lines("/proc/self/fdinfo/" + std::to_string(set));
    for (std::string line; std::getline(lines, line);) {
      const auto event = read_watch(line, socket);
      // If the removal fails, the watch is of another file that had this number before.
      if (event && ::epoll_ctl(set, EPOLL_CTL_DEL, socket, nullptr) == 0) watches_.push_back({set, *event});
    }
  }
}

EpollSets::~EpollSets() {
  for (Watch& watch : watches_) ::epoll_ctl(watch.set, EPOLL_CTL_ADD, socket_, &watch.event);
}

}  // namespace verbena::umad
