// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/time.h"

namespace verbena::agent {

class CmClient;

// Remembers for a second the ports on which running programs have stopped listening. A program may listen
// there again soon, so requests to these ports wait up to a second before they are refused. The port space
// does not matter.
//
// A perftest server with -R exchanges parameters over a first connection, then ends that listener. It listens
// again on the same port, for UD in another port space. Its client connects without waiting for that, and may
// be far ahead if the server gets no processor. A refused perftest client does not retry; up to version
// 4.5-0.17 it uses freed memory. For the agent's thread.
class EndedListeners {
 public:
  static constexpr Duration kRemembered = std::chrono::seconds(1);
  static constexpr size_t kMax = 64;  // maximum number of ports; a further one replaces the oldest

  // Adds a port on which the client has stopped listening. REQUIRES: `now` never decreases
  void add(const CmClient& client, uint16_t port, TimePoint now);
  // Returns whether a running program stopped listening on the port less than kRemembered ago.
  bool has(uint16_t port, TimePoint now) const;
  // Removes the ports of this client, whose program has ended: it will not listen there again.
  void forget(const CmClient& client);

 private:
  struct Listener {
    const CmClient* client;  // only for comparison: may be dangling
    uint16_t port;
    TimePoint ended;
  };

  std::deque<Listener> listeners_;  // in the order of their end
};

}  // namespace verbena::agent
