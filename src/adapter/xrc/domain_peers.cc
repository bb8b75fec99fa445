// SPDX-License-Identifier: Apache-2.0
#include "adapter/xrc/domain_peers.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/plain_calls.h"

namespace verbena::engine {
namespace {

using roce::NakCode;

// The agent may be restarting, so it is asked this often, and this many times before an owner counts as gone.
constexpr Duration kAskInterval = std::chrono::milliseconds(100);
constexpr uint32_t kMaxAsked = 20;

}  // namespace

DomainPeers::DomainPeers(Shard& shard, memory::KeyTable& keys, const queues::SharedReceiveQueueTable& queues,
                         Ask ask)
    : shard_(shard),
      keys_(keys),
      queues_(queues),
      ask_(std::move(ask)),
      flushing_([this] { take_care(); }),
      asking_([this] { ask_again(); }) {}

DomainPeers::~DomainPeers() {
  shard_.exclusively([&] {
    if (is_input_) shard_.remove_input(*this);
    shard_.cancel_alarm(flushing_);
    shard_.cancel_alarm(asking_);
    targets_.clear();
    owners_.clear();
  });
}

template <class Visit>
void DomainPeers::for_each_peer(Visit visit) {
  for (const auto& [key, owner] : owners_) visit(*owner);
  for (const auto& [key, target] : targets_) visit(*target);
}

// ---- called by the transport

uint32_t DomainPeers::new_run() {
  if (++last_run_ == 0) ++last_run_;
  return last_run_;
}

OwnerPeer* DomainPeers::find_owner(const Peer::Key& key) {
  const auto known = owners_.find(key);
  if (known != owners_.end()) return known->second.get();
  try {
    const auto made = owners_.emplace(key, std::make_unique<OwnerPeer>(shard_, key, *this)).first;
    ask(*made->second);
    return made->second.get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

bool DomainPeers::pass(const transport::ForwardedRequest& request) {
  const uint32_t slot = queues::SharedReceiveQueueTable::slot_of(request.packet.headers.xrc_srq);
  OwnerPeer* owner = find_owner({request.target.config().xrc_domain, slot});
  return owner != nullptr && owner->pass(request);
}

void DomainPeers::end(const transport::QueuePair& target) {
  const uint64_t domain = target.config().xrc_domain;
  for (auto at = owners_.lower_bound({domain, 0}); at != owners_.end() && at->first.domain == domain; ++at)
    at->second->end(target.config().qpn);
}

void DomainPeers::forget(const queues::SharedReceiveQueue& queue) {
  for (const auto& [key, target] : targets_) target->forget(queue);
}

// ---- links

void DomainPeers::ask(OwnerPeer& owner) {
  ++owner.asked;
  ask_(owner.key());
  set(asking_, kAskInterval);
}

void DomainPeers::ask_again() {
  asking_.is_set = false;
  std::vector<Peer::Key> silent;
  for (const auto& [key, owner] : owners_) {
    if (owner->link().is_open()) continue;
    if (owner->asked < kMaxAsked) {
      ask(*owner);
    } else {
      silent.push_back(key);
    }
  }
  for (const Peer::Key& key : silent) {
    owners_.erase(key);
    tell_gone(key, NakCode::kRemoteOperational);
  }
}

void DomainPeers::connect(control::DomainPeer news) {
  ForeignSocket socket(std::move(news.socket));
  const Peer::Key key{news.domain, news.slot};
  shard_.exclusively([&] {
    if (news.asked) {
      connect_owner(key, std::move(socket), news.error);
    } else if (socket) {
      connect_target(key, std::move(socket));
    }
  });
}

void DomainPeers::connect_owner(const Peer::Key& key, ForeignSocket socket, int error) {
  const auto at = owners_.find(key);
  if (at == owners_.end() || at->second->link().is_open()) return;
  if (!socket && error == EAGAIN) return;  // ask_again() repeats the question
  OwnerPeer& owner = *at->second;
  if (socket) owner.link().open(std::move(socket));
  if (owner.link().is_open() && listen_to(owner)) {
    if (owner.link().is_lost() || owner.link().has_waiting()) needs_care();
    return;
  }
  owners_.erase(at);
  // A queue that does not exist, or is in another domain, makes the request invalid (IBTA volume 1, annex
  // A14).
  tell_gone(key, error == ENOENT ? NakCode::kInvalidRequest : NakCode::kRemoteOperational);
}

// A process that asks twice because the agent is slow gets two links and keeps the first; so does this side.
// If it has given up the first, it has closed it before.
void DomainPeers::connect_target(const Peer::Key& key, ForeignSocket socket) {
  const auto known = targets_.find(key);
  if (known != targets_.end()) {
    if (!known->second->link().has_hung_up()) return;
    targets_.erase(known);
  }
  auto target = std::make_unique<TargetPeer>(shard_, keys_, queues_, key, *this, std::move(socket));
  if (listen_to(*target)) targets_[key] = std::move(target);
}

bool DomainPeers::listen_to(Peer& peer) {
  if (!poll_set_) poll_set_ = UniqueFd(plain_epoll_create());
  if (!peer.announce_in(poll_set_.get())) return false;
  if (!is_input_) is_input_ = shard_.add_input(*this).has_value();
  return is_input_;
}

void DomainPeers::leave(uint64_t domain) {
  shard_.exclusively([&] {
    const auto in_domain = [&](const auto& entry) { return entry.first.domain == domain; };
    std::erase_if(owners_, in_domain);
    std::erase_if(targets_, in_domain);
  });
}

uint32_t DomainPeers::receive(uint32_t budget, TimePoint) {
  std::array<epoll_event, 16> events;
  // Bypasses the C library, whose call is a cancellation point: the shard's lock is held.
  const long ready = ::syscall(SYS_epoll_pwait, poll_set_.get(), events.data(),
                               static_cast<int>(events.size()), 0, nullptr, 0);
  uint32_t received = 0;
  bool lost = false;
  for (long i = 0; i < ready; ++i) {
    auto& peer = *static_cast<Peer*>(events[static_cast<size_t>(i)].data.ptr);
    received += peer.receive(budget);
    lost |= peer.link().is_lost();
  }
  if (lost) remove_lost();
  return received;
}

void DomainPeers::remove_lost() {
  std::vector<Peer::Key> gone;
  for (const auto& [key, owner] : owners_) {
    if (owner->link().is_lost()) gone.push_back(key);
  }
  for (const Peer::Key& key : gone) owners_.erase(key);
  std::erase_if(targets_, [](const auto& entry) { return entry.second->link().is_lost(); });
  for (const Peer::Key& key : gone) tell_gone(key, NakCode::kRemoteOperational);
}

// Answers everything that waits for this owner.
void DomainPeers::tell_gone(const Peer::Key& owner, NakCode code) {
  shard_.for_each([&](transport::QueuePair& qp) {
    if (qp.config().owners != this || qp.config().xrc_domain != owner.domain) return;
    shard_.act_on(qp, [&] { qp.on_owner_gone(owner.slot, code); });
  });
}

// ---- links that need attention

void DomainPeers::set(Care& care, Duration after) {
  if (std::exchange(care.is_set, true)) return;
  shard_.set_alarm(care, after);
}

void DomainPeers::take_care() {
  flushing_.is_set = false;
  bool lost = false;
  bool full = false;
  for_each_peer([&](Peer& peer) {
    peer.link().flush();
    lost |= peer.link().is_lost();
    full |= peer.link().is_open() && peer.link().has_waiting();
  });
  if (lost) remove_lost();
  if (full) needs_care();
}

// In a child after fork(): leaves the links to the parent.
void DomainPeers::abandon() {
  for_each_peer([](Peer& peer) { peer.abandon(); });
  poll_set_.reset();
}

}  // namespace verbena::engine
