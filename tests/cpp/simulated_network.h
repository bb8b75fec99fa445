// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <verbena/cm.hpp>

#include "cpp/simulated_world.h"

// Reliable connections in simulated time, with the credits and the shared receives of the real ones.
namespace verbena::testing {

class SimulatedEnd;

// A block of memory that ends with its buffer.
class SimulatedBlock final : public detail::block_owner {
 public:
  static buffer make(std::shared_ptr<SimulatedEnd> owner, std::size_t size, bool is_receive);
  void give_back(const slice&) override;

 private:
  SimulatedBlock(std::shared_ptr<SimulatedEnd> owner, std::size_t size, bool is_receive)
      : owner_(std::move(owner)), bytes_(size), is_receive_(is_receive) {}
  std::shared_ptr<SimulatedEnd> owner_;
  std::vector<std::byte> bytes_;
  const bool is_receive_;
};

// A request that is under way, and the coroutine that awaits it.
struct SimulatedRequest {
  bool is_send = false;
  bool is_update = false;
  remote_slice there;  // of a READ
  buffer held;
  bool is_done = false;
  bool has_failed = false;
  detail::waiter waiting;
};

template <class T>
class [[nodiscard]] SimulatedPending {
 public:
  explicit SimulatedPending(std::shared_ptr<SimulatedRequest> one) : one_(std::move(one)) {}
  SimulatedPending(SimulatedPending&&) noexcept = default;
  SimulatedPending& operator=(SimulatedPending&&) = delete;
  ~SimulatedPending() {
    if (one_) one_->waiting.forget();
  }
  bool await_ready() const { return one_->is_done; }
  void await_suspend(std::coroutine_handle<> coroutine) { one_->waiting.suspend(coroutine); }
  T await_resume() {
    if (one_->has_failed) throw exception(error("a simulated request", ECONNRESET));
    if constexpr (!std::is_void_v<T>) return std::move(one_->held);
  }

 private:
  std::shared_ptr<SimulatedRequest> one_;
};

// One end of a connection. Lives until its handle is gone, and its messages and requests have ended, as the
// real one does.
class SimulatedEnd : public std::enable_shared_from_this<SimulatedEnd> {
 public:
  static constexpr std::uint32_t kMessageSize = 512;
  static constexpr std::uint32_t kReceives = 17;
  static constexpr std::uint32_t kSends = 32;

  SimulatedEnd(SimulatedWorld& world, bool is_server) : world_(world), is_server_(is_server) {
    ++world_.counts.ends;
    if (!is_server) posted_ = kReceives;
  }
  SimulatedEnd(const SimulatedEnd&) = delete;
  SimulatedEnd& operator=(const SimulatedEnd&) = delete;
  ~SimulatedEnd() {
    --world_.counts.ends;
    if (share_.size() != 0) world_.shares->leave(share_);
  }

  bool join() {
    if (!world_.shares->join(share_, kReceives)) return false;
    world_.fill();
    return true;
  }
  void meet(const std::shared_ptr<SimulatedEnd>& peer) {
    peer_ = peer;
    const std::uint32_t theirs = peer->is_server_ ? peer->share_.size() : kReceives;
    credits_.meet(detail::hello{theirs, kMessageSize, kReceives});
    credits_.begin(is_server_ ? share_.size() : kReceives);
  }

  std::shared_ptr<SimulatedRequest> submit(std::shared_ptr<SimulatedRequest> one) {
    if (!is_open_) return end(*one, true), one;
    waiting_.push_back(one);
    flush();
    return one;
  }
  buffer take_message() {
    if (received_.empty()) return {};
    buffer first = std::move(received_.front());
    received_.pop_front();
    return first;
  }
  bool has_message() const { return !received_.empty(); }
  bool is_at_end() const { return received_.empty() && !is_open_ && arriving_ == 0; }
  bool is_idle() const { return waiting_.empty() && under_way_ == 0; }
  bool is_drained() const { return !is_open_ && under_way_ == 0 && arriving_ == 0; }
  bool is_open() const { return is_open_; }

  // Disconnects, and tells the peer after what was sent.
  void disconnect() {
    if (!std::exchange(is_open_, false)) return;
    const auto kept = shared_from_this();
    for (const auto& each : std::exchange(waiting_, {})) end(*each, true);
    if (const auto peer = peer_.lock()) world_.at(next_arrival(), [peer] { peer->disconnect(); });
    wake();
  }
  // The program's handle is gone.
  void release() {
    const auto kept = shared_from_this();
    disconnect();
    received_.clear();
  }
  // The process of this end is gone: the rest of what it has sent may be lost, and its peer learns of it
  // late.
  void kill() {
    is_killed_ = true;
    if (const auto peer = peer_.lock()) {
      const auto late = world_.random_time(std::chrono::milliseconds(200));
      world_.after(late, [peer] { peer->disconnect(); });
    }
    const auto kept = shared_from_this();
    is_open_ = false;
    for (const auto& each : std::exchange(waiting_, {})) end(*each, true);
    wake();
  }

  // A receive is free again.
  void post_receive() {
    if (is_server_) {
      ++world_.posted;
      if (!is_open_) return;
      credits_.add_freed(world_.shares->on_freed(share_));
      world_.fill();
    } else {
      ++posted_;
      credits_.add_freed(1);
    }
    return_credits();
  }
  void count_bytes(std::ptrdiff_t change) {
    bytes_ += static_cast<std::size_t>(change);
    world_.counts.max_bytes_of_an_end = std::max(world_.counts.max_bytes_of_an_end, bytes_);
  }
  SimulatedWorld& world() { return world_; }
  std::string peer_host;  // of the server
  detail::list<detail::waiter> receiving, draining;

 private:
  void wake() {
    world_.io().wake_all(receiving);
    world_.io().wake_all(draining);
  }
  void end(SimulatedRequest& one, bool has_failed) {
    one.is_done = true;
    one.has_failed = has_failed;
    if (one.waiting.is_suspended()) world_.io().wake(one.waiting);
  }
  // Requests arrive in order.
  time_point next_arrival() {
    const auto delay = std::chrono::microseconds(2) + world_.random_time(std::chrono::microseconds(100));
    last_arrival_ = std::max(last_arrival_ + std::chrono::nanoseconds(1), world_.now() + delay);
    return last_arrival_;
  }
  void flush() {
    while (!waiting_.empty() && under_way_ < kSends) {
      const auto one = waiting_.front();
      if (one->is_send && !credits_.may_send(one->is_update)) return;
      waiting_.pop_front();
      ++under_way_;
      const std::uint32_t word = one->is_send ? credits_.spend(one->is_update) : 0;
      world_.at(next_arrival(), [self = shared_from_this(), one, word] { self->arrive(one, word); });
    }
  }
  // The request arrives at the peer. Its acknowledgement comes later.
  void arrive(const std::shared_ptr<SimulatedRequest>& one, std::uint32_t word) {
    const auto peer = peer_.lock();
    if (is_killed_ && !is_lost_) is_lost_ = world_.chance(3);
    const bool has_arrived = peer && peer->is_open_ && !is_lost_;
    if (has_arrived && one->is_send) peer->receive(one->held.bytes(), word);
    if (has_arrived && !one->is_send) read(*one);
    world_.after(world_.random_time(std::chrono::microseconds(50)),
                 [self = shared_from_this(), one, has_arrived] {
                   --self->under_way_;
                   self->end(*one, !has_arrived || !self->is_open_);
                   if (one->is_send) one->held = {};
                   self->flush();
                   self->return_credits();
                   if (self->is_idle()) self->wake();
                 });
  }
  // Takes a receive. Some messages are longer than a packet: their connection may end before their last one.
  void receive(std::span<const std::byte> bytes, std::uint32_t word) {
    ++world_.counts.messages;
    world_.counts.hash = world_.counts.hash * 31 +
                         static_cast<std::uint64_t>(world_.now().time_since_epoch().count()) + bytes.size();
    if (is_server_) {
      world_.take_receive();
    } else if (posted_ == 0) {
      ++world_.counts.missing_receives;
    } else {
      --posted_;
    }
    if (!credits_.take_in(word)) ++world_.counts.wrong_credits;
    ++arriving_;
    const auto self = shared_from_this();
    if (detail::credits::is_update(word)) {
      world_.at(world_.now(), [self] { self->received_update(); });
      return;
    }
    buffer message = SimulatedBlock::make(self, bytes.size(), true);
    if (!bytes.empty()) std::memcpy(message.data(), bytes.data(), bytes.size());
    last_message_ = std::max(last_message_, world_.now());
    if (world_.chance(8)) last_message_ += world_.random_time(std::chrono::microseconds(30));
    const auto kept = std::make_shared<buffer>(std::move(message));
    world_.at(last_message_, [self, kept] { self->received(std::move(*kept)); });
  }
  void received_update() {
    --arriving_;
    post_receive();
    flush();
    wake();
  }
  void received(buffer message) {
    --arriving_;
    if (is_open_) received_.push_back(std::move(message));
    flush();
    return_credits();
    wake();
  }
  // Memory of the peer: it must be there, unless the peer's process is gone.
  void read(SimulatedRequest& one) {
    const auto found = world_.memory.find(one.there.address);
    if (found == world_.memory.end()) {
      if (const auto peer = peer_.lock(); peer && peer->is_open_ && !peer->is_killed_)
        ++world_.counts.wrong_reads;
      return;
    }
    std::memcpy(one.held.data(), found->second, one.there.size);
  }
  void return_credits() {
    if (!is_open_ || under_way_ == kSends || !credits_.are_due(is_server_ ? share_.size() : kReceives))
      return;
    auto update = std::make_shared<SimulatedRequest>();
    update->is_send = update->is_update = true;
    waiting_.push_front(std::move(update));
    flush();
  }

  SimulatedWorld& world_;
  const bool is_server_;
  std::weak_ptr<SimulatedEnd> peer_;
  bool is_open_ = true;
  bool is_killed_ = false;
  bool is_lost_ = false;  // what it has sent, from now on
  detail::credits credits_;
  detail::receive_shares::share share_;  // of the server
  std::uint32_t posted_ = 0;             // of the client
  std::uint32_t under_way_ = 0;
  std::uint32_t arriving_ = 0;
  std::size_t bytes_ = 0;
  std::deque<std::shared_ptr<SimulatedRequest>> waiting_;
  std::deque<buffer> received_;
  time_point last_arrival_{}, last_message_{};
};

inline buffer SimulatedBlock::make(std::shared_ptr<SimulatedEnd> owner, std::size_t size, bool is_receive) {
  ++owner->world().counts.blocks;
  if (!is_receive) owner->count_bytes(static_cast<std::ptrdiff_t>(size));
  auto* const made = new SimulatedBlock(std::move(owner), size, is_receive);
  return {slice(made->bytes_, 0), *made};
}
inline void SimulatedBlock::give_back(const slice&) {
  --owner_->world().counts.blocks;
  if (is_receive_) {
    owner_->post_receive();
  } else {
    owner_->count_bytes(-static_cast<std::ptrdiff_t>(bytes_.size()));
  }
  delete this;
}

// Memory that the peer may read.
class SimulatedRegion {
 public:
  SimulatedRegion(SimulatedWorld& world, std::size_t size)
      : world_(&world), key_(world.next_key++), bytes_(size) {
    ++world_->counts.regions;
    world_->memory[key_] = bytes_.data();
  }
  SimulatedRegion(SimulatedRegion&& other) noexcept
      : world_(std::exchange(other.world_, nullptr)), key_(other.key_), bytes_(std::move(other.bytes_)) {}
  SimulatedRegion& operator=(SimulatedRegion&&) = delete;
  ~SimulatedRegion() {
    if (world_ == nullptr) return;
    --world_->counts.regions;
    world_->memory.erase(key_);
  }
  std::byte* data() { return bytes_.data(); }
  remote_slice remote() const { return {key_, bytes_.size(), 0}; }

 private:
  SimulatedWorld* world_;
  std::uint64_t key_;
  std::vector<std::byte> bytes_;
};

// Has what calls need of verbena::connection.
class SimulatedConnection {
 public:
  explicit SimulatedConnection(std::shared_ptr<SimulatedEnd> end) : end_(std::move(end)) {}
  SimulatedConnection(SimulatedConnection&&) noexcept = default;
  SimulatedConnection& operator=(SimulatedConnection&&) = delete;
  ~SimulatedConnection() {
    if (end_) end_->release();
  }

  buffer make_buffer(std::size_t size) { return SimulatedBlock::make(end_, size, false); }
  std::size_t max_message_size() const { return SimulatedEnd::kMessageSize; }
  const std::string& peer_host() const { return end_->peer_host; }
  SimulatedPending<void> send(buffer message) {
    auto one = std::make_shared<SimulatedRequest>();
    one->is_send = true;
    one->held = std::move(message);
    return SimulatedPending<void>(end_->submit(std::move(one)));
  }
  SimulatedPending<buffer> read(const remote_slice& there) {
    auto one = std::make_shared<SimulatedRequest>();
    one->there = there;
    one->held = make_buffer(there.size);
    return SimulatedPending<buffer>(end_->submit(std::move(one)));
  }
  SimulatedRegion share(std::size_t size, access) { return {end_->world(), size}; }
  task<buffer> receive() {
    const auto kept = end_;
    const auto is_ready = [&] { return kept->has_message() || kept->is_at_end(); };
    while (!is_ready()) co_await detail::wait_in(kept->receiving, is_ready);
    co_return kept->take_message();
  }
  task<> close() {
    const auto kept = end_;
    while (kept->is_open() && !kept->is_idle())
      co_await detail::wait_in(kept->draining, [&] { return !kept->is_open() || kept->is_idle(); });
    kept->disconnect();
    while (!kept->is_drained()) co_await detail::wait_in(kept->draining, [&] { return kept->is_drained(); });
  }
  void disconnect() { end_->disconnect(); }

 private:
  std::shared_ptr<SimulatedEnd> end_;
};

class SimulatedListener {
 public:
  SimulatedListener(loop& io, std::string_view, const connection_options&)
      : world_(io.service<SimulatedWorld>()) {
    world_.listening = this;
  }
  SimulatedListener(const SimulatedListener&) = delete;
  SimulatedListener& operator=(const SimulatedListener&) = delete;
  ~SimulatedListener() { world_.listening = nullptr; }
  task<SimulatedConnection> accept() {
    while (ready_.empty()) co_await detail::wait_in(accepting_, [this] { return !ready_.empty(); });
    SimulatedConnection next = std::move(ready_.front());
    ready_.pop_front();
    co_return next;
  }
  void add(const std::shared_ptr<SimulatedEnd>& end) {
    ready_.emplace_back(end);
    if (!accepting_.empty()) world_.io().wake(accepting_.front());
  }

 private:
  SimulatedWorld& world_;
  std::deque<SimulatedConnection> ready_;
  detail::list<detail::waiter> accepting_;
};

// The processes of the clients, each on a host of its own, by the address that they connect to: kill() ends
// their connections.
class SimulatedProcesses {
 public:
  explicit SimulatedProcesses(loop&) {}
  void add(const std::string& where, const std::shared_ptr<SimulatedEnd>& end) {
    auto& all = ends_[where];
    std::erase_if(all, [](const auto& each) { return each.expired(); });
    all.push_back(end);
  }
  void kill(const std::string& where) {
    for (const auto& each : std::exchange(ends_[where], {})) {
      if (const auto end = each.lock()) end->kill();
    }
  }

 private:
  std::map<std::string, std::vector<std::weak_ptr<SimulatedEnd>>> ends_;
};

struct SimulatedNetwork {
  using connection = SimulatedConnection;
  using listener = SimulatedListener;

  // The handshake: a request, a reply, and an acknowledgement.
  static task<SimulatedConnection> connect(loop& io, std::string where, const connection_options&) {
    SimulatedWorld& world = io.service<SimulatedWorld>();
    const auto leg = [&] {
      return std::chrono::microseconds(5) + world.random_time(std::chrono::microseconds(200));
    };
    const auto own = std::make_shared<SimulatedEnd>(world, false);
    SimulatedConnection made(own);
    io.service<SimulatedProcesses>().add(where, own);
    co_await io.sleep(leg());
    auto there = std::make_shared<SimulatedEnd>(world, true);
    if (world.listening == nullptr || !there->join()) {
      ++world.counts.refused;
      co_await io.sleep(leg());
      throw exception(error("connect", ECONNREFUSED, where));
    }
    there->peer_host = where;
    own->meet(there);
    there->meet(own);
    const duration back = leg();
    world.after(back + leg(), [&world, there] {
      if (world.listening != nullptr && there->is_open()) {
        world.listening->add(there);
      } else {
        there->disconnect();
      }
    });
    there.reset();
    co_await io.sleep(back);
    if (!own->is_open()) throw exception(error("connect", ECONNRESET, where));
    co_return made;
  }
};

}  // namespace verbena::testing
