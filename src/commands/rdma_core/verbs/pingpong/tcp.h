// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace verbena::rdma_core {

// The TCP connection over which the ends exchange addresses. On failure these functions print the message of
// rdma-core's program and return an empty descriptor.
UniqueFd connect_to(const std::string& server, int port);
UniqueFd listen_on(int port, int waiting);
UniqueFd accept_on(const UniqueFd& listening, const std::string& for_whom = {});

// Reads exactly `size` bytes. False, with errno, if they do not all arrive; errno is 0 if the peer closed the
// connection. `read` holds the bytes received.
bool read_exactly(const UniqueFd& fd, size_t size, std::string& read);
bool write_all(const UniqueFd& fd, const std::string& bytes);

// Describes an error of read_exactly(), with 0 for a closed connection.
std::string reason(int error);

}  // namespace verbena::rdma_core
