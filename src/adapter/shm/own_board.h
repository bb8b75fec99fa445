// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "adapter/memory/key_table.h"
#include "adapter/shm/access_watch.h"
#include "adapter/shm/board.h"
#include "adapter/transport/queue_pair.h"
#include "base/own_fd.h"
#include "base/spin_lock.h"

namespace verbena::engine {

// 16 random bytes in this process's memory. Another process is told the bytes and their address
// (Presentation). If it reads the same bytes at that address, it has reached this very process, which has not
// called exec() since.
struct Cookie {
  static constexpr size_t kBytes = 16;
  std::array<std::byte, kBytes> bytes{};
};

// This process's export table: the keys and QPs that it shows to other processes (board.h). Also knows which
// of these processes may access its memory now (AccessWatch). One for a process. Thread-safe.
class OwnBoard final : public memory::KeyPublisher {
 public:
  // Returns nullptr if the kernel lacks what this needs. Then no other process accesses our memory directly.
  static std::unique_ptr<OwnBoard> make();
  ~OwnBoard() override;

  // KeyPublisher
  void publish(const memory::Opening& opening) override;
  void withdraw(uint32_t key) override;
  void await_users() override;
  uint64_t users() override;
  bool are_gone(uint64_t users) override;

  // Updates the QP in the table, or removes it if it accepts no direct access. Called after each change.
  // REQUIRES: its shard's lock is held
  void show(const transport::QueuePair& qp);
  void show(const shm::BoardQp& qp);
  // Removes the QP from the table, before it or its shard is destroyed.
  void hide(roce::Qpn qpn);

  // Returns the table's file, for the processes that may see the table. They can map it only read-only. The
  // OwnBoard owns the descriptor.
  int file() const { return file_.get(); }
  const Cookie& cookie() const { return cookie_; }

  // admit() adds a channel by which another process may access our memory, and dismiss() ends this; see
  // AccessWatch::add() and end().
  std::shared_ptr<AccessWatch::Visitor> admit(std::shared_ptr<ChannelMapping> memory, shm::Lane& lane) {
    return watch_.add(std::move(memory), lane);
  }
  void dismiss(const std::shared_ptr<AccessWatch::Visitor>& visitor, bool gone);

  // For a child after fork(), where the table is still the parent's. From now on all functions that change
  // the table or wait do nothing, except show(const shm::BoardQp&), which must not be called.
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }

 private:
  OwnBoard(shm::Board* board, UniqueFd file);
  bool is_abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

  shm::Board* const board_;
  const OwnFd file_;
  Cookie cookie_;
  std::atomic<bool> abandoned_{false};
  shm::BoardWriter writer_;  // keys: under the key table's lock; QPs: under the next lock
  SpinLock qps_lock_;
  AccessWatch watch_;
};

}  // namespace verbena::engine
