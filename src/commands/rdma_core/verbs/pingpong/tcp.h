// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace verbena::rdma_core {

// The TCP connection over which the ends of a pingpong tell each other their addresses. What cannot be done
// is complained of, in the words of rdma-core's programs, and answered by an empty descriptor.
UniqueFd connect_to(const std::string& server, int port);
UniqueFd listen_on(int port, int waiting);
UniqueFd accept_on(const UniqueFd& listening, const std::string& for_whom = {});

// Reads so many bytes, however they come: false, with errno, if they do not. errno is 0 where the peer ended
// the connection. `read` is what came.
bool read_exactly(const UniqueFd& fd, size_t size, std::string& read);
bool write_all(const UniqueFd& fd, const std::string& bytes);

// Why it failed, for a complaint.
std::string reason(int error);

}  // namespace verbena::rdma_core
