// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/time.h"

namespace verbena::agent {

class CmClient;

// Ports that a program that still runs listened on until a moment ago, in whichever port space. It may be
// about to listen there again: perftest's -R exchanges its parameters over a first connection, ends that
// listener, and listens once more on the same port (for UD in the space of datagrams) while its client is
// already on the way to it. Where the server has no processor just then, the client is the first by far; a
// client that is refused then does not come again (up to 4.5-0.17 it uses what it has freed). Of the agent's
// thread.
class EndedListeners {
 public:
  static constexpr Duration kRemembered = std::chrono::seconds(1);
  static constexpr size_t kMax = 64;  // of more the oldest are forgotten

  // REQUIRES: `now` never goes back
  void add(const CmClient& client, uint16_t port, TimePoint now);
  bool has(uint16_t port, TimePoint now) const;
  // Its program has ended, and will not listen again.
  void forget(const CmClient& client);

 private:
  struct Listener {
    const CmClient* client;  // only to compare: it may be gone
    uint16_t port;
    TimePoint ended;
  };

  std::deque<Listener> listeners_;  // the one that ended first is in front
};

}  // namespace verbena::agent
