// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/unique_fd.h"
#include "wire/roce/packet.h"

namespace verbena::test {

// Binds RoCEv2's UDP port in this network namespace, as a program unrelated to Verbena might. The port is
// taken as long as the socket exists. If it is taken already, fails the test and returns no socket.
inline UniqueFd take_roce_port() {
  UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(roce::kUdpPort);
  const int bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any);
  EXPECT_EQ(bound, 0);
  if (bound != 0) socket.reset();
  return socket;
}

}  // namespace verbena::test
