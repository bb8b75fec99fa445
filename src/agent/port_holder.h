// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace verbena::agent {

// Who has a UDP port, as far as /proc tells.
struct PortHolder {
  uint32_t uid = 0;
  uint64_t inode = 0;
};
std::vector<PortHolder> holders_of_port(uint16_t port);
// The process that has a socket open, as pid; empty if we may not look into it, or it is the kernel's own.
std::string process_with_socket(uint64_t inode);
// "iperf3 (pid 4711) of user 1000"; without the process if we may not see it. It goes to logs and terminals,
// and a process chooses its name: there are no control characters in it.
std::string describe_holder(const PortHolder& holder);

}  // namespace verbena::agent
