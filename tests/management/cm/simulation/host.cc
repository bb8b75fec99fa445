// SPDX-License-Identifier: Apache-2.0
#include "management/cm/simulation/host.h"

#include <gtest/gtest.h>

namespace verbena::cm {

Host::Host(uint8_t number, World& world, const Habits& habits, uint64_t seed)
    : Endpoint(number, {}, seed), world_(world), habits_(habits), random_(seed * 31 + number) {
  world_.settle(number, this);
}

Host::~Host() {
  world_.settle(host, nullptr);
}

void Host::think(LocalId id, std::function<void()> then) {
  const auto longest = static_cast<uint64_t>(habits_.longest_thought.count());
  const std::weak_ptr<int> alive = alive_;
  world_.after(Duration(static_cast<int64_t>(random_.below(longest))), [this, id, alive, then] {
    if (!alive.expired() && !fates_.at(id).destroyed) then();
  });
}

void Host::connect_to(const Host& other, uint32_t qpn) {
  const LocalId id = *manager.connect(parameters_to(other, qpn), 0, world_.now());
  fates_[id].is_active = true;
  if (chance(habits_.loses_heart)) {
    think(id, [this, id] {
      if (!fates_.at(id).established) destroy(id);
    });
  }
}

void Host::resolve(const Host& other) {
  SidrRequest parameters;
  parameters.path = path_to(other);
  const LocalId id = *manager.sidr_request(parameters, 0, world_.now());
  fates_[id].is_active = true;
}

void Host::take_up(const Host& old) {
  next_qpn_ = old.next_qpn_;  // the QPs survive
  for (const auto& [id, fate] : old.fates()) {
    if (!old.is_standing(id)) continue;
    const ConnectionInfo info = *old.manager.info(id);
    ASSERT_TRUE(manager.restore(info, 0, world_.now()));
    fates_[id] = fate;
  }
}

void Host::react(const Event& event) {
  const LocalId id = event.id;
  Fate& fate = fates_[id];
  switch (event.heard) {
    case Heard::kRequest:
      fate.remote_id = event.remote_id;
      return decide_on_request(id);
    case Heard::kReply:
      fate.remote_id = manager.info(id)->remote_id;
      return decide_on_reply(id);
    case Heard::kReady:
      return stand(id);
    case Heard::kDisconnectRequest:
      fate.over = true;
      return think(id, [this, id] {
        if (chance(50)) std::ignore = manager.confirm_disconnect(id, {}, world_.now());
        destroy(id);
      });
    case Heard::kRejected:
    case Heard::kUnreachable:
    case Heard::kDisconnected:
    case Heard::kSidrReply:
      return end(id);
    case Heard::kSidrRequest:
      return think(id, [this, id] {
        std::ignore = manager.sidr_reply(id, {}, world_.now());
        destroy(id);
      });
    default:
      return;
  }
}

void Host::decide_on_request(LocalId id) {
  if (chance(habits_.delays)) {
    const auto when = chance(50) ? Manager::MraTime::kNow : Manager::MraTime::kOnDuplicate;
    std::ignore = manager.delay(id, 21, when, {}, world_.now());
  }
  think(id, [this, id] { answer_request(id); });
}

void Host::answer_request(LocalId id) {
  if (chance(habits_.rejects)) {
    std::ignore = manager.reject(id, {}, world_.now());
    return end(id);
  }
  if (chance(habits_.loses_heart)) return destroy(id);
  std::ignore = manager.reply(id, reply_parameters(next_qpn_++), world_.now());
}

void Host::decide_on_reply(LocalId id) {
  if (chance(habits_.delays)) {
    std::ignore = manager.delay(id, 20, Manager::MraTime::kNow, {}, world_.now());
  }
  think(id, [this, id] { answer_reply(id); });
}

void Host::answer_reply(LocalId id) {
  if (chance(habits_.rejects)) {
    std::ignore = manager.reject(id, {}, world_.now());
    return end(id);
  }
  if (manager.ready(id, {}, world_.now())) stand(id);
}

void Host::stand(LocalId id) {
  fates_[id].established = true;
  if (!chance(habits_.disconnects)) return;
  think(id, [this, id] {
    if (fates_.at(id).over) return;
    fates_.at(id).over = true;
    if (chance(30)) return destroy(id);
    std::ignore = manager.disconnect(id, {}, world_.now());
  });
}

void Host::end(LocalId id) {
  fates_[id].over = true;
  think(id, [this, id] { destroy(id); });
}

void Host::destroy(LocalId id) {
  fates_[id].over = fates_[id].destroyed = true;
  std::ignore = manager.destroy(id, world_.now());
}

bool Host::is_standing(LocalId id) const {
  const Fate& fate = fates_.at(id);
  return fate.established && !fate.over;
}

void Host::wind_up() {
  for (auto& [id, fate] : fates_) {
    if (fate.destroyed) continue;
    if (is_standing(id)) {
      std::ignore = manager.disconnect(id, {}, world_.now());
    } else {
      destroy(id);
    }
  }
}

void Host::kill_application() {
  for (auto& [id, fate] : fates_) {
    if (!fate.destroyed) destroy(id);
  }
}

}  // namespace verbena::cm
