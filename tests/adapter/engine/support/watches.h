// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena::engine {

// 62,500 epoll watches of a socket. Each message to it, and each message of it that is taken, wakes all of
// them within the other process's call.
class Watches {
 public:
  explicit Watches(int socket) {
    for (int i = 0; i < kEach; ++i) {
      copies_.emplace_back(::dup(socket));
      sets_.emplace_back(::epoll_create1(EPOLL_CLOEXEC));
    }
    for (const UniqueFd& set : sets_) {
      for (const UniqueFd& copy : copies_) {
        epoll_event nothing{EPOLLPRI, {}};
        EXPECT_EQ(::epoll_ctl(set.get(), EPOLL_CTL_ADD, copy.get(), &nothing), 0);
      }
    }
  }

 private:
  static constexpr int kEach = 250;
  std::vector<UniqueFd> copies_;
  std::vector<UniqueFd> sets_;
};

}  // namespace verbena::engine
