// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/peer_memory.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/engine/support/peer_memory_target.h"
#include "adapter/shm/own_board.h"

namespace verbena::engine {
namespace {

using peer_memory_testing::are;
using peer_memory_testing::Initiator;
using peer_memory_testing::kBytes;
using peer_memory_testing::Target;

constexpr std::array<size_t, 4> kSizes{1, 4096, 8193, kBytes};

// Without a name, the next send would search for one, past all that other users have taken.
TEST(Credentials, AreAskedForOnANamedSocketOnly) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  ask_for_credentials(ours.get(), true);
  sockaddr_un name{};
  socklen_t bytes = sizeof name;
  ASSERT_EQ(::getsockname(ours.get(), reinterpret_cast<sockaddr*>(&name), &bytes), 0);
  constexpr size_t kRandomDigits = 32;
  EXPECT_GT(bytes, offsetof(sockaddr_un, sun_path) + 1 + kRandomDigits);
  ask_for_credentials(ours.get(), false);
  ask_for_credentials(ours.get(), true);
  EXPECT_EQ(::send(ours.get(), "x", 1, MSG_DONTWAIT), 1);
}

TEST(PeerMemory, IsReadAndWrittenAsItsBoardAllows) {
  const Target target;
  const Initiator initiator(target);
  ASSERT_NE(initiator.memory, nullptr);
  std::vector<std::byte> buffer(kBytes);
  for (const size_t bytes : kSizes) {
    std::fill(buffer.begin(), buffer.end(), std::byte{0});
    EXPECT_TRUE(initiator.read(kBytes - bytes, std::span(buffer).first(bytes))) << bytes;
    EXPECT_TRUE(are(std::span(buffer).first(bytes), 1));
  }
  std::fill(buffer.begin(), buffer.end(), std::byte{3});
  const std::span<const std::byte> whole = buffer;
  for (size_t at = 0; at < kBytes; at += 4096) EXPECT_TRUE(initiator.write(at, whole.subspan(at, 4096)));
  EXPECT_TRUE(target.pages.are(3));
  EXPECT_FALSE(initiator.write(0, whole));  // by packets it is faster
  EXPECT_FALSE(initiator.read(1, buffer));
  EXPECT_FALSE(initiator.write(1, buffer));
  EXPECT_EQ(initiator.lane().in_access % 2, 0u);
}

TEST(PeerMemory, IsNotWrittenWhileItsReaderIsAwake) {
  const Target target;
  const Initiator initiator(target);
  const std::array<std::byte, 8> bytes{};
  initiator.lane().reader_sleeps = 0;
  EXPECT_FALSE(initiator.write(0, bytes));
  EXPECT_TRUE(target.pages.are(1));
}

TEST(PeerMemory, IsNotTouchedWhereNobodyLooksAnyMore) {
  const Target target;
  const Initiator initiator(target);
  target.own->dismiss(initiator.visitor, false);
  std::array<std::byte, 8> bytes{};
  EXPECT_FALSE(initiator.read(0, bytes));
  EXPECT_FALSE(initiator.write(0, bytes));
}

// Registered memory may be unmapped all the same: then the target is asked, and answers with an error.
TEST(PeerMemory, ThatIsGoneIsNoReason) {
  const Target target;
  const Initiator initiator(target);
  ASSERT_EQ(::mprotect(target.pages.get() + 4096, 4096, PROT_NONE), 0);
  std::vector<std::byte> buffer(kBytes);
  EXPECT_FALSE(initiator.read(0, buffer));
  EXPECT_TRUE(initiator.read(0, std::span(buffer).first(4096)));
}

// ---- what its process has lent

const transport::Connection kConnection{.from = roce::Qpn(5), .to = roce::Qpn(6), .first_psn = roce::Psn(8)};

shm::LentPiece piece_of(const Target& target, size_t offset, size_t bytes) {
  return {reinterpret_cast<uintptr_t>(target.pages.get() + offset), bytes};
}

bool fetch(const Initiator& initiator, std::vector<shm::LentPiece> from, std::span<std::byte> to,
           const transport::Connection& connection = kConnection) {
  const ConstBytes piece = to;
  return initiator.memory->fetch(connection, from, {&piece, 1});
}

TEST(LentMemoryOfAProcess, IsFetchedPieceByPiece) {
  const Target target;
  const Initiator initiator(target);
  target.pages.get()[4096] = std::byte{2};
  std::array<std::byte, 8> first{};
  std::array<std::byte, 4096> second{};
  const std::array<ConstBytes, 2> to{first, second};
  EXPECT_TRUE(initiator.memory->can_fetch());
  EXPECT_TRUE(initiator.memory->fetch(kConnection,
                                      std::array{piece_of(target, 4096, 1), piece_of(target, 1, 4103)}, to));
  EXPECT_EQ(first[0], std::byte{2});
  EXPECT_EQ(first[1], std::byte{1});
  EXPECT_EQ(second[4096 - 8], std::byte{2});
  EXPECT_EQ(initiator.lane().in_access, 0u) << "nobody waits for it";
}

TEST(LentMemoryOfAProcess, IsOfAQpThatIsConnectedToUs) {
  const Target target;
  const Initiator initiator(target);
  std::array<std::byte, 16> to{};
  EXPECT_FALSE(fetch(initiator, {piece_of(target, 0, 16)}, to, {roce::Qpn(4), roce::Qpn(6), roce::Psn(8)}));
  EXPECT_FALSE(fetch(initiator, {piece_of(target, 0, 16)}, to, {roce::Qpn(5), roce::Qpn(7), roce::Psn(8)}));
  EXPECT_FALSE(fetch(initiator, {piece_of(target, 0, 16)}, to, {roce::Qpn(5), roce::Qpn(6), roce::Psn(7)}));
  target.own->hide(roce::Qpn(5));
  EXPECT_FALSE(fetch(initiator, {piece_of(target, 0, 16)}, to));
  EXPECT_TRUE(are(to, 0));
  target.own->show(Target::qp());
  EXPECT_TRUE(fetch(initiator, {piece_of(target, 0, 16)}, to));
}

TEST(LentMemoryOfAProcess, MayBeGone) {
  const Target target;
  const Initiator initiator(target);
  ASSERT_EQ(::mprotect(target.pages.get() + 4096, 4096, PROT_NONE), 0);
  std::vector<std::byte> to(8192);
  EXPECT_FALSE(fetch(initiator, {piece_of(target, 0, 8192)}, to));
  EXPECT_TRUE(initiator.memory->can_fetch()) << "other memory is there";
}

TEST(LentMemoryOfAProcess, IsNotThatOfOneWhoCameAfterIt) {
  const Target target;
  const Initiator initiator(target);
  const auto& cookie = target.own->cookie().bytes;
  const_cast<std::byte&>(cookie[5]) ^= std::byte{1};  // as in another program, or another process
  std::array<std::byte, 16> to{};
  EXPECT_FALSE(fetch(initiator, {piece_of(target, 0, 16)}, to));
}

TEST(PeerMemory, OfAnotherUserIsLeftAlone) {
  const Target target;
  EXPECT_EQ(Initiator(target, ::getpid(), ::getuid() + 1).memory, nullptr);
}

TEST(PeerMemory, OfNobodyWhoIsSeenIsLeftAlone) {
  const Target target;
  EXPECT_EQ(Initiator(target, 0).memory, nullptr);
  EXPECT_EQ(Initiator(target, -1).memory, nullptr);
}

TEST(PeerMemory, OfAProcessWithoutTheCookieIsLeftAlone) {
  const Target target;
  Presentation said = target.presentation();
  said.cookie[3] ^= std::byte{1};
  auto made = ChannelMapping::make();
  ASSERT_TRUE(made);
  shm::Lane& lane = made->first.memory().lanes[0];
  const auto opened = PeerMemory::open(said, target.own->file(), {::getpid(), ::getuid(), 0}, lane);
  EXPECT_EQ(opened.memory, nullptr);
  EXPECT_EQ(opened.way, protocol::QpWay::kNotUsable);
}

TEST(PeerMemory, OfAProcessWhoseBoardMayShrinkIsLeftAlone) {
  const Target target;
  const UniqueFd file(::memfd_create("board", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), sizeof(shm::Board)), 0);
  auto made = ChannelMapping::make();
  ASSERT_TRUE(made);
  shm::Lane& lane = made->first.memory().lanes[0];
  EXPECT_EQ(PeerMemory::open(target.presentation(), file.get(), {::getpid(), ::getuid(), 0}, lane).memory,
            nullptr);
}

TEST(OwnBoard, NobodyElseCanWriteIt) {
  const Target target;
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, target.own->file(), 0), MAP_FAILED);
  EXPECT_LT(::pwrite(target.own->file(), "x", 1, 0), 0);
  EXPECT_NE(::ftruncate(target.own->file(), 0), 0);
}

// ---- other processes

// A copy of this one, which waits, and then becomes another program when it is told to.
class Copy {
 public:
  Copy() {
    int told[2];
    int started[2];
    if (::pipe2(told, O_CLOEXEC) != 0 || ::pipe2(started, O_CLOEXEC) != 0) throw std::bad_alloc();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(told[1]);
      char order;
      if (::read(told[0], &order, 1) == 1) ::execl("/bin/sleep", "sleep", "1000", nullptr);
      ::_exit(0);
    }
    ::close(told[0]);
    ::close(started[1]);
    told_.reset(told[1]);
    started_.reset(started[0]);
  }
  ~Copy() { kill(); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  pid_t pid() const { return pid_; }
  // Its end of the pipe closes when it has become another program.
  void become_another() const {
    char end;
    EXPECT_EQ(::write(told_.get(), "x", 1), 1);
    EXPECT_EQ(::read(started_.get(), &end, 1), 0);
  }
  void stop() const {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  UniqueFd told_;
  UniqueFd started_;
};

class OtherProcess : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(initiator.memory, nullptr); }
  void nothing_is_reached() {
    for (const size_t bytes : kSizes) {
      EXPECT_FALSE(initiator.read(0, std::span(buffer).first(bytes))) << bytes;
      EXPECT_FALSE(initiator.write(0, std::span(buffer).first(std::min<size_t>(bytes, 4096)))) << bytes;
    }
  }

  const Target target;
  Copy copy;
  Initiator initiator{target, copy.pid()};
  std::vector<std::byte> buffer = std::vector<std::byte>(kBytes);
};

TEST_F(OtherProcess, ItsOwnMemoryIsReached) {
  target.pages.fill(9);  // ours
  for (const size_t bytes : kSizes) {
    ASSERT_TRUE(initiator.read(0, std::span(buffer).first(bytes)));
    EXPECT_TRUE(are(std::span(buffer).first(bytes), 1));
  }
  std::fill(buffer.begin(), buffer.end(), std::byte{4});
  EXPECT_TRUE(initiator.write(0, std::span(buffer).first(4096)));
  EXPECT_TRUE(target.pages.are(9));
  EXPECT_TRUE(initiator.read(0, buffer));
  EXPECT_TRUE(are(std::span(buffer).first(4096), 4));
  EXPECT_TRUE(are(std::span(buffer).subspan(4096), 1));
}

// ---- boards that are opened by their number

// As a program that an ordinary user has started, where we can be one. Others of the user may look at it.
void become_user() {
  constexpr uid_t kUser = 65533;
  if (::geteuid() == 0 && (::setresgid(kUser, kUser, kUser) != 0 || ::setresuid(kUser, kUser, kUser) != 0))
    ::_exit(100);
  ::prctl(PR_SET_DUMPABLE, 1);
}

// A process of that user with the target's memory, to which debuggers may come or not.
class Owner {
 public:
  explicit Owner(bool dumpable) {
    int ready[2];
    if (::pipe2(ready, O_CLOEXEC) != 0) throw std::bad_alloc();
    pid_ = ::fork();
    if (pid_ == 0) {
      become_user();
      ::prctl(PR_SET_DUMPABLE, dumpable ? 1 : 0);
      if (::write(ready[1], "x", 1) == 1) ::pause();
      ::_exit(0);
    }
    ::close(ready[1]);
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  ~Owner() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

enum Visit : int { kReached, kForbidden, kElse };

// Opens the board by its number in another process of that user.
int visit(const Target& target, const Owner& owner, int descriptor) {
  const pid_t visitor = ::fork();
  if (visitor == 0) {
    become_user();
    auto made = ChannelMapping::make();
    Presentation said = target.presentation();
    said.board = static_cast<uint32_t>(descriptor) + 1;
    shm::Lane& lane = made->first.memory().lanes[0];
    const auto opened = PeerMemory::open(said, -1, {owner.pid(), ::getuid(), 0}, lane);
    ::_exit(opened.memory != nullptr                    ? kReached
            : opened.way == protocol::QpWay::kForbidden ? kForbidden
                                                        : kElse);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(visitor, &status, 0), visitor);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(BoardOfAProcess, IsOpenedByWhomTheKernelLetsLookAtIt) {
  const Target target;
  EXPECT_EQ(visit(target, Owner(true), target.own->file()), kReached);
  EXPECT_EQ(visit(target, Owner(false), target.own->file()), kForbidden);
}

// To open a pipe waits for its other end.
TEST(BoardOfAProcess, IsNoOtherFile) {
  const Target target;
  const std::string pipe = testing::TempDir() + "peer_memory_test_pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0666), 0);
  const UniqueFd file(::open(pipe.c_str(), O_RDWR | O_CLOEXEC));
  ::unlink(pipe.c_str());
  EXPECT_EQ(visit(target, Owner(true), file.get()), kElse);
  EXPECT_EQ(visit(target, Owner(true), 1 << 20), kElse) << "none";
}

TEST_F(OtherProcess, AStoppedOneIsReached) {
  copy.stop();
  EXPECT_TRUE(initiator.read(0, buffer));
  EXPECT_TRUE(initiator.write(0, std::span(buffer).first(4096)));
}

TEST_F(OtherProcess, ThatRunsAnotherProgramIsNotReached) {
  copy.become_another();
  nothing_is_reached();
}

TEST_F(OtherProcess, ThatWasKilledIsNotReached) {
  copy.kill();
  nothing_is_reached();
}

}  // namespace
}  // namespace verbena::engine
