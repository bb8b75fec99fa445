// SPDX-License-Identifier: Apache-2.0
#include "engine/peer_memory.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/own_board.h"

namespace verbena::engine {
namespace {

constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr uint32_t kKey = 0x1200;
constexpr size_t kBytes = 1 << 17;

class Pages {
 public:
  Pages()
      : at_(static_cast<std::byte*>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    fill(1);
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

// What a target shows: of this very process, or of a child's copy of it.
class Target {
 public:
  Target() {
    own->show({.qpn = 5, .pd = 1, .access = kAll, .destination = 6, .receive_psn = 7, .takes_reads = true});
    publish();
  }
  void publish() const {
    memory::Opening opening;
    opening.base = pages.get();
    opening.length = kBytes;
    opening.access = kAll;
    opening.pd = 1;
    opening.key = kKey;
    own->publish(opening);
  }
  // As a deregistration does.
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

  Pages pages;
  std::unique_ptr<OwnBoard> own = OwnBoard::make();
};

// One who comes to it.
struct Initiator {
  explicit Initiator(const Target& target, pid_t process = ::getpid(), uid_t user = ::getuid()) {
    auto made = ChannelMapping::make();
    if (!made) throw std::bad_alloc();
    channel = std::make_shared<ChannelMapping>(std::move(made->first));
    visitor = target.own->admit(channel, lane());
    lane().reader_sleeps = 1;
    memory = PeerMemory::open(target.presentation(), target.own->file(), {process, user, 0}, lane());
  }
  local::Lane& lane() const { return channel->memory().lanes[0]; }
  static local::AccessRequest request(uint64_t address, uint64_t bytes, memory::Access wanted) {
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
    return memory->write(request(address, from.size(), IBV_ACCESS_REMOTE_WRITE), {&from, 1});
  }

  std::shared_ptr<ChannelMapping> channel;
  std::shared_ptr<AccessWatch::Visitor> visitor;
  std::unique_ptr<PeerMemory> memory;
};

bool are(ConstBytes bytes, int value) {
  return bytes[0] == static_cast<std::byte>(value) &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

constexpr std::array<size_t, 4> kSizes{1, 4096, 8193, kBytes};

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
  EXPECT_TRUE(initiator.write(0, buffer));
  EXPECT_TRUE(target.pages.are(3));
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
  local::Lane& lane = made->first.memory().lanes[0];
  EXPECT_EQ(PeerMemory::open(said, target.own->file(), {::getpid(), ::getuid(), 0}, lane), nullptr);
}

TEST(PeerMemory, OfAProcessWhoseBoardMayShrinkIsLeftAlone) {
  const Target target;
  const UniqueFd file(::memfd_create("board", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), sizeof(local::Board)), 0);
  auto made = ChannelMapping::make();
  ASSERT_TRUE(made);
  local::Lane& lane = made->first.memory().lanes[0];
  EXPECT_EQ(PeerMemory::open(target.presentation(), file.get(), {::getpid(), ::getuid(), 0}, lane), nullptr);
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
      EXPECT_FALSE(initiator.write(0, std::span(buffer).first(bytes))) << bytes;
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
  EXPECT_TRUE(initiator.write(0, buffer));
  EXPECT_TRUE(target.pages.are(9));
  EXPECT_TRUE(initiator.read(0, buffer));
  EXPECT_TRUE(are(buffer, 4));
}

TEST_F(OtherProcess, AStoppedOneIsReached) {
  copy.stop();
  EXPECT_TRUE(initiator.read(0, buffer));
  EXPECT_TRUE(initiator.write(0, buffer));
}

TEST_F(OtherProcess, ThatRunsAnotherProgramIsNotReached) {
  copy.become_another();
  nothing_is_reached();
}

TEST_F(OtherProcess, ThatWasKilledIsNotReached) {
  copy.kill();
  nothing_is_reached();
}

// ---- a deregistration races with those who come

// VERBENA_DEREGISTRATIONS=1000000: so many.
uint64_t deregistrations() {
  const char* said = std::getenv("VERBENA_DEREGISTRATIONS");  // NOLINT(concurrency-mt-unsafe): one thread
  if (said != nullptr) return std::strtoull(said, nullptr, 10);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return 100;
#else
  return 300;
#endif
}

TEST(PeerMemory, NobodyComesAfterADeregistration) {
  const uint64_t rounds = deregistrations();
  const Target target;
  std::atomic<bool> over{false};
  std::atomic<uint64_t> reads{0};
  std::atomic<uint64_t> writes{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const Initiator initiator(target);
      const size_t bytes = i % 4 == 0 ? kBytes : 64 << i;
      std::vector<std::byte> buffer(bytes);
      while (!over) {
        if (i % 2 == 0) {
          if (!initiator.read(0, buffer)) continue;
          ++reads;
          if (!are(buffer, 1)) ++wrong;
        } else {
          std::fill(buffer.begin(), buffer.end(), std::byte{1});
          if (initiator.write(0, buffer)) ++writes;
        }
      }
    });
  }
  for (uint64_t round = 0; round < rounds; ++round) {
    target.withdraw();
    // It is nobody's but ours now.
    target.pages.fill(2);
    std::this_thread::yield();
    if (!target.pages.are(2)) ++wrong;
    target.pages.fill(1);
    target.publish();
    std::this_thread::yield();
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("%llu deregistrations beside %llu READs and %llu WRITEs\n",
              static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(reads),
              static_cast<unsigned long long>(writes));
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(reads, 0u);
  EXPECT_GT(writes, 0u);
}

}  // namespace
}  // namespace verbena::engine
