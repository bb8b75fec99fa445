// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/cleanup.h"

#include <algorithm>

#include <rdma/rdma_cma.h>

#include "agent/cm/client.h"
#include "agent/cm/service.h"
#include "management/cm/connection_table.h"
#include "wire/roce/qpn.h"

namespace verbena::agent {

void EndedListeners::add(const CmClient& client, uint16_t port, TimePoint now) {
  while (!listeners_.empty() &&
         (listeners_.size() == kMax || listeners_.front().ended + kRemembered <= now)) {
    listeners_.pop_front();
  }
  listeners_.push_back({&client, port, now});
}

bool EndedListeners::has(uint16_t port, TimePoint now) const {
  return std::ranges::any_of(listeners_, [&](const Listener& listener) {
    return listener.port == port && now < listener.ended + kRemembered;
  });
}

void EndedListeners::forget(const CmClient& client) {
  std::erase_if(listeners_, [&](const Listener& listener) { return listener.client == &client; });
}

namespace {

// Connections in one piece of a user's turn. Nothing keeps a program from having 131,072 with one QP.
constexpr int kAtOnce = 64;

}  // namespace

void EndedSlots::end(uint32_t slot, uid_t user) {
  endings_[slot] = {user, roce::Qpn::in_slot(slot, 0).value(), 0};
  if (end_some(slot)) service_.loop().in_turn_of(user, [this, slot] { return end_some(slot); });
}

bool EndedSlots::may_be_leased(uint32_t slot, bool to_another_user) const {
  if (endings_.contains(slot)) return false;
  if (!to_another_user) return true;
  const auto left = service_.manager().next_qp_holder(roce::Qpn::in_slot(slot, 0).value(), 0);
  return !left || roce::Qpn(left->qpn).slot() != slot;
}

bool EndedSlots::end_some(uint32_t slot) {
  const auto found = endings_.find(slot);
  if (found == endings_.end()) return false;
  Ending& ending = found->second;
  for (int i = 0; i < kAtOnce; ++i) {
    const auto next = service_.manager().next_qp_holder(ending.qpn, ending.id);
    if (!next || roce::Qpn(next->qpn).slot() != slot) {
      endings_.erase(found);
      return false;
    }
    if (next->has_owner) end_one(next->id, next->context, ending.user);
    ending.id = next->id + 1;
    ending.qpn = next->qpn + (ending.id == 0 ? 1 : 0);
  }
  return true;
}

// One that was being set up is heard of no more, so its program is told here.
void EndedSlots::end_one(cm::LocalId connection, uint64_t context, uid_t user) {
  CmIdentifier& id = *reinterpret_cast<CmIdentifier*>(context);
  if (id.client->user() != user) return;  // root may name any QP
  const auto info = service_.manager().info(connection);
  const bool is_being_set_up = info && cm::kRejectable.has(info->state);
  [[maybe_unused]] const auto ended = service_.manager().end(connection, MonotonicClock::now());
  service_.release_connection(id);
  if (is_being_set_up && id.state == CmState::kConnect) {
    id.client->emit(id, RDMA_CM_EVENT_UNREACHABLE, -ECONNABORTED);
  }
  service_.settle();
}

// Defined here, where CmClient is complete.
GoneClients::GoneClients(EventLoop& loop) : loop_(loop) {}
GoneClients::~GoneClients() = default;

void GoneClients::add(std::unique_ptr<CmClient> client) {
  client->go();
  const uid_t user = client->user();
  const bool is_little = client->clear(kAtOnce) < kAtOnce;
  if (is_little) return;
  std::list<std::unique_ptr<CmClient>> added;
  added.push_back(std::move(client));
  OfUser& of_user = users_[user];
  of_user.clients.splice(of_user.clients.end(), added);
  if (of_user.goes_on) return;
  loop_.in_turn_of(user, [this, user] {
    survive_lack_of_memory([&] { clear_some(user); });
    return users_.contains(user);
  });
  of_user.goes_on = true;
}

void GoneClients::clear_some(uid_t user) {
  const auto found = users_.find(user);
  if (found == users_.end()) return;
  auto& clients = found->second.clients;
  if (clients.front()->clear(kAtOnce) < kAtOnce) clients.pop_front();
  if (clients.empty()) users_.erase(found);
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
