// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace verbena::interop {

using Words = std::vector<std::uint64_t>;

// A TCP connection between the two programs, which synchronizes them. All functions end the program if the
// other end is gone.
class Exchange {
 public:
  static Exchange listen(int port);
  static Exchange connect(const std::string& host, int port);

  void tell(const Words& words);
  Words hear(std::size_t count);
  // Sends `words` and returns those that the other end sends at the same point.
  Words swap(const Words& words);
  // Waits until the other end calls meet(), too.
  void meet();

 private:
  explicit Exchange(int fd) : fd_{fd} {}
  int fd_;
};

}  // namespace verbena::interop
