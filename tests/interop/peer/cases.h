// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "interop/peer/session.h"

namespace verbena::interop {

// A test case that both programs run at the same time: the client sends requests, the server is the target.
struct Case {
  std::string name;
  std::function<void(Session&)> run;
};

std::vector<Case> request_cases();   // a single request over RC or UC, and its outcome
std::vector<Case> window_cases();    // memory windows, invalidation
std::vector<Case> datagram_cases();  // UD, multicast
std::vector<Case> shared_receive_cases();

// Returns a short hash of a region's content, to compare the results of two runs.
std::string mark_of(const Region& region);
// Fills a region with content that differs between client and server.
void fill(Region& region, bool is_client);

}  // namespace verbena::interop
