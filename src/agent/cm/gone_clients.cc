// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/gone_clients.h"

#include <utility>

#include "agent/cm/client.h"

namespace verbena::agent {

// Defined here, where CmClient is complete.
GoneClients::GoneClients(EventLoop& loop) : loop_(loop) {}
GoneClients::~GoneClients() = default;

void GoneClients::add(std::unique_ptr<CmClient> client) {
  client->go();
  const uid_t user = client->user();
  const bool is_little = client->clear(kAtOnce) < kAtOnce;
  if (is_little) return;
  users_[user].clients.push_back(std::move(client));
  go_on(user);
}

void GoneClients::clear_some(uid_t user) {
  const auto found = users_.find(user);
  if (found == users_.end()) return;
  auto& clients = found->second.clients;
  if (clients.front()->clear(kAtOnce) < kAtOnce) clients.pop_front();
  if (clients.empty()) users_.erase(found);
}

void GoneClients::go_on(uid_t user) {
  if (std::exchange(users_.at(user).goes_on, true)) return;
  loop_.in_turn_of(user, [this, user] {
    clear_some(user);
    return users_.contains(user);
  });
}

bool GoneClients::clear_some_of(uid_t user) {
  if (!users_.contains(user)) return false;
  clear_some(user);
  return true;
}

void GoneClients::clear_all() {
  while (!users_.empty()) clear_some(users_.begin()->first);
}

}  // namespace verbena::agent
