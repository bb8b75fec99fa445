// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/unique_fd.h"
#include "wire/roce/packet.h"

namespace verbena::test {

// Takes RoCEv2's UDP port of the network namespace, as a program that has nothing to do with Verbena might.
// The port is taken as long as the socket exists. No socket, and a failed test: it is taken already.
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
