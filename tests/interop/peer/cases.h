// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "interop/peer/session.h"

namespace verbena::interop {

// What both programs do at the same time: the client asks, the server answers.
struct Case {
  std::string name;
  std::function<void(Session&)> run;
};

std::vector<Case> request_cases();   // one request over RC or UC, and what becomes of it
std::vector<Case> window_cases();    // memory windows, invalidation
std::vector<Case> datagram_cases();  // UD, multicast
std::vector<Case> shared_receive_cases();

// The content of a region in few letters: two runs that moved the same bytes say the same.
std::string mark_of(const Region& region);
// A region whose content tells the client's from the server's.
void fill(Region& region, bool is_client);

}  // namespace verbena::interop
