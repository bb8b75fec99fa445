// SPDX-License-Identifier: Apache-2.0
// System V segments of another process, as a user has them who is not root: the kernel lets root alone have
// the file behind one (mapped_memory_test.cc), all others attach it (peer_mapping.h).
#include <array>
#include <cstdio>
#include <functional>
#include <optional>

#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/engine/support/peer_memory_target.h"
#include "adapter/memory/guarded.h"
#include "adapter/shm/peer_mapping.h"
#include "base/unique_fd.h"

namespace verbena::engine {
namespace {

using peer_memory_testing::are;
using peer_memory_testing::Initiator;
using peer_memory_testing::kBytes;
using peer_memory_testing::kKey;
using peer_memory_testing::Pages;
using peer_memory_testing::Target;

class Segment {
 public:
  explicit Segment(size_t bytes = kBytes, int flags = 0)
      : id_(::shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600 | flags)) {}
  ~Segment() { remove(); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  int id() const { return id_; }
  void remove() {
    if (id_ >= 0) ::shmctl(id_, IPC_RMID, nullptr);
    id_ = -1;
  }
  Pages::Mapped attach(int flags = 0) const {
    return {::shmat(id_, nullptr, flags), (flags & SHM_RDONLY) == 0};
  }
  void set_mode(unsigned short mode) const {
    shmid_ds is{};
    is.shm_perm.uid = ::geteuid();
    is.shm_perm.gid = ::getegid();
    is.shm_perm.mode = mode;
    ASSERT_EQ(::shmctl(id_, IPC_SET, &is), 0);
  }
  // How often it is attached.
  unsigned long attachments() const { return state().shm_nattch; }

 private:
  shmid_ds state() const {
    shmid_ds is{};
    EXPECT_EQ(::shmctl(id_, IPC_STAT, &is), 0);
    return is;
  }
  int id_;
};

// A copy of this process, which lies there until it is not needed.
class Copy {
 public:
  Copy() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Copy() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

// In a child, whose test has failed if the child's part has.
void in_a_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Who changes to another user is not to be looked at by that user unless it says so.
void become_an_ordinary_user() {
  constexpr uid_t kUser = 65534;
  if (::geteuid() != 0) return;
  ASSERT_EQ(::setgroups(0, nullptr), 0);
  ASSERT_EQ(::setresgid(kUser, kUser, kUser), 0);
  ASSERT_EQ(::setresuid(kUser, kUser, kUser), 0);
  ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 1), 0);
}

class SystemVMemory : public ::testing::Test {
 protected:
  void SetUp() override { memory::install_fault_guard(); }
  static void as_an_ordinary_user(const std::function<void()>& body) {
    in_a_child([&] {
      become_an_ordinary_user();
      if (!HasFatalFailure()) body();
    });
  }
};

TEST_F(SystemVMemory, OfAnotherProcessIsReadWrittenAndChangedWhileThatIsAwake) {
  as_an_ordinary_user([] {
    const Segment segment;
    const Target target(segment.attach());
    const Copy owner;
    ASSERT_EQ(segment.attachments(), 2u);
    const Initiator initiator(target, owner.pid());
    ASSERT_NE(initiator.memory, nullptr);
    initiator.lane().reader_sleeps = 0;
    ASSERT_TRUE(initiator.maps());
    EXPECT_EQ(segment.attachments(), 3u);
    std::array<std::byte, 8> bytes;
    bytes.fill(std::byte{9});
    EXPECT_TRUE(initiator.write(kBytes - 8, bytes));
    EXPECT_TRUE(are({target.pages.get() + kBytes - 8, 8}, 9));
    bytes.fill(std::byte{0});
    EXPECT_TRUE(initiator.read(kBytes - 8, bytes));
    EXPECT_TRUE(are(bytes, 9));
    std::memset(target.pages.get(), 0, 8);
    EXPECT_EQ(initiator.add(0, 5), 0u);
    EXPECT_EQ(initiator.add(0, 1), 5u);
    EXPECT_FALSE(initiator.write(kBytes - 7, bytes));
  });
}

// Its permissions are as before, and the next who comes finds it by its identifier.
TEST_F(SystemVMemory, ThatHasBeenRemovedIsMapped) {
  as_an_ordinary_user([] {
    Segment segment;
    const Target target(segment.attach());
    const Copy owner;
    segment.remove();
    const Initiator initiator(target, owner.pid());
    initiator.lane().reader_sleeps = 0;
    ASSERT_TRUE(initiator.maps());
    const std::array<std::byte, 8> bytes{};
    EXPECT_TRUE(initiator.write(0, bytes));
    EXPECT_TRUE(are({target.pages.get(), 8}, 0));
  });
}

TEST_F(SystemVMemory, IsDetachedWhenItIsNotUsed) {
  as_an_ordinary_user([] {
    const Segment segment;
    const Target target(segment.attach());
    const Initiator initiator(target);
    ASSERT_TRUE(initiator.maps());
    ASSERT_EQ(segment.attachments(), 2u);
    initiator.memory->drop_unused_mappings();
    EXPECT_EQ(segment.attachments(), 2u);
    initiator.memory->drop_unused_mappings();
    EXPECT_EQ(segment.attachments(), 1u);
  });
}

TEST_F(SystemVMemory, IsDetachedWithTheWayToItsOwner) {
  as_an_ordinary_user([] {
    const Segment segment;
    const Target target(segment.attach());
    {
      const Initiator initiator(target);
      ASSERT_TRUE(initiator.maps());
      ASSERT_EQ(segment.attachments(), 2u);
    }
    EXPECT_EQ(segment.attachments(), 1u);
  });
}

TEST_F(SystemVMemory, WhatItsOwnerMayOnlyReadIsOnlyRead) {
  as_an_ordinary_user([] {
    const Segment segment;
    const Target target(segment.attach(SHM_RDONLY));
    const Initiator initiator(target);
    expect_only_read(initiator, 0);
  });
}

// The owner attached it when it still might.
TEST_F(SystemVMemory, WhatMayOnlyBeReadByNowIsOnlyRead) {
  as_an_ordinary_user([] {
    const Segment segment;
    const Target target(segment.attach());
    segment.set_mode(0400);
    const Initiator initiator(target);
    expect_only_read(initiator, 1);
  });
}

TEST_F(SystemVMemory, ThatMayNotBeAttachedIsNotMapped) {
  as_an_ordinary_user([] {
    const Segment segment;
    const Target target(segment.attach());
    segment.set_mode(0);
    const Initiator initiator(target);
    EXPECT_FALSE(initiator.maps());
    segment.set_mode(0600);
    EXPECT_EQ(segment.attachments(), 1u);
  });
}

TEST_F(SystemVMemory, AnotherSegmentInItsPlaceIsLookedUpAnew) {
  as_an_ordinary_user([] {
    const Segment segment;
    const Segment other;
    const Target target(segment.attach());
    const Initiator initiator(target);
    ASSERT_TRUE(initiator.maps());
    target.withdraw();
    ASSERT_EQ(::shmdt(target.pages.get()), 0);
    ASSERT_EQ(::shmat(other.id(), target.pages.get(), 0), target.pages.get());
    target.publish();
    initiator.lane().reader_sleeps = 0;
    std::array<std::byte, 8> bytes;
    bytes.fill(std::byte{9});
    EXPECT_FALSE(initiator.write(0, bytes)) << "not into what was there";
    EXPECT_EQ(segment.attachments(), 0u);
    ASSERT_TRUE(initiator.maps_again());
    EXPECT_EQ(segment.attachments(), 0u);
    EXPECT_EQ(other.attachments(), 2u);
    EXPECT_TRUE(initiator.write(0, bytes));
    EXPECT_TRUE(are({target.pages.get(), 8}, 9));
  });
}

// ---- what is attached

class PeerSegment : public ::testing::Test {
 protected:
  static Result<ProcessFolder> ourselves() { return ProcessFolder::open(::getpid()); }
  static std::optional<SharedStretch> find(const void* at, uint64_t bytes) {
    const auto folder = ourselves();
    const auto map = folder ? ProcessMap::read(*folder) : tl::unexpected(folder.error());
    const auto begin = reinterpret_cast<uintptr_t>(at);
    return map ? map->find(begin, begin + bytes) : std::nullopt;
  }
  static Result<PeerMapping> attach(const SharedStretch& stretch, uint64_t bytes) {
    return attach_peer_segment(*ourselves(), stretch, bytes);
  }
};

TEST_F(PeerSegment, OfALargeOneOnlyThePagesOfTheStretchStayMapped) {
  constexpr size_t kPage = 4096;
  const Segment segment(64 * kPage);
  auto* const all = static_cast<std::byte*>(segment.attach().at);
  all[10 * kPage + 100] = std::byte{7};
  const auto stretch = find(all + 10 * kPage + 100, 2 * kPage);
  ASSERT_TRUE(stretch);
  {
    const auto mapping = attach(*stretch, 2 * kPage);
    ASSERT_TRUE(mapping);
    EXPECT_EQ(mapping->memory.bytes(), 3 * kPage);
    EXPECT_EQ(*mapping->memory.data(), std::byte{7});
    EXPECT_EQ(segment.attachments(), 2u);
    const auto here = find(mapping->memory.data(), 2 * kPage);
    ASSERT_TRUE(here);
    EXPECT_EQ(here->offset, stretch->offset);
    EXPECT_EQ(here->mapping_end - here->mapping_begin, 3 * kPage) << "as the kernel has it";
  }
  EXPECT_EQ(segment.attachments(), 1u);
  ::shmdt(all);
}

// Its last page is not full.
TEST_F(PeerSegment, NothingBehindItsEndIsAttached) {
  constexpr size_t kPage = 4096;
  const Segment segment(2 * kPage + 1);
  void* const all = segment.attach().at;
  auto stretch = find(all, 3 * kPage);
  ASSERT_TRUE(stretch);
  EXPECT_TRUE(attach(*stretch, 3 * kPage));
  EXPECT_FALSE(attach(*stretch, 3 * kPage + 1));
  stretch->offset = 1;
  EXPECT_FALSE(attach(*stretch, 3 * kPage));
  stretch->offset = UINT64_MAX;
  EXPECT_FALSE(attach(*stretch, 2));
  EXPECT_EQ(segment.attachments(), 1u);
  ::shmdt(all);
}

// Such a name, with the number of a segment, anybody can give a file.
TEST_F(PeerSegment, AnotherFileOfItsNumberIsNotIt) {
  const Segment segment;
  void* const all = segment.attach().at;
  const auto stretch = find(all, kBytes);
  ASSERT_TRUE(stretch);
  ASSERT_TRUE(attach(*stretch, kBytes));
  SharedStretch other = *stretch;
  ++other.file.device;
  EXPECT_FALSE(attach(other, kBytes));
  other = *stretch;
  other.path = "/SYSV12345678 (deleted)";
  EXPECT_FALSE(attach(other, kBytes));
  other = *stretch;
  other.path = "/memfd:segment (deleted)";
  EXPECT_FALSE(attach(other, kBytes));
  EXPECT_EQ(segment.attachments(), 1u);
  ::shmdt(all);
}

TEST_F(PeerSegment, OfHugePagesIsAttached) {
  constexpr size_t kHugePage = 2 << 20;
  const Segment segment(2 * kHugePage, SHM_HUGETLB);
  if (segment.id() < 0) GTEST_SKIP() << "there are no huge pages";
  auto* const all = static_cast<std::byte*>(segment.attach().at);
  all[kHugePage + 5] = std::byte{7};
  const auto stretch = find(all + kHugePage + 5, 100);
  ASSERT_TRUE(stretch);
  const auto mapping = attach(*stretch, 100);
  ASSERT_TRUE(mapping);
  EXPECT_EQ(*mapping->memory.data(), std::byte{7});
  const auto here = find(mapping->memory.data(), 100);
  ASSERT_TRUE(here);
  EXPECT_EQ(mapping->memory.bytes(), here->mapping_end - here->mapping_begin);
  ::shmdt(all);
}

// ---- IPC namespaces

// A process in a namespace of its own, and its first segment, all of whose bytes are `value`.
class Newcomer {
 public:
  explicit Newcomer(int value) {
    int told[2];
    if (::pipe2(told, O_CLOEXEC) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      const bool is_new = ::unshare(CLONE_NEWIPC) == 0;
      std::array<void*, 2> said{};
      if (is_new) {
        const int id = ::shmget(IPC_PRIVATE, kBytes, IPC_CREAT | 0600);
        said = {::shmat(id, nullptr, 0), reinterpret_cast<void*>(intptr_t{id})};
        std::memset(said[0], value, kBytes);
      }
      if (::write(told[1], said.data(), sizeof said) < 0) ::_exit(1);
      for (;;) ::pause();
    }
    const UniqueFd end(told[0]);
    ::close(told[1]);
    std::array<void*, 2> said{};
    EXPECT_EQ(::read(end.get(), said.data(), sizeof said), static_cast<ssize_t>(sizeof said));
    at_ = said[0];
    id_ = static_cast<int>(reinterpret_cast<intptr_t>(said[1]));
  }
  ~Newcomer() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Newcomer(const Newcomer&) = delete;
  Newcomer& operator=(const Newcomer&) = delete;

  bool is_there() const { return at_ != nullptr; }
  int id() const { return id_; }
  Result<ProcessFolder> folder() const { return ProcessFolder::open(pid_); }
  std::optional<SharedStretch> stretch() const {
    const auto map = ProcessMap::read(*folder());
    const auto begin = reinterpret_cast<uintptr_t>(at_);
    return map ? map->find(begin, begin + kBytes) : std::nullopt;
  }
  // Into its namespace.
  int join() const {
    const UniqueFd space = folder()->open("ns/ipc", O_RDONLY);
    return ::setns(space.get(), CLONE_NEWIPC);
  }

 private:
  pid_t pid_ = 0;
  void* at_ = nullptr;
  int id_ = -1;
};

// Both have a segment of one identifier, which the kernel shows alike.
TEST_F(PeerSegment, OfAnotherNamespaceIsNotAttached) {
  const Newcomer one(1);
  const Newcomer other(2);
  if (!one.is_there()) GTEST_SKIP() << "no privilege for a namespace";
  ASSERT_EQ(one.id(), other.id());
  const auto stretch = one.stretch();
  ASSERT_TRUE(stretch);
  ASSERT_EQ(segment_behind(*stretch), one.id());
  in_a_child([&] {
    ASSERT_EQ(other.join(), 0);
    EXPECT_FALSE(attach_peer_segment(*one.folder(), *stretch, kBytes));
    const auto mapping = attach_peer_segment(*other.folder(), *other.stretch(), kBytes);
    ASSERT_TRUE(mapping);
    EXPECT_TRUE(are({mapping->memory.data(), kBytes}, 2));
  });
}

}  // namespace
}  // namespace verbena::engine
