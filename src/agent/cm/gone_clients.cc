// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/gone_clients.h"

#include <algorithm>
#include <utility>

#include "agent/cm/client.h"

namespace verbena::agent {

// Here, where a client's destructor is known.
GoneClients::GoneClients(EventLoop& loop) : loop_(loop) {}
GoneClients::~GoneClients() = default;

void GoneClients::add(std::unique_ptr<CmClient> client) {
  client->go();
  clear_some(clients_.insert(clients_.end(), std::move(client)));
  go_on();
}

void GoneClients::clear_some(Clients::iterator client) {
  if ((*client)->clear(kAtOnce) < kAtOnce) clients_.erase(client);
}

void GoneClients::go_on() {
  if (clients_.empty() || std::exchange(goes_on_, true)) return;
  loop_.in_next_round([this] {
    goes_on_ = false;
    if (!clients_.empty()) clear_some(clients_.begin());
    go_on();
  });
}

bool GoneClients::clear_some_of(uid_t user) {
  const auto found = std::ranges::find(clients_, user, [](const auto& each) { return each->user(); });
  if (found == clients_.end()) return false;
  clear_some(found);
  return true;
}

void GoneClients::clear_all() {
  while (!clients_.empty()) clear_some(clients_.begin());
}

}  // namespace verbena::agent
