// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter/shm/own_board.h"
#include "adapter/shm/peer_memory.h"

namespace verbena::engine::peer_memory_testing {

inline constexpr unsigned kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr uint32_t kKey = 0x1200;
inline constexpr size_t kBytes = 1 << 17;

// A mapping of kBytes: private memory, a file, or an existing mapping that it takes over.
class Pages {
 public:
  struct Mapped {
    void* at;
    bool writable = true;
  };
  explicit Pages(Mapped mapped) : at_(static_cast<std::byte*>(mapped.at)) {
    if (at_ == MAP_FAILED) std::abort();
    if (mapped.writable) fill(1);
  }
  explicit Pages(int file = -1, int protection = PROT_READ | PROT_WRITE)
      : at_(static_cast<std::byte*>(::mmap(nullptr, kBytes, protection,
                                           file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0))) {
    if (at_ == MAP_FAILED) std::abort();
    if ((protection & PROT_WRITE) != 0) fill(1);
  }
  ~Pages() { ::munmap(at_, kBytes); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  void fill(int value) const { std::memset(at_, value, kBytes); }
  bool are(int value) const {
    return at_[0] == static_cast<std::byte>(value) && std::memcmp(at_, at_ + 1, kBytes - 1) == 0;
  }
  std::byte* get() const { return at_; }

 private:
  std::byte* const at_;
};

// A process whose memory others access directly: this process itself, or a child that has a copy of it.
class Target {
 public:
  explicit Target(int file = -1, int protection = PROT_READ | PROT_WRITE) : pages(file, protection) {
    show();
  }
  explicit Target(Pages::Mapped mapped) : pages(mapped) { show(); }
  void publish(memory::Access access = kAll) const {
    memory::Opening opening;
    opening.base = pages.get();
    opening.length = kBytes;
    opening.access = access;
    opening.pd = 1;
    opening.key = kKey;
    own->publish(opening);
  }
  // Withdraws the key, as deregistration does.
  void withdraw() const {
    own->withdraw(kKey);
    own->await_users();
  }
  Presentation presentation() const {
    Presentation said{};
    said.cookie_address = reinterpret_cast<uintptr_t>(own->cookie().bytes.data());
    std::memcpy(said.cookie, own->cookie().bytes.data(), sizeof said.cookie);
    return said;
  }

  static shm::BoardQp qp() {
    return {.qpn = 5,
            .pd = 1,
            .access = kAll,
            .destination = 6,
            .receive_psn = 7,
            .send_psn = 8,
            .takes_reads = true};
  }

  Pages pages;
  std::unique_ptr<OwnBoard> own = OwnBoard::make();

 private:
  void show() const {
    own->show(qp());
    publish();
  }
};

// A process that accesses the target's memory.
struct Initiator {
  explicit Initiator(const Target& target, pid_t process = ::getpid(), uid_t user = ::getuid()) {
    auto made = ChannelMapping::make();
    if (!made) throw std::bad_alloc();
    channel = std::make_shared<ChannelMapping>(std::move(made->first));
    visitor = target.own->admit(channel, lane());
    lane().reader_sleeps = 1;
    memory = PeerMemory::open(target.presentation(), target.own->file(), {process, user, 0}, lane()).memory;
  }
  shm::Lane& lane() const { return channel->memory().lanes[0]; }
  static shm::AccessRequest request(uint64_t address, uint64_t bytes, memory::Access wanted) {
    return {.qpn = 5,
            .from = 6,
            .first_psn = 7,
            .rkey = kKey,
            .address = address,
            .bytes = bytes,
            .wanted = wanted};
  }
  bool read(uint64_t address, std::span<std::byte> to) const {
    const ConstBytes piece = to;
    return memory->read(request(address, to.size(), IBV_ACCESS_REMOTE_READ), 0, to.size(), {&piece, 1});
  }
  bool write(uint64_t address, ConstBytes from) const {
    return memory->write(request(address, from.size(), IBV_ACCESS_REMOTE_WRITE), 0, from.size(), {&from, 1});
  }
  std::optional<uint64_t> add(uint64_t address, uint64_t addend) const {
    return memory->change(request(address, 8, IBV_ACCESS_REMOTE_ATOMIC), {.swap_add = addend});
  }
  // Uses the key often enough to trigger a look-up. Returns whether its memory is then mapped.
  bool maps() const {
    for (uint32_t i = 0; i < MappedRegions::kUsesBeforeLook; ++i) memory->is_mapped(kKey);
    return memory->is_mapped(kKey);
  }
  // The same after an earlier look-up; the next one may be delayed, so this waits up to 20 seconds.
  bool maps_again() const {
    const TimePoint end = MonotonicClock::now() + std::chrono::seconds(20);
    while (MonotonicClock::now() < end) {
      if (memory->is_mapped(kKey)) return true;
    }
    return false;
  }

  std::shared_ptr<ChannelMapping> channel;
  std::shared_ptr<AccessWatch::Visitor> visitor;
  std::unique_ptr<PeerMemory> memory;
};

inline bool are(ConstBytes bytes, int value) {
  return bytes[0] == static_cast<std::byte>(value) &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

// Checks that the target's memory, which begins with `value`, is mapped while the target is awake, and can be
// read but not written.
inline void expect_only_read(const Initiator& initiator, int value) {
  initiator.lane().reader_sleeps = 0;
  ASSERT_TRUE(initiator.maps());
  std::array<std::byte, 8> bytes;
  bytes.fill(std::byte{0xff});
  EXPECT_TRUE(initiator.read(0, bytes));
  EXPECT_TRUE(are(bytes, value));
  EXPECT_FALSE(initiator.write(0, bytes));
  EXPECT_EQ(initiator.add(0, 1), std::nullopt);
}

}  // namespace verbena::engine::peer_memory_testing
