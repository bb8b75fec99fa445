// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace verbena::agent {

// A socket that is bound to a UDP port, as /proc/net/udp lists it.
struct PortHolder {
  uint32_t uid = 0;
  uint64_t inode = 0;
};
std::vector<PortHolder> holders_of_port(uint16_t port);
// Returns the pid of a process that has the socket open. Empty if the agent may not look into the process, or
// the socket is the kernel's own.
std::string process_with_socket(uint64_t inode);
// Returns "iperf3 (pid 4711) of user 1000", or "a program of user 1000" if the process is not visible. The
// text goes to logs and terminals: it has no control characters, though a process chooses its name.
std::string describe_holder(const PortHolder& holder);

}  // namespace verbena::agent
