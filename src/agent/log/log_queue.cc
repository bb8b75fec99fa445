// SPDX-License-Identifier: Apache-2.0
#include "agent/log/log_queue.h"

#include <algorithm>
#include <utility>

namespace verbena::agent {

void LogQueue::add(std::string line) {
  is_failing_ = false;
  if (bytes_ + line.size() <= max_bytes_) {
    bytes_ += line.size();
    entries_.push_back({.line = std::move(line)});
    return;
  }
  if (entries_.empty() || entries_.back().dropped == 0) entries_.emplace_back();
  ++entries_.back().dropped;
}

LogQueue::Entry LogQueue::take() {
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  bytes_ -= entry.line.size();
  return entry;
}

void LogQueue::failed(const Entry& entry) {
  size_t dropped = std::max<size_t>(entry.dropped, 1);
  for (const Entry& one : entries_) dropped += std::max<size_t>(one.dropped, 1);
  entries_.clear();
  entries_.push_back({.line = {}, .dropped = dropped});
  bytes_ = 0;
  is_failing_ = true;
}

}  // namespace verbena::agent
