// SPDX-License-Identifier: Apache-2.0
// Descriptors that clients send, and events that they do not read.
#include "agent/sessions/client_sockets.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lingering_socket.h"
#include "base/watched_pipe.h"
#include "control/model/message_socket.h"

namespace verbena::agent {
namespace {

using control::receive_message;
using control::send_message;
using test::becomes_true;
using test::LingeringSocket;
using test::WatchedPipe;

constexpr uid_t kUser = 1000;
constexpr uid_t kOther = 1001;
const std::array kWord{std::byte{1}};

struct Ends {
  Ends() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    ours.reset(ends[0]);
    theirs.reset(ends[1]);
  }
  UniqueFd ours;
  UniqueFd theirs;
};

// Number of calls of shutdown(2) on this thread.
thread_local int shutdowns = 0;

// Whether other threads' calls of shutdown(2) and bind(2) wait.
std::atomic<bool> shutdown_blocked = false;
std::atomic<bool> bind_blocked = false;
std::atomic<int> blocked_calls = 0;  // number of calls that wait
const std::thread::id main_thread = std::this_thread::get_id();

// Has these calls wait while the object exists.
class Blocked {
 public:
  explicit Blocked(std::atomic<bool>& calls) : calls_(calls) { calls_ = true; }
  ~Blocked() {
    calls_ = false;
    calls_.notify_all();
  }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  std::atomic<bool>& calls_;
};

void wait_while(const std::atomic<bool>& blocked) {
  if (std::this_thread::get_id() == main_thread) return;
  ++blocked_calls;
  blocked.wait(true);
  --blocked_calls;
}

// Whether the other end of the socket is shut down or closed.
bool has_ended(const UniqueFd& socket) {
  pollfd entry{socket.get(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) == 1;
}

TEST(ForeignCloserTest, ClosesAndCounts) {
  ForeignCloser closer;
  WatchedPipe pipe;
  closer.close(kUser, std::move(pipe.writing), closer.count(kUser));
  EXPECT_TRUE(becomes_true([&] { return pipe.is_closed(); }));
  EXPECT_TRUE(becomes_true([&] { return closer.waiting(kUser) == 0; }));
  closer.close(kUser, UniqueFd(), closer.count(kUser));
  EXPECT_EQ(closer.waiting(kUser), 0u);
}

// Waiting for each socket would take more than ten seconds.
TEST(ForeignCloserTest, ASocketThatLingersHoldsUpNobodyForLong) {
  ForeignCloser closer;
  std::array<LingeringSocket, 3> slow;
  const TimePoint begun = MonotonicClock::now();
  for (LingeringSocket& each : slow) closer.close(kUser, each.take(), closer.count(kUser));
  EXPECT_LT(MonotonicClock::now() - begun, LingeringSocket::kAtOnce);
  EXPECT_TRUE(becomes_true([&] { return closer.waiting(kUser) == 0; }));
  EXPECT_LT(MonotonicClock::now() - begun, LingeringSocket::kLingers);
}

TEST(ForeignCloserTest, DescriptorsCountInAShareUntilTheyAreClosed) {
  ForeignCloser closer({.all = 9, .reserve = 0}, 0);
  std::array<ClientFile, 6> files;
  for (ClientFile& each : files) {
    ASSERT_TRUE(closer.allows(kUser));
    each = ClientFile(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)), kUser, closer);
  }
  EXPECT_FALSE(closer.allows(kUser));
  EXPECT_TRUE(closer.allows(kOther));
  for (ClientFile& each : files) const ClientFile gone = std::move(each);
  EXPECT_FALSE(closer.allows(kUser)) << "whether they are closed is not looked at yet";
  size_t closed = 0;
  EXPECT_TRUE(becomes_true([&] { return (closed += closer.take_closed().size()) == files.size(); }));
  EXPECT_TRUE(closer.allows(kUser));
  const QuotaShare made = closer.count(kUser, 6);
  EXPECT_FALSE(closer.allows(kUser)) << "what the agent makes for a user counts, too";
}

TEST(ForeignCloserTest, ManyUsersAreServedByTurns) {
  ForeignCloser closer;
  for (uid_t user = 1; user < 300; ++user) {
    WatchedPipe pipe;
    closer.close(user, std::move(pipe.writing), closer.count(user));
    ASSERT_TRUE(becomes_true([&] { return pipe.is_closed(); }));
  }
}

// To shut a socket down takes as long as its user likes, and users may connect on many processors at once.
TEST(ForeignCloserTest, SocketsAreShutDownByMoreThreadsTheMoreWait) {
  EXPECT_EQ(ForeignCloser::threads_for(1), 1u);
  EXPECT_EQ(ForeignCloser::threads_for(ForeignCloser::kPerThread), 1u);
  EXPECT_EQ(ForeignCloser::threads_for(ForeignCloser::kPerThread + 1), 2u);
  EXPECT_EQ(ForeignCloser::threads_for(SIZE_MAX), ForeignCloser::kMaxThreads);
  EXPECT_LT(ForeignCloser::kPerThread * ForeignCloser::kMaxThreads, ClientSockets::kMaxRefused);
}

// Without a second thread none of them would start.
TEST(ForeignCloserTest, SeveralThreadsShutSocketsDownAtOnce) {
  ForeignCloser closer;
  {
    const Blocked shutdown(shutdown_blocked);
    for (size_t i = 0; i <= ForeignCloser::kPerThread + 1; ++i)
      closer.shut_down_and_close(kUser, Ends().ours, closer.count(kUser));
    EXPECT_TRUE(becomes_true([] { return blocked_calls == 2; }));
  }
  EXPECT_TRUE(becomes_true([&] { return closer.waiting(kUser) == 0; }));
}

// A read waits for as long as the user's other processes like.
TEST(ForeignCloserTest, FilesAreReadOnTheUsersThreadAndClosed) {
  ForeignCloser closer({.all = 9, .reserve = 0}, 0);
  WatchedPipe pipe;
  std::atomic<bool> is_on_main_thread = true;
  std::string order;
  closer.work_and_close(
      kUser, std::move(pipe.writing), closer.count(kUser),
      [&](int) { is_on_main_thread = std::this_thread::get_id() == main_thread; }, [&] { order += "then"; });
  EXPECT_TRUE(becomes_true([&] { return pipe.is_closed(); }));
  EXPECT_FALSE(is_on_main_thread);
  std::vector<ForeignCloser::Done> done;
  EXPECT_TRUE(becomes_true([&] { return !(done = closer.take_closed()).empty(); }));
  EXPECT_EQ(order, "");
  done.front().task();
  EXPECT_EQ(order, "then");
}

TEST(ForeignCloserTest, AFileIsNotReadBeyondTheUsersShareOfDescriptors) {
  ForeignCloser closer({.all = 9, .reserve = 0}, 0);
  const QuotaShare others = closer.count(kUser, 6);
  EXPECT_EQ(closer
                .work_with(
                    kUser, 0, [](int) {}, [] {})
                .error()
                .code,
            EMFILE);
}

// Carries out what follows the threads' work until `is_done` returns true.
bool run_tasks(ForeignCloser& closer, const std::function<bool()>& is_done) {
  return becomes_true([&] {
    for (ForeignCloser::Done& done : closer.take_closed()) {
      done.share.reset();
      if (done.task) std::exchange(done.task, {})();
    }
    return is_done();
  });
}

// The kernel may make the opening of a file wait, and a user the reading of one.
TEST(ForeignCloserTest, FilesAreOpenedOneAfterTheOtherWhileAReadWaits) {
  ForeignCloser closer({.all = 9, .reserve = 0}, 0);
  WatchedPipe pipe;
  std::atomic<bool> read_blocked = true;
  closer.work_and_close(kUser, std::move(pipe.writing), closer.count(kUser),
                        [&](int) { read_blocked.wait(true); }, {});
  std::atomic<int> at_once = 0;
  std::vector<int> results;  // 0 or the errno
  for (const int error : {EADDRINUSE, 0, ENODEV}) {
    closer.open(
        kUser,
        [&at_once, error]() -> Result<UniqueFd> {
          EXPECT_NE(std::this_thread::get_id(), main_thread);
          EXPECT_EQ(++at_once, 1);
          UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
          --at_once;
          if (error != 0) return fail(error);
          return file;
        },
        [&](Result<ForeignCloser::SharedFd> file) { results.push_back(file ? 0 : file.error().code); });
  }
  EXPECT_TRUE(run_tasks(closer, [&] { return results.size() == 3; }));
  EXPECT_EQ(results, (std::vector<int>{EADDRINUSE, 0, ENODEV}));
  EXPECT_FALSE(pipe.is_closed()) << "the read still waits";
  read_blocked = false;
  read_blocked.notify_all();
  EXPECT_TRUE(becomes_true([&] { return closer.waiting(kUser) == 0; }));
}

TEST(ForeignCloserTest, AnOpenedFileCountsUntilAThreadHasClosedIt) {
  ForeignCloser closer({.all = 9, .reserve = 0}, 0);
  WatchedPipe pipe;
  ForeignCloser::SharedFd kept;
  const QuotaShare others = closer.count(kUser, 5);
  EXPECT_TRUE(closer.allows(kUser));
  closer.open(
      kUser, [&]() -> Result<UniqueFd> { return std::move(pipe.writing); },
      [&](Result<ForeignCloser::SharedFd> file) {
        ASSERT_TRUE(file);
        kept = std::move(*file);
      });
  EXPECT_FALSE(closer.allows(kUser)) << "it counts before it is open";
  EXPECT_TRUE(run_tasks(closer, [&] { return kept != nullptr; }));
  EXPECT_FALSE(closer.allows(kUser));
  EXPECT_FALSE(pipe.is_closed());
  kept.reset();
  EXPECT_TRUE(run_tasks(closer, [&] { return closer.allows(kUser); }));
  EXPECT_TRUE(pipe.is_closed());
}

class ClientSocketTest : public ::testing::Test {
 protected:
  static constexpr Quota::Size kUnread{.all = 90, .reserve = 0};  // 60 for one user

  // Sends one descriptor. False if the limit of unread descriptors is reached.
  bool send() {
    if (!socket->may_send(1)) return false;
    return socket->send(kWord, {&file, 1}).has_value();
  }
  size_t send_all() {
    size_t sent = 0;
    while (sent < 1000 && send()) ++sent;
    return sent;
  }
  static void read_all(const UniqueFd& from) {
    std::array<std::byte, 8> buffer;
    for (auto got = receive_message(from.get(), buffer); got && got->bytes > 0;)
      got = receive_message(from.get(), buffer);
  }

  EventLoop loop;
  ClientSockets sockets{loop, kUnread, 0};
  Ends ends;
  std::optional<ClientSocket> socket{std::in_place, sockets, kUser, std::move(ends.ours)};
  UniqueFd null{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const int file = null.get();
};

TEST_F(ClientSocketTest, WhatFollowsTheReadingOfAFileIsPartOfTheUsersTurn) {
  bool is_done = false;
  ASSERT_TRUE(sockets.closer().work_with(
      kUser, file, [](int) {}, [&] { is_done = true; }));
  EXPECT_TRUE(becomes_true([&] { return sockets.closer().waiting(kUser) == 0; }));
  EXPECT_FALSE(loop.has_work_for(kUser));
  while (!is_done) loop.run_round();
}

TEST_F(ClientSocketTest, AUserWhoTakesNothingGetsNoMoreThanItsShare) {
  EXPECT_EQ(send_all(), 60u);
  EXPECT_TRUE(sockets.unread().allows(kOther));
  read_all(ends.theirs);
  EXPECT_TRUE(send());
  EXPECT_EQ(sockets.unread().of(kUser), 1u) << "what was taken counts no more";
}

// With more than 2,024 unread descriptors, each greeting would wait for the kernel's search for sockets that
// no process can receive.
TEST(ClientSockets, AreNotSentSoMuchThatTheKernelMakesUsWait) {
  EXPECT_LT(ClientSockets::room_for_replies(ClientSockets::room_with(1 << 20)).all, 2024u - 256u);
  EXPECT_EQ(ClientSockets::room_for_replies(ClientSockets::room_with(256)).all, 128u);
}

// Programs that do not read their events (new links, channels) leave room for replies to others.
TEST_F(ClientSocketTest, EventsLeaveRoomForReplies) {
  Ends events, replies;
  ClientSockets all(loop, ClientSockets::room_with(1 << 14), 0);
  ClientSocket told(all, kUser, std::move(events.ours));
  ClientSocket asked(all, kOther, std::move(replies.ours), ClientSockets::For::kReplies);
  for (int i = 0; i < 10; ++i) all.sent(kUser, 200, ClientSockets::For::kEvents);
  EXPECT_TRUE(asked.may_send(3));
  for (int i = 0; i < 10; ++i) all.sent(kUser, 200, ClientSockets::For::kReplies);
  EXPECT_FALSE(asked.may_send(3));
  EXPECT_TRUE(told.may_send(1));
  for (int i = 0; i < 10; ++i) {
    all.taken(kUser, 200, ClientSockets::For::kEvents);
    all.taken(kUser, 200, ClientSockets::For::kReplies);
  }
  EXPECT_TRUE(asked.may_send(3));
}

// Each descriptor that is read wakes one client of each user that waits for room.
TEST_F(ClientSocketTest, WhoWaitsForRoomIsWokenInTurns) {
  Ends first, second, third;
  std::string woken;
  const auto watch = [&](const Ends& one, char name) {
    const int fd = one.ours.get();
    ASSERT_TRUE(send_message(one.theirs.get(), kWord));
    loop.watch_for(kUser, fd, 0, [&woken, name, fd, this](uint32_t events) {
      if ((events & EPOLLIN) != 0) woken += name;
      loop.set_events(fd, 0);
      return false;
    });
  };
  watch(first, 'a');
  watch(second, 'b');
  watch(third, 'c');
  // Runs the loop until no work is left.
  const auto run = [this] {
    do {
      loop.in_next_round([] {});
      loop.run_round();
    } while (loop.has_work_for(kUser) || loop.has_work_for(kOther));
  };
  sockets.await_room(kUser, first.ours.get());
  const uint64_t ticket = sockets.await_room(kUser, second.ours.get());
  sockets.await_room(kOther, third.ours.get());
  ASSERT_TRUE(send());
  read_all(ends.theirs);
  EXPECT_TRUE(socket->is_read());
  run();
  EXPECT_EQ(woken, "ac");
  sockets.cancel_wait(kUser, ticket);
  ASSERT_TRUE(send());
  read_all(ends.theirs);
  EXPECT_TRUE(socket->is_read());
  run();
  EXPECT_EQ(woken, "ac") << "it waits no more";
  for (const Ends* each : {&first, &second, &third}) loop.forget(each->ours.get());
}

TEST_F(ClientSocketTest, WhatLiesUnreadCountsAfterItsConnectionIsGone) {
  EXPECT_EQ(send_all(), 60u);
  socket.reset();
  EXPECT_EQ(sockets.unread().of(kUser), 60u);
  Ends again;
  socket.emplace(sockets, kUser, std::move(again.ours));
  EXPECT_FALSE(send());
  read_all(ends.theirs);
  while (sockets.unread().of(kUser) != 0) loop.run_round();
  EXPECT_TRUE(send());
}

// The agent keeps the socket open until then.
TEST_F(ClientSocketTest, OneThatIsLeftUnreadCountsUntilItIsClosed) {
  const auto sessions = std::make_shared<Quota>(Quota::Size::of(8), 0);
  Ends left;
  socket.emplace(sockets, kUser, std::move(left.ours), ClientSockets::For::kEvents,
                 take_share(sessions, kUser));
  ASSERT_TRUE(send());
  socket.reset();
  EXPECT_EQ(sessions->of(kUser), 1u);
  read_all(left.theirs);
  while (sessions->of(kUser) != 0) loop.run_round();
}

// To shut a socket down takes as long as the client likes (epoll(7)).
TEST_F(ClientSocketTest, OneThatIsRefusedIsShutDownByTheCloser) {
  Ends refused;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(send_message(refused.theirs.get(), kWord));
  const int before = shutdowns;
  sockets.refuse(kUser, std::move(refused.ours));
  EXPECT_EQ(shutdowns, before);
  EXPECT_FALSE(loop.has_work_for(kUser));
  EXPECT_TRUE(becomes_true([&] { return has_ended(refused.theirs); }));
}

// A descriptor that the user has sent may keep its thread for as long as the user likes.
TEST_F(ClientSocketTest, OneThatIsRefusedDoesNotWaitForWhatItsUserHasSent) {
  const Blocked bind(bind_blocked);
  sockets.closer().name_and_close(kUser, UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)));
  Ends refused;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(send_message(refused.theirs.get(), kWord));
  EXPECT_TRUE(sockets.refuse(kUser, std::move(refused.ours)));
  EXPECT_FALSE(loop.has_work_for(kUser));
  EXPECT_TRUE(becomes_true([&] { return has_ended(refused.theirs); }));
  EXPECT_TRUE(becomes_true([&] { return sockets.closer().waiting(kUser) == 1; }));
}

// To close it may take as long as the user likes.
TEST_F(ClientSocketTest, OneThatIsRefusedWithADescriptorGoesToTheThreadForWhatItsUserHasSent) {
  {
    const Blocked bind(bind_blocked);
    sockets.closer().name_and_close(kUser, UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)));
    Ends refused;
    WatchedPipe pipe;
    const int fd = pipe.writing.get();
    ASSERT_TRUE(send_message(refused.theirs.get(), kWord, {&fd, 1}));
    pipe.writing.reset();
    EXPECT_TRUE(sockets.refuse(kUser, std::move(refused.ours)));
    EXPECT_TRUE(becomes_true([&] { return has_ended(refused.theirs); }));
    EXPECT_FALSE(pipe.is_closed());
  }
  EXPECT_TRUE(becomes_true([&] { return sockets.closer().waiting(kUser) == 0; }));
}

// Each is an open descriptor of the agent. Only accept4(2) tells whose the next one is.
TEST_F(ClientSocketTest, NotManyRefusedOnesMayWaitToBeShutDown) {
  size_t refused = 0;
  {
    const Blocked shutdown(shutdown_blocked);
    const int before = shutdowns;
    while (refused < 2 * ClientSockets::kMaxRefused && sockets.refuse(kUser, Ends().ours)) ++refused;
    EXPECT_EQ(refused, ClientSockets::kMaxRefused - 1);
    EXPECT_EQ(shutdowns, before) << "the agent's thread does nothing that takes long";
    EXPECT_FALSE(sockets.may_refuse());
  }
  while (!sockets.may_refuse()) loop.run_round();
}

TEST_F(ClientSocketTest, WhatLiesUnreadIsGoneWithTheClient) {
  EXPECT_EQ(send_all(), 60u);
  socket.reset();
  ends.theirs.reset();
  while (sockets.unread().of(kUser) != 0) loop.run_round();
  EXPECT_TRUE(sockets.unread().allows(kUser));
}

TEST_F(ClientSocketTest, AnEndedConnectionIsShutDownByTheCloser) {
  const int before = shutdowns;
  socket.reset();
  EXPECT_EQ(shutdowns, before);
  EXPECT_TRUE(becomes_true([&] { return has_ended(ends.theirs); }));
}

TEST_F(ClientSocketTest, AnEndedConnectionIsSeenByItsClient) {
  ASSERT_TRUE(send());
  socket.reset();
  EXPECT_TRUE(becomes_true([&] { return has_ended(ends.theirs); }));
  std::array<std::byte, 8> buffer;
  EXPECT_EQ(receive_message(ends.theirs.get(), buffer)->bytes, 1u);
  EXPECT_EQ(receive_message(ends.theirs.get(), buffer)->bytes, 0u);
}

// The removal wakes all watches of the client's end, as a message to it does.
TEST_F(ClientSocketTest, AUserWhoseMessagesTakeLongToRemovePauses) {
  TimePoint time = MonotonicClock::now();
  const auto clock = [&] { return time += UserTurns::kSlow / 2; };  // as long as a piece of work may take
  EventLoop slow_loop(EventLoop::kPerRound, clock, clock);
  ClientSockets all(slow_loop, kUnread, 0);
  Ends slow;
  const ClientSocket slow_socket(all, kUser, std::move(slow.ours));
  std::array<std::byte, 8> buffer;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(send_message(slow.theirs.get(), kWord));
    ASSERT_TRUE(slow_socket.look(buffer));
    slow_socket.drop();
  }
  EXPECT_EQ(slow_socket.look(buffer).error().code, EAGAIN) << "all are removed";
  EXPECT_FALSE(slow_loop.try_send_to(kUser, [] {}));
}

TEST_F(ClientSocketTest, NobodyWaitsForWhatAClientSends) {
  LingeringSocket slow;
  const int fd = slow.fd();
  ASSERT_TRUE(send_message(ends.theirs.get(), kWord, {&fd, 1}));
  slow.reset();
  const TimePoint begun = MonotonicClock::now();
  std::array<std::byte, 8> buffer;
  const auto seen = socket->look(buffer);
  ASSERT_TRUE(seen);
  EXPECT_TRUE(seen->has_files);
  EXPECT_FALSE(seen->file);
  {
    const auto taken = socket->look(buffer, true);
    ASSERT_TRUE(taken);
    EXPECT_FALSE(taken->has_files);
    EXPECT_TRUE(taken->file);
    socket->drop();
  }
  ASSERT_TRUE(send_message(ends.theirs.get(), kWord, {&file, 1}));
  socket.reset();
  EXPECT_LT(MonotonicClock::now() - begun, LingeringSocket::kAtOnce);
  EXPECT_TRUE(becomes_true([&] { return sockets.closer().waiting(kUser) == 0; }));
}

}  // namespace
}  // namespace verbena::agent

// The C library's, for the whole test program.
extern "C" int shutdown(int socket, int how) noexcept {
  ++verbena::agent::shutdowns;
  verbena::agent::wait_while(verbena::agent::shutdown_blocked);
  return static_cast<int>(::syscall(SYS_shutdown, socket, how));
}

extern "C" int bind(int socket, const sockaddr* address, socklen_t length) noexcept {
  verbena::agent::wait_while(verbena::agent::bind_blocked);
  return static_cast<int>(::syscall(SYS_bind, socket, address, length));
}
