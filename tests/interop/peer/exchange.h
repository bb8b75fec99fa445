// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace verbena::interop {

using Words = std::vector<std::uint64_t>;

// The two programs' own connection, by which they keep step. Everything ends the program when the other end
// is gone.
class Exchange {
 public:
  static Exchange listen(int port);
  static Exchange connect(const std::string& host, int port);

  void tell(const Words& words);
  Words hear(std::size_t count);
  // What the other end says at the same point.
  Words swap(const Words& words);
  // Until the other end has come here, too.
  void meet();

 private:
  explicit Exchange(int fd) : fd_{fd} {}
  int fd_;
};

}  // namespace verbena::interop
