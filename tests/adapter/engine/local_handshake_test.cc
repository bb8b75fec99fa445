// SPDX-License-Identifier: Apache-2.0
// The handshake of a channel, ended at each of its steps by another process that closes, says nonsense, says
// what comes at another time, or says nothing more. What it had is given back, its QPs go by the port or
// find that nobody answers, and the next process that comes is reached as if nothing had been.
//
// Who is asked by the agent offers; the other accepts. Then both present themselves:
//
//                the other's step 1           its step 2
//   we offer     accepts (then we present)    presents itself
//   they offer   offers (then we accept,      presents itself
//                and present)
//
// Between processes of different users, or of which one does not see the other, nobody presents itself, and
// each has a half of the channel:
//
//   we offer     sends its half (then we send ours)
//   they offer   offers (then we send ours)   sends its half
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/engine/local_peers.h"
#include "adapter/engine/support/given_files.h"
#include "adapter/engine/support/handshake.h"
#include "adapter/engine/support/shard_test.h"
#include "adapter/memory/guarded.h"
#include "adapter/shm/kept_files.h"
#include "adapter/shm/unread_files.h"
#include "base/foreign_socket.h"
#include "base/lingering_socket.h"

namespace verbena::engine {
namespace {

using roce::Operation;
using testing::ElementsAre;
using testing::IsEmpty;

// Descriptors, and mappings of channels and boards.
struct Held {
  size_t descriptors = 0;
  size_t mappings = 0;
  friend bool operator==(const Held&, const Held&) = default;
};
size_t mappings_of(const char* name) {
  size_t count = 0;
  std::ifstream lines("/proc/self/maps");
  for (std::string line; std::getline(lines, line);) {
    count += line.find(name) != std::string::npos ? 1 : 0;
  }
  return count;
}
size_t locked_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmLck:")) return std::stoul(line.substr(6)) << 10;
  }
  return 0;
}

// Returns what this process holds, after other threads have closed what was passed to them.
Held held() {
  while (kept_files() > 0) sched_yield();
  EXPECT_TRUE(may_send_file(kAnotherUser)) << "the other has closed its ends";
  test::await_discards();
  Held now;
  for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++now.descriptors;
  }
  now.mappings = mappings_of("memfd:verbena-");
  return now;
}

// A process in a pid namespace of its own, which waits for its end.
class ContainedProcess {
 public:
  ContainedProcess() {
    clone_args arguments{};
    arguments.flags = CLONE_NEWPID;
    arguments.exit_signal = SIGCHLD;
    pid_ = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execlp("sleep", "sleep", "infinity", nullptr);
    ::_exit(127);
  }
  ContainedProcess(const ContainedProcess&) = delete;
  ContainedProcess& operator=(const ContainedProcess&) = delete;
  ~ContainedProcess() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// The other process, as far as it keeps to the rules.
class Other {
 public:
  explicit Other(UniqueFd socket) : socket_(std::move(socket)), board_(OwnBoard::make()) {}

  void say(const void* bytes, size_t count, std::optional<int> file = std::nullopt) const {
    ASSERT_TRUE(send_with_credentials(socket_.get(), {static_cast<const std::byte*>(bytes), count}, file)
                    .has_value());
  }
  void say(uint32_t type, std::optional<int> file = std::nullopt) const {
    const Said said{.type = type};
    say(&said, sizeof said, file);
  }
  void offer() {
    auto made = ChannelMapping::make();
    ASSERT_TRUE(made);
    channel_.emplace(std::move(made->first));
    say(kOffer, made->second.get());
  }
  void accept() const { say(kAccept); }
  // Any of the three, as a library says it that tells which processes it sees.
  void greet(uint32_t type, uint32_t sees, uid_t user = ::getuid(), pid_t process = ::getpid()) {
    UniqueFd opened;
    if (type == kOffer) {
      auto made = ChannelMapping::make();
      ASSERT_TRUE(made);
      channel_.emplace(std::move(made->first));
      opened = std::move(made->second);
    } else if (type == kHalf) {
      auto made = make_half();
      ASSERT_TRUE(made);
      half_.emplace(std::move(made->first));
      opened = std::move(made->second);
    }
    const SaidWithSight greeting{.said = {.type = type}, .sees = sees};
    ASSERT_TRUE(say_as(user, socket_.get(), std::as_bytes(std::span(&greeting, 1)), opened.get(), process));
  }
  // REQUIRES: may_be_anyone()
  void greet_as_another_user(uint32_t type) { greet(type, sight_of_processes(), kAnotherUser); }
  void say_half(int file) {
    const SaidWithSight greeting{.said = {.type = kHalf}, .sees = sight_of_processes()};
    ASSERT_TRUE(say_as(kAnotherUser, socket_.get(), std::as_bytes(std::span(&greeting, 1)), file));
  }
  void present(bool with_file = true, bool with_cookie = true) const {
    const Said kind{.type = kPresent};
    Presentation said{};
    std::memcpy(&said, &kind, sizeof kind);
    said.cookie_address = reinterpret_cast<uintptr_t>(board_->cookie().bytes.data());
    if (with_cookie) std::memcpy(said.cookie, board_->cookie().bytes.data(), sizeof said.cookie);
    say(&said, sizeof said, with_file ? std::optional(board_->file()) : std::nullopt);
  }
  void present_with(int file) const {
    const Said kind{.type = kPresent};
    Presentation said{};
    std::memcpy(&said, &kind, sizeof kind);
    say(&said, sizeof said, file);
  }
  void close() { socket_.reset(); }
  // The next message: its bytes; 0 when it has hung up, nothing when there is none.
  std::optional<size_t> hear() const {
    std::array<std::byte, 256> buffer;
    const auto heard = hear_from(socket_.get(), buffer);
    return heard ? std::optional(heard->bytes) : std::nullopt;
  }
  // Whether the other end has presented itself.
  bool is_shown_memory() const {
    while (const auto bytes = hear()) {
      if (*bytes == sizeof(Presentation)) return true;
    }
    return false;
  }
  // The file in the next message; empty where there is none.
  UniqueFd take_file() const {
    std::array<std::byte, 256> buffer;
    auto heard = hear_from(socket_.get(), buffer);
    return heard ? std::move(heard->file) : UniqueFd();
  }
  // The other end's presentation; nothing where there is none, or a file comes with it.
  std::optional<Presentation> presentation() const {
    std::array<std::byte, 256> buffer;
    while (auto heard = hear_from(socket_.get(), buffer)) {
      if (heard->bytes == 0) break;
      if (heard->bytes != sizeof(Presentation)) continue;
      Presentation said{};
      std::memcpy(&said, buffer.data(), sizeof said);
      return heard->file ? std::nullopt : std::optional(said);
    }
    return std::nullopt;
  }
  // The file of the other end's half, which it has sent.
  UniqueFd half_file() const {
    std::array<std::byte, 256> buffer;
    while (auto heard = hear_from(socket_.get(), buffer)) {
      Said said;
      if (heard->bytes < sizeof said) break;
      std::memcpy(&said, buffer.data(), sizeof said);
      if (said.type == kHalf) return std::move(heard->file);
    }
    return {};
  }
  bool is_hung_up_on() const {
    test::await_hang_ups();
    for (;;) {
      const auto bytes = hear();
      if (!bytes) return false;
      if (*bytes == 0) return true;
    }
  }

 private:
  UniqueFd socket_;
  std::unique_ptr<OwnBoard> board_;
  std::optional<ChannelMapping> channel_;
  std::optional<OwnHalf> half_;
};

enum class Asker : uint8_t { kWe, kThey };

class Handshake : public ShardTest, public testing::WithParamInterface<Asker> {
 protected:
  static constexpr int kSteps = 2;  // after the first the line is open

  Handshake() {
    test::forget_given_files();
    memory::install_fault_guard();
    path.source = path.destination = address();
    peers = std::make_unique<LocalPeers>(
        *shard, [](uint32_t) -> Result<void> { return {}; }, board.get());
    peers->set_addresses({address()});
    connected = std::make_unique<ScriptedQp>(add_qpn(), &shard->routes(), path, other_qpn());
    add(*connected);
    (void)meet(0);  // what the first of all leaves is there
    look();
    test::await_discards();
  }
  ~Handshake() override {
    shard->exclusively([&] { shard->remove(*connected); });
    connected.reset();
  }

  static roce::Address address() {
    const uint8_t ipv4[] = {10, 0, 0, 1};
    return roce::Address::from_ipv4(ipv4);
  }
  static bool we_ask() { return GetParam() == Asker::kWe; }
  // Our QP makes us ask in any case: of two that ask at once the lower slot's question counts.
  static uint32_t other_slot() { return we_ask() ? kSlot + 1 : kSlot - 1; }
  static roce::Qpn other_qpn() { return roce::Qpn::in_slot(other_slot(), 4); }

  // The other process, which has taken so many of its steps.
  std::unique_ptr<Other> meet(int steps, uid_t user = 0) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    auto other = std::make_unique<Other>(UniqueFd(ends[1]));
    peers->connect({shard->slot(), other_slot(), we_ask(), 0, UniqueFd(ends[0]), user});
    look();
    if (steps > 0) we_ask() ? other->accept() : other->offer();
    look();
    if (steps > 1) other->present();
    look();
    return other;
  }
  // A process of another user, which has offered if it is to. REQUIRES: may_be_anyone()
  std::unique_ptr<Other> meet_another_user(uid_t user = 0) {
    auto other = meet(0, user);
    if (!we_ask()) other->greet_as_another_user(kOffer);
    look();
    return other;
  }
  // What came by the sockets is read.
  void look() {
    shard->exclusively([&] {
      peers->on_woken();
      peers->receive(64, {});
    });
    test::await_hang_ups();
  }

  // What a QP sends that is connected to the other process.
  std::vector<Operation> by_the_port() {
    sent();
    connected->post();
    shard->ring(*connected);
    shard->poll();
    EXPECT_EQ(connected->unsent(), 0u) << "nobody waits";
    return sent();
  }
  // A line that was open when it ended may have packets in it: those that follow go after them, and their
  // timers find that nobody answers.
  void goes_where_it_should(int steps) {
    if (steps == 0) {
      EXPECT_THAT(by_the_port(), ElementsAre(Operation::kSendOnly));
    } else {
      EXPECT_THAT(by_the_port(), IsEmpty());
    }
  }
  void the_next_is_reached() {
    auto other = meet(kSteps);
    EXPECT_FALSE(other->is_hung_up_on());
    EXPECT_NE(shard->exclusively([&] { return peers->find(path, other_qpn()); }), nullptr);
    EXPECT_THAT(by_the_port(), IsEmpty()) << "by memory";
    other.reset();
    look();
  }
  // With another process each time, from one that offers nothing to one that is through: it ends so.
  template <class End>
  void ended_at_each_step(End end) {
    for (int steps = 0; steps <= kSteps; ++steps) {
      SCOPED_TRACE(testing::Message() << "after " << steps << " steps");
      // QPs of a line that was open stay with it: one that is new each time begins at the port.
      shard->exclusively([&] { shard->remove(*connected); });
      connected = std::make_unique<ScriptedQp>(add_qpn(), &shard->routes(), path, other_qpn());
      add(*connected);
      (void)by_the_port();
      const Held before = held();
      {
        auto other = meet(steps);
        end(*other);
        look();
        goes_where_it_should(steps);
      }
      look();
      EXPECT_EQ(held(), before);
      goes_where_it_should(steps);
    }
    the_next_is_reached();
  }

  roce::Path path;
  std::unique_ptr<OwnBoard> board = OwnBoard::make();
  std::unique_ptr<LocalPeers> peers;
  std::unique_ptr<ScriptedQp> connected;
};

TEST_P(Handshake, IsWholeWhenNobodyEndsIt) {
  the_next_is_reached();
}

TEST_P(Handshake, WhoClosesLeavesNothing) {
  ended_at_each_step([](Other& other) { other.close(); });
}

TEST_P(Handshake, WhoSaysNonsenseIsHungUpOn) {
  for (const size_t bytes : {2, 15, 16, 17, 39, 40, 41, 100}) {
    SCOPED_TRACE(bytes);
    ended_at_each_step([&](Other& other) {
      const std::vector<std::byte> nonsense(bytes, std::byte{'x'});
      other.say(nonsense.data(), bytes);
      look();
      EXPECT_TRUE(other.is_hung_up_on());
    });
  }
}

TEST_P(Handshake, WhoSpeaksAnotherVersionIsHungUpOn) {
  for (const uint32_t type : {kOffer, kAccept, kPresent}) {
    ended_at_each_step([&](Other& other) {
      const Said said{.version = shm::kLayoutVersion + 1, .type = type};
      other.say(&said, sizeof said);
      look();
      EXPECT_TRUE(other.is_hung_up_on());
    });
  }
}

TEST_P(Handshake, WhoOffersAgainIsHungUpOn) {
  const int first = we_ask() ? 0 : 1;
  for (int steps = first; steps <= kSteps; ++steps) {
    auto other = meet(steps);
    other->offer();
    look();
    EXPECT_TRUE(other->is_hung_up_on()) << steps;
  }
  the_next_is_reached();
}

TEST_P(Handshake, WhoAcceptsWhatWasNotOfferedIsHungUpOn) {
  const int first = we_ask() ? 1 : 0;
  for (int steps = first; steps <= kSteps; ++steps) {
    auto other = meet(steps);
    other->accept();
    look();
    EXPECT_TRUE(other->is_hung_up_on()) << steps;
  }
  the_next_is_reached();
}

TEST_P(Handshake, WhoPresentsItselfTooSoonIsHungUpOn) {
  auto other = meet(0);
  other->present();
  look();
  EXPECT_TRUE(other->is_hung_up_on());
  goes_where_it_should(0);
}

// Nothing is lost but that its memory is reached by packets.
TEST_P(Handshake, WhoPresentsItselfBadlyIsReachedByPackets) {
  for (const auto& [with_file, with_cookie] : {std::pair(false, true), {true, false}, {false, false}}) {
    const Held before = held();
    {
      auto other = meet(1);
      other->present(with_file, with_cookie);
      look();
      EXPECT_FALSE(other->is_hung_up_on());
      EXPECT_THAT(by_the_port(), IsEmpty()) << "by the channel";
    }
    look();
    EXPECT_EQ(held(), before);
  }
}

// In a container with a pid namespace of its own a process does not see those outside, though they see it. So
// it takes them for processes of another user, and both must use halves.
TEST_P(Handshake, ShowsMemoryToNobodyWhoDoesNotSeeItsProcess) {
  for (const uint32_t sees : {sight_of_processes(), sight_of_processes() + 1, 0u}) {
    SCOPED_TRACE(sees);
    const bool is_seen = sees == sight_of_processes();
    auto other = meet(0);
    if (!we_ask()) other->greet(kOffer, sees);
    if (we_ask() && is_seen) other->greet(kAccept, sees);
    look();
    if (!is_seen) other->greet(kHalf, sees);
    look();
    EXPECT_EQ(other->is_shown_memory(), is_seen);
    EXPECT_FALSE(other->is_hung_up_on());
    EXPECT_THAT(by_the_port(), IsEmpty()) << "by the channel";
    other.reset();
    look();
  }
}

// A process in a container of the same user number, on the host's network, that says that it sees us.
TEST_P(Handshake, DoesNotBelieveAProcessInAContainerThatItIsHere) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  const ContainedProcess contained;
  auto other = meet(0);
  const auto lie = [&](uint32_t type) {
    other->greet(type, sight_of_processes(), ::getuid(), contained.pid());
  };
  if (!we_ask()) lie(kOffer);
  look();
  lie(kHalf);
  look();
  EXPECT_FALSE(other->is_shown_memory());
  EXPECT_FALSE(other->is_hung_up_on());
  EXPECT_THAT(by_the_port(), IsEmpty()) << "by the channel";
}

TEST_P(Handshake, SharesNoMemoryWithAProcessInAContainerThatItCouldPunchHolesInto) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  const ContainedProcess contained;
  auto other = meet(0);
  other->greet(we_ask() ? kAccept : kOffer, sight_of_processes(), ::getuid(), contained.pid());
  look();
  EXPECT_EQ(other->is_hung_up_on(), we_ask()) << "who accepts what we have offered";
  EXPECT_THAT(by_the_port(), ElementsAre(Operation::kSendOnly));
}

TEST_P(Handshake, WhoRingsBeforeTheChannelIsOpenIsHungUpOn) {
  const auto other = meet(0);
  constexpr std::byte kRing{};
  other->say(&kRing, sizeof kRing);
  look();
  EXPECT_TRUE(other->is_hung_up_on());
}

// ---- files of channels that other users keep

// Gives the user files until it may have no more.
std::vector<GivenFile> give_all(uid_t user) {
  std::vector<GivenFile> given;
  while (may_give_file(user)) {
    given.emplace_back(UniqueFd(::memfd_create("given", MFD_CLOEXEC)), user);
  }
  return given;
}

// Their pages count in our control group.
TEST_P(Handshake, AUserWhoHasTooManyFilesGetsNoFurtherOnes) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  const auto our_half = [&] {
    const auto other = meet_another_user(kAnotherUser);
    if (we_ask() && !other->is_hung_up_on()) {
      other->greet_as_another_user(kHalf);
      look();
    }
    return other->half_file();
  };
  {
    const std::vector<GivenFile> given = give_all(kAnotherUser);
    EXPECT_EQ(given.size(), 2 * (kKeptFiles.all - kKeptFiles.reserve) / 3);
    EXPECT_TRUE(may_give_file(kAnotherUser + 1)) << "others have their share";
    EXPECT_TRUE(may_give_file(::geteuid()));
    EXPECT_FALSE(our_half());
  }
  test::forget_given_files();
  EXPECT_TRUE(our_half());
}

// Pages may be left in pipes.
TEST(GivenFiles, CountForSomeTimeAfterNobodyHasThem) {
  test::forget_given_files();
  UniqueFd kept;
  {
    std::vector<GivenFile> given = give_all(kAnotherUser);
    kept.reset(::fcntl(given.front().get(), F_DUPFD_CLOEXEC, 0));
  }
  while (kept_files() > 1) sched_yield();
  kept.reset();
  while (kept_files() > 0) sched_yield();
  EXPECT_FALSE(may_give_file(kAnotherUser));
  EXPECT_TRUE(may_give_file(kAnotherUser, MonotonicClock::now() + kCountedAfterwards));
}

TEST(GivenFiles, OfOurUserCountOnlyWhileOthersHaveThem) {
  test::forget_given_files();
  std::vector<GivenFile> given;
  for (size_t i = 0; i <= kKeptFiles.all; ++i) {
    given.emplace_back(UniqueFd(::memfd_create("given", MFD_CLOEXEC)), ::geteuid());
  }
  EXPECT_TRUE(may_give_file(::geteuid()));
  given.clear();
  while (kept_files() > 0) sched_yield();
  EXPECT_TRUE(may_give_file(::geteuid()));
}

TEST(GivenFiles, ThatNobodyGotDoNotCount) {
  test::forget_given_files();
  std::vector<GivenFile> given = give_all(kAnotherUser);
  for (GivenFile& file : given) file.close_own();
  EXPECT_TRUE(may_give_file(kAnotherUser));
}

// Another user answers an offer with a half, so nobody uses its memory. The agent's number of the user proves
// nothing: the agent may be in another user namespace.
TEST_P(Handshake, AnOfferTakesNoMemoryOnceTheKernelSaysThatItsUserIsAnother) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  if (!we_ask()) GTEST_SKIP() << "the other offers";
  const uid_t user = kAnotherUser + 3;
  const auto blocks_of_offer = [&] {
    const auto other = meet_another_user(user);
    const UniqueFd file = other->take_file();
    struct stat about {};
    EXPECT_EQ(::fstat(file.get(), &about), 0);
    EXPECT_EQ(about.st_size, static_cast<off_t>(sizeof(shm::ChannelMemory)));
    return about.st_blocks;
  };
  EXPECT_GT(blocks_of_offer(), 0);
  {
    const auto other = meet_another_user(user);
    other->greet_as_another_user(kHalf);
    look();
  }
  EXPECT_EQ(blocks_of_offer(), 0);
}

// A datagram server that answers and ends. The agent's word of its end may come first.
TEST_P(Handshake, WhatAProcessSendsBeforeItsLeaseEndsIsReceived) {
  if (!we_ask()) GTEST_SKIP() << "who has offered sends nothing before we have accepted";
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  peers->connect({shard->slot(), other_slot(), true, 0, UniqueFd(ends[0])});
  const auto their_board = OwnBoard::make();
  auto line = LocalLine::await(UniqueFd(ends[1]), their_board.get());
  line->read_socket();
  ASSERT_TRUE(line->is_open());
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, Operation::kSendOnly);
  headers.destination = connected->config().qpn;
  ASSERT_EQ(line->writer().send({path, headers, {}, 0}), transport::SendStatus::kSent);
  line.reset();
  peers->connect({shard->slot(), other_slot(), false, ESTALE, {}});
  EXPECT_EQ(connected->received, 1u);
}

// ---- channels to other users

// Holes that another process punches into memory keep each access to it waiting, with the shard's lock held.
TEST_P(Handshake, SharesNoMemoryWithAnotherUserThatItCouldPunchHolesInto) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  const auto other = meet_another_user();
  other->greet_as_another_user(kHalf);
  look();
  EXPECT_THAT(by_the_port(), IsEmpty()) << "by the channel";
  const UniqueFd ours = other->half_file();
  ASSERT_TRUE(ours);
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  EXPECT_NE(::fallocate(ours.get(), kPunch, 0, sizeof(shm::ChannelHalf)), 0);
  EXPECT_EQ(errno, EPERM);
}

// So does an older library.
TEST_P(Handshake, AnotherUsersProcessThatSharesMemoryIsHungUpOn) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  if (!we_ask()) GTEST_SKIP() << "an older library that offers finds an answer that it does not know";
  auto other = meet(0);
  other->greet_as_another_user(kAccept);
  look();
  EXPECT_TRUE(other->is_hung_up_on());
  goes_where_it_should(0);
}

TEST_P(Handshake, AHalfThatOthersCanPunchHolesIntoIsNotUsed) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  const UniqueFd file(::memfd_create("half", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), sizeof(shm::ChannelHalf)), 0);
  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  const auto other = meet_another_user();
  other->say_half(file.get());
  look();
  EXPECT_TRUE(other->is_hung_up_on());
  goes_where_it_should(0);
}

TEST_P(Handshake, AHalfComesOnceAndAfterAnOffer) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  auto other = meet(0);
  if (!we_ask()) {
    other->greet_as_another_user(kHalf);
    look();
    EXPECT_TRUE(other->is_hung_up_on());
    other = meet(0);
    other->greet_as_another_user(kOffer);
    look();
  }
  other->greet_as_another_user(kHalf);
  look();
  EXPECT_FALSE(other->is_hung_up_on());
  other->greet_as_another_user(kHalf);
  look();
  EXPECT_TRUE(other->is_hung_up_on());
}

// A page of it that its owner has swapped out, and whose control group is full, would never come back.
TEST_P(Handshake, WhatAnotherUserSharesIsLockedInMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers make mlock(2) do nothing";
#endif
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  const size_t before = locked_bytes();
  const auto other = meet_another_user();
  other->greet_as_another_user(kHalf);
  look();
  EXPECT_THAT(by_the_port(), IsEmpty()) << "by the channel";
  EXPECT_GE(locked_bytes(), before + shm::kRingBytes.front());
}

// close(2) of a file waits if its maker has locked it (fcntl(2)) and somebody reads a long /proc/locks.
TEST_P(Handshake, AThreadClosesWhatAnotherUserShares) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  const auto other = meet_another_user();
  test::LingeringSocket slow;
  discard(slow.take());
  ASSERT_TRUE(test::becomes_true([] { return test::is_discarding() && discarding() == 0; }));
  other->greet_as_another_user(kHalf);
  look();
  EXPECT_THAT(by_the_port(), IsEmpty()) << "by the channel";
  const size_t in_this_step = we_ask() ? 2 : 1;  // its half; and what we offered
  EXPECT_EQ(discarding(), in_this_step);
  slow.cut_short();
  EXPECT_TRUE(test::becomes_true([] { return discarding() == 0; }));
}

// An older library that would use more of its ring than is locked.
TEST_P(Handshake, AnotherUsersWideHalfIsNotUsed) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  constexpr uint32_t kWideHalf = 7;
  const auto other = meet_another_user();
  other->greet_as_another_user(kWideHalf);
  look();
  EXPECT_TRUE(other->is_hung_up_on());
  goes_where_it_should(0);
}

// The process that has not answered yet may be of any user.
TEST_P(Handshake, WhatWeOfferIsMappedOnlyWhenItIsAccepted) {
  if (!we_ask()) GTEST_SKIP() << "we do not offer";
  const auto other = meet(0);
  EXPECT_EQ(mappings_of("memfd:verbena-channel"), 0u);
  other->accept();
  look();
  EXPECT_EQ(mappings_of("memfd:verbena-channel"), 1u);
}

// The kernel checks who opens a board by its number, but not who receives its file.
TEST_P(Handshake, TellsTheNumberOfItsBoardAndSendsNoFile) {
  const auto other = meet(1);
  const auto said = other->presentation();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->board, static_cast<uint32_t>(board->file()) + 1);
}

TEST_P(Handshake, AnUndumpableProcessSaysThatItShowsNothing) {
  ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 0), 0);
  const auto other = meet(1);
  EXPECT_EQ(::prctl(PR_SET_DUMPABLE, 1), 0);
  const auto said = other->presentation();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->board, 0u);
  EXPECT_EQ(said->cookie_address, 0u);
  EXPECT_FALSE(other->is_hung_up_on());
  EXPECT_THAT(by_the_port(), IsEmpty()) << "by the channel";
}

// It keeps to the rules as far as it goes, and then is stopped. What waits for it waits at no one's cost.
TEST_P(Handshake, WhoSaysNothingMoreHoldsNobodyUp) {
  for (int steps = 0; steps <= kSteps; ++steps) {
    const Held before = held();
    {
      const auto other = meet(steps);
      for (int i = 0; i < 10; ++i) look();
      goes_where_it_should(steps);
      EXPECT_FALSE(other->is_hung_up_on());
    }
    look();
    EXPECT_EQ(held(), before) << steps;
    shard->exclusively([&] { shard->remove(*connected); });
    connected = std::make_unique<ScriptedQp>(add_qpn(), &shard->routes(), path, other_qpn());
    add(*connected);
  }
}

// ---- what is sent along

// With each message at each step: it is no message's file, or comes where none is expected, or more than one.
// The thread that finds it holds the shard's lock.
TEST_P(Handshake, WhoSendsWhatTakesLongToCloseHoldsNobodyUp) {
  const std::vector<std::byte> ring(1);
  const std::vector<std::byte> nonsense(17, std::byte{'x'});
  const Said bell{.type = kBell, .takes_bells = 1};
  const std::vector<std::pair<const char*, std::function<void(Other&, int)>>> messages{
      {"a ring", [&](Other& other, int file) { other.say(ring.data(), ring.size(), file); }},
      {"nothing", [&](Other& other, int file) { other.say(ring.data(), 0, file); }},
      {"nonsense", [&](Other& other, int file) { other.say(nonsense.data(), nonsense.size(), file); }},
      {"an offer", [&](Other& other, int file) { other.say(kOffer, file); }},
      {"an answer", [&](Other& other, int file) { other.say(kAccept, file); }},
      {"a presentation", [&](Other& other, int file) { other.present_with(file); }},
      {"a bell", [&](Other& other, int file) { other.say(&bell, sizeof bell, file); }},
  };
  for (const auto& [name, say] : messages) {
    for (int steps = 0; steps <= kSteps; ++steps) {
      SCOPED_TRACE(testing::Message() << name << " after " << steps << " steps");
      const Held before = held();
      test::LingeringSocket slow;
      {
        auto other = meet(steps);
        say(*other, slow.fd());
        slow.reset();
        const TimePoint began = MonotonicClock::now();
        look();
        look();
        EXPECT_TRUE(other->is_hung_up_on());
        EXPECT_LT(MonotonicClock::now() - began, test::LingeringSocket::kAtOnce);
      }
      look();
      slow.cut_short();
      EXPECT_TRUE(test::becomes_true([&] { return held() == before; }));
    }
  }
}

// A line that is given up is closed with all that is in its socket.
TEST_P(Handshake, WhatALineThatEndsHasNotReadHoldsNobodyUp) {
  for (int steps = 0; steps <= kSteps; ++steps) {
    SCOPED_TRACE(testing::Message() << "after " << steps << " steps");
    const Held before = held();
    test::LingeringSocket slow;
    {
      auto other = meet(steps);
      const std::vector<std::byte> nonsense(17, std::byte{'x'});
      other->say(nonsense.data(), nonsense.size());
      other->say(kOffer, slow.fd());
      slow.reset();
      const TimePoint began = MonotonicClock::now();
      look();
      EXPECT_TRUE(other->is_hung_up_on());
      EXPECT_LT(MonotonicClock::now() - began, test::LingeringSocket::kAtOnce);
    }
    slow.cut_short();
    EXPECT_TRUE(test::becomes_true([&] { return held() == before; }));
  }
}

// There is a line already, and the agent brings another socket, in which the other has written.
TEST_P(Handshake, ASocketThatIsNotNeededHoldsNobodyUp) {
  auto other = meet(kSteps);
  const Held before = held();
  test::LingeringSocket slow;
  {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    const Other again{UniqueFd(ends[1])};
    again.say(kOffer, slow.fd());
    slow.reset();
    const TimePoint began = MonotonicClock::now();
    peers->connect({shard->slot(), other_slot(), we_ask(), 0, UniqueFd(ends[0])});
    EXPECT_LT(MonotonicClock::now() - began, test::LingeringSocket::kAtOnce);
    EXPECT_TRUE(again.is_hung_up_on());
  }
  EXPECT_FALSE(other->is_hung_up_on());
  slow.cut_short();
  EXPECT_TRUE(test::becomes_true([&] { return held() == before; }));
}

// ---- what is offered

class Offered : public Handshake {
 protected:
  // What is no channel's memory.
  void refuses(int file) {
    const Held before = held();
    {
      auto other = meet(0);
      other->say(kOffer, file);
      look();
      EXPECT_TRUE(other->is_hung_up_on());
      goes_where_it_should(0);
    }
    EXPECT_TRUE(test::becomes_true([&] { return held() == before; }));
  }
};

TEST_P(Offered, MemoryIsNotUsedThatMayShrink) {
  const UniqueFd file(::memfd_create("channel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), sizeof(shm::ChannelMemory)), 0);
  refuses(file.get());
}

TEST_P(Offered, MemoryIsNotUsedThatIsTooSmall) {
  const UniqueFd file(::memfd_create("channel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  refuses(file.get());
}

TEST_P(Offered, MemoryIsNotUsedThatIsNotFormatted) {
  const UniqueFd file(::memfd_create("channel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), sizeof(shm::ChannelMemory)), 0);
  ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  refuses(file.get());
}

TEST_P(Offered, WhatIsNoFileOfMemoryIsNotUsed) {
  const UniqueFd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  refuses(file.get());
}

TEST_P(Offered, NothingIsNotUsed) {
  const Held before = held();
  {
    auto other = meet(0);
    other->say(kOffer);
    look();
    EXPECT_TRUE(other->is_hung_up_on());
  }
  EXPECT_EQ(held(), before);
}

INSTANTIATE_TEST_SUITE_P(AskedBy, Handshake, testing::Values(Asker::kWe, Asker::kThey),
                         [](const auto& one) { return one.param == Asker::kWe ? "Us" : "Them"; });
INSTANTIATE_TEST_SUITE_P(AskedBy, Offered, testing::Values(Asker::kThey), [](const auto&) { return "Them"; });

}  // namespace
}  // namespace verbena::engine
