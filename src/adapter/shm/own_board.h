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

// 16 random bytes in this process's memory, and where they lie. Another process that reads it and finds them
// there reads this process, and the program that it said it was.
struct Cookie {
  static constexpr size_t kBytes = 16;
  std::array<std::byte, kBytes> bytes{};
};

// What this process shows to others of its keys and QPs (adapter/shm/board.h), and who may be using it. One
// for a process. Thread-safe.
class OwnBoard final : public memory::KeyPublisher {
 public:
  // nullptr: the kernel has not what it takes. Then no other process comes to our memory.
  static std::unique_ptr<OwnBoard> make();
  ~OwnBoard() override;

  // KeyPublisher
  void publish(const memory::Opening& opening) override;
  void withdraw(uint32_t key) override;
  void await_users() override;
  uint64_t users() override;
  bool are_gone(uint64_t users) override;

  // The QP has changed. With its shard's lock.
  void show(const transport::QueuePair& qp);
  void show(const shm::BoardQp& qp);
  // It is about to go, or its shard.
  void hide(roce::Qpn qpn);

  // For the processes that are to see it, mapped read-only: they cannot write the file.
  int file() const { return file_.get(); }
  const Cookie& cookie() const { return cookie_; }

  // Another process's channel; see AccessWatch.
  std::shared_ptr<AccessWatch::Visitor> admit(std::shared_ptr<ChannelMapping> memory, shm::Lane& lane) {
    return watch_.add(std::move(memory), lane);
  }
  void dismiss(const std::shared_ptr<AccessWatch::Visitor>& visitor, bool gone);

  // In a child after fork(): it is the parent's.
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }

 private:
  OwnBoard(shm::Board* board, UniqueFd file);
  bool is_abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

  shm::Board* const board_;
  const OwnFd file_;
  Cookie cookie_;
  std::atomic<bool> abandoned_{false};
  shm::BoardWriter writer_;  // of keys with the key table's lock, of QPs with this one:
  SpinLock qps_lock_;
  AccessWatch watch_;
};

}  // namespace verbena::engine
