// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "control/model/message_socket.h"

namespace verbena::control::test {

// While it exists, the kernel limits the descriptors that this thread and its new threads send, as an
// ordinary user's.
class LimitedInFlight {
 public:
  LimitedInFlight() {
    EXPECT_EQ(::syscall(SYS_capget, &header_, before_.data()), 0);
    auto without = before_;
    for (const int capability : {CAP_SYS_RESOURCE, CAP_SYS_ADMIN}) {
      without[CAP_TO_INDEX(capability)].effective &= ~CAP_TO_MASK(capability);
    }
    EXPECT_EQ(::syscall(SYS_capset, &header_, without.data()), 0);
  }
  ~LimitedInFlight() { EXPECT_EQ(::syscall(SYS_capset, &header_, before_.data()), 0); }
  LimitedInFlight(const LimitedInFlight&) = delete;
  LimitedInFlight& operator=(const LimitedInFlight&) = delete;

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> before_{};
};

// While it exists, this user has more descriptors in unread messages than RLIMIT_NOFILE, as if a peer left
// its messages unread. Each sendmsg(2) with a descriptor fails with ETOOMANYREFS. REQUIRES: LimitedInFlight
class TooManyInFlight {
 public:
  TooManyInFlight() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit_), 0);
    std::array<int, 100> files;
    files.fill(ends_->ours.get());
    EXPECT_TRUE(send_message(ends_->ours.get(), std::array{std::byte{}}, files));
    const rlimit fewer{files.size() - 1, limit_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &fewer), 0);
  }
  ~TooManyInFlight() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit_), 0); }
  TooManyInFlight(const TooManyInFlight&) = delete;
  TooManyInFlight& operator=(const TooManyInFlight&) = delete;

 private:
  Result<SocketPair> ends_ = make_socket_pair();
  rlimit limit_{};
};

}  // namespace verbena::control::test
