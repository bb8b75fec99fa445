// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena::test {

// Runs a shell command. Returns whether it succeeded.
inline bool shell(const std::string& command) {
  return std::system(command.c_str()) == 0;  // NOLINT(concurrency-mt-unsafe): tests are one thread
}

// A network namespace of the test's own with loopback up, which the thread is in while this object exists.
// Agent names and UDP port 4791 are per namespace, so concurrent tests do not interfere. For an ordinary user
// it is created in a user namespace, where the test is root.
class NetworkNamespace {
 public:
  NetworkNamespace() : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    entered_ = ::unshare(CLONE_NEWNET) == 0 || enter_as_user();
    if (entered_) entered_ = shell("ip link set lo up");
  }
  ~NetworkNamespace() {
    if (entered_) ::setns(before_.get(), CLONE_NEWNET);
  }
  bool entered() const { return entered_; }

 private:
  static bool enter_as_user() {
    const uid_t uid = ::geteuid();
    const gid_t gid = ::getegid();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1";
    std::ofstream("/proc/self/gid_map") << "0 " << gid << " 1";
    return ::geteuid() == 0;
  }

  UniqueFd before_;
  bool entered_ = false;
};

// A fixture that runs each test in its own network namespace, or skips it if that is impossible.
class NamespaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!namespace_.entered())
      GTEST_SKIP() << "no network namespace can be made here (neither root nor userns)";
  }

 private:
  NetworkNamespace namespace_;
};

}  // namespace verbena::test
