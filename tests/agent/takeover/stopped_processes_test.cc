// SPDX-License-Identifier: Apache-2.0
#include "agent/takeover/stopped_processes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/net/udp/udp_port.h"
#include "adapter/transport/packet_io.h"
#include "agent/network_namespace.h"
#include "agent/pausing_loop.h"
#include "agent/sessions/client_sockets.h"
#include "agent/slots/wire.h"
#include "base/lingering_socket.h"
#include "control/protocol/status_page.h"
#include "wire/roce/aeth.h"

namespace verbena::agent {
namespace {

constexpr uint32_t kSlot = 1;
constexpr uint32_t kRemoteQpn = 0x123456;
constexpr uint32_t kExpected = 210;

roce::Address loopback(uint8_t last = 1) {
  roce::Address address{};
  address.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, last};
  return address;
}

// A slot's page, as its process has it.
class Page {
 public:
  Page() : file_(::memfd_create("page", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.get(), sizeof(protocol::StatusPage)), 0);
    void* const at =
        ::mmap(nullptr, sizeof(protocol::StatusPage), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EXPECT_NE(at, MAP_FAILED);
    page_ = static_cast<protocol::StatusPage*>(at);
  }
  ~Page() { ::munmap(page_, sizeof(protocol::StatusPage)); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  int file() const { return file_.get(); }
  protocol::StatusPage* operator->() const { return page_; }
  void show(roce::Qpn qpn, uint8_t rnr_retry) {
    protocol::QpStatus& status = page_->qps[qpn.index()];
    status.in_use = 1;
    status.qpn = qpn.value();
    status.type = IBV_QPT_RC;
    status.state = IBV_QPS_RTS;
    status.remote_qpn = kRemoteQpn;
    page_->details[qpn.index()].numbers[protocol::kQpReceivePsn] =
        protocol::encode({.expected = kExpected, .msn = 9, .rnr_retry = rnr_retry, .is_exact = true});
  }
  void show_peer(roce::Qpn qpn, const roce::Address& peer) {
    const auto gid = std::bit_cast<std::array<uint64_t, 2>>(peer);
    for (size_t i = 0; i < gid.size(); ++i) page_->peers[qpn.index()].gid[i] = gid[i];
  }

 private:
  const UniqueFd file_;
  protocol::StatusPage* page_ = nullptr;
};

class StoppedProcessesTest : public test::NamespaceTest, private HeaderSender {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (IsSkipped()) return;
    wire_.open();
    ASSERT_TRUE(wire_.add() && wire_.add());
    for (const uint32_t slot : {0u, kSlot, kSlot + 1}) wire_.unmute(slot);
    net::UdpPortOptions options;
    auto sender = net::UdpPort::create(UniqueFd(::fcntl(wire_.socket(0), F_DUPFD_CLOEXEC, 3)), options);
    ASSERT_TRUE(sender);
    sender_ = std::move(*sender);
    show(7);
    page_.show_peer(kQpn, loopback());
    stopped_processes_.slot_changed(kSlot, leased());
  }
  LeasedSlot leased(uint32_t index = kSlot) const {
    LeasedSlot slot;
    slot.index = index;
    slot.lease = 1;
    slot.socket = wire_.socket(index);
    slot.page = page_.file();
    slot.lessee.pid = ::getpid();
    return slot;
  }
  HeaderSender& answers() { return *this; }
  void show(uint8_t rnr_retry) { page_.show(kQpn, rnr_retry); }
  void send(uint32_t psn, roce::Operation operation = roce::Operation::kSendOnly) {
    send_from(loopback(), psn, operation, kQpn);
  }
  void send_from(const roce::Address& source, uint32_t psn) {
    send_from(source, psn, roce::Operation::kSendOnly, kQpn);
  }
  void send_from(const roce::Address& source, uint32_t psn, roce::Operation operation, roce::Qpn to) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kRc, operation);
    headers.destination = to;
    headers.psn = roce::Psn(psn);
    roce::Path path;
    path.source = source;
    path.destination = loopback();
    const std::array<std::byte, 64> bytes{};
    const ConstBytes payload(bytes);
    ASSERT_EQ(sender_->send({path, headers, {&payload, 1}, 64}), transport::SendStatus::kSent);
    ASSERT_TRUE(sender_->flush());
  }
  // Runs the loop until the condition holds. False if it did not within ten seconds.
  bool run_until(const std::function<bool()>& condition) {
    const TimePoint end = MonotonicClock::now() + std::chrono::seconds(10);
    while (!condition()) {
      if (MonotonicClock::now() > end) return false;
      loop_.at(MonotonicClock::now() + std::chrono::milliseconds(5), [] {});
      loop_.run_round();
    }
    return true;
  }
  int64_t words() const {
    return std::ranges::count_if(
        answers_, [](const auto& answer) { return answer.first.opcode == roce::kStoppedOpcode; });
  }
  std::optional<roce::Headers> rnr_nak() const {
    for (const auto& [headers, path] : answers_) {
      if (headers.opcode != roce::kStoppedOpcode &&
          roce::aeth_kind(headers.syndrome) == roce::AethKind::kRnrNak)
        return headers;
    }
    return std::nullopt;
  }
  // Acknowledgements to this address, without the word that each request gets.
  int64_t acknowledgements_to(const roce::Address& peer) const {
    return std::ranges::count_if(answers_, [&](const auto& answer) {
      return answer.first.opcode != roce::kStoppedOpcode && answer.second.destination == peer;
    });
  }
  int64_t words_to(const roce::Address& peer) const {
    return std::ranges::count_if(answers_, [&](const auto& answer) {
      return answer.first.opcode == roce::kStoppedOpcode && answer.second.destination == peer;
    });
  }
  bool await_answers(size_t count) {
    return run_until([&] { return answers_.size() >= count; });
  }

  void send_headers(const roce::Headers& headers, const roce::Path& path) override {
    answers_.emplace_back(headers, path);
    if (words() == 2 && looked_at_second_word_ == 0) looked_at_second_word_ = looked_;
  }
  void flush() override {}

  const roce::Qpn kQpn = roce::Qpn::in_slot(kSlot, 7);
  Wire wire_{roce::kUdpPort};
  Page page_;
  std::unique_ptr<net::UdpPort> sender_;
  EventLoop loop_;
  // Threads of the closer use these, perhaps even after the test.
  struct State {
    std::atomic<bool> stopped = true;
    std::atomic<int> looked = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::atomic<bool>& stopped_ = state_->stopped;
  std::atomic<int>& looked_ = state_->looked;
  int looked_at_second_word_ = 0;
  std::vector<std::pair<roce::Headers, roce::Path>> answers_;
  ClientSockets sockets_{loop_, {.all = 100, .reserve = 0}, 0};
  StoppedProcesses stopped_processes_{loop_, sockets_.closer(), roce::kUdpPort, *this,
                                      [state = state_](pid_t) {
                                        ++state->looked;
                                        return state->stopped.load();
                                      }};
};

TEST_F(StoppedProcessesTest, AnswersEachRequestWithAWordAndAnAcknowledgement) {
  send(205);
  ASSERT_TRUE(await_answers(2));
  const auto& [word, path] = answers_[0];
  EXPECT_EQ(word.opcode, roce::kStoppedOpcode);
  EXPECT_EQ(word.destination.value(), kRemoteQpn);
  EXPECT_EQ(word.psn, roce::Psn(205)) << "the requester has had no acknowledgement of it";
  EXPECT_EQ(path.destination, loopback());
  const roce::Headers& again = answers_[1].first;
  EXPECT_EQ(again.opcode, roce::make_opcode(roce::Service::kRc, roce::Operation::kAcknowledge));
  EXPECT_EQ(again.syndrome, roce::ack_syndrome());
  EXPECT_EQ(again.psn, roce::Psn(204));
  EXPECT_EQ(again.msn, 9u);
  send(205);
  EXPECT_TRUE(run_until([&] { return words() == 2; })) << "each time";
}

// A user may have hundreds of stopped programs, and flood them with packets.
TEST_F(StoppedProcessesTest, ReadsAndAnswersInTurnsOfTheProcesssUser) {
  send(205);
  ASSERT_TRUE(await_answers(2));
  send(206);
  while (words() < 2 || acknowledgements_to(loopback()) < 5) {
    const size_t before = answers_.size();
    const bool has_turn = loop_.has_work_for(LeasedSlot().lessee.uid);
    loop_.run_round();
    EXPECT_TRUE(has_turn || answers_.size() == before);
  }
}

// A process can make a reading of its page, or of its state, wait for any time.
TEST_F(StoppedProcessesTest, AProcessThatCannotBeReadHoldsUpNobody) {
  std::atomic<bool> is_stuck = true;
  const auto wait = [&](int) { is_stuck.wait(true); };
  const uid_t user = leased().lessee.uid;
  ASSERT_TRUE(sockets_.closer().work_with(user, page_.file(), wait, [] {}));
  send(205);
  ASSERT_TRUE(run_until([&] { return sockets_.closer().waiting(user) == 2; }));
  EXPECT_EQ(looked_, 0) << "the thread of its user looks";
  EXPECT_TRUE(answers_.empty());
  is_stuck = false;
  is_stuck.notify_all();
  EXPECT_TRUE(await_answers(2));
}

TEST_F(StoppedProcessesTest, ReadsAPageAgainAfterAMoment) {
  send(205);
  ASSERT_TRUE(await_answers(1));
  page_->qps[kQpn.index()].remote_qpn = 99;
  ASSERT_TRUE(run_until([&] {
    return std::ranges::any_of(answers_,
                               [](const auto& answer) { return answer.first.destination.value() == 99; });
  }));
}

// Adapters drop acknowledgements of PSNs that are already acknowledged.
TEST_F(StoppedProcessesTest, SendsAnRnrNakToAPeerThatAcknowledgementsDoNotKeep) {
  send(205);
  send(206);
  ASSERT_TRUE(await_answers(2));
  const TimePoint later = MonotonicClock::now() + std::chrono::milliseconds(150);
  ASSERT_TRUE(run_until([&] { return MonotonicClock::now() > later; }));
  send(207);
  ASSERT_TRUE(run_until([&] { return words() == 2; }));
  EXPECT_FALSE(rnr_nak()) << "another request is not one that comes again";
  send(205);
  ASSERT_TRUE(run_until([&] { return rnr_nak().has_value(); }));
  EXPECT_EQ(rnr_nak()->psn, roce::Psn(205));
  EXPECT_EQ(rnr_nak()->msn, 9u);
}

TEST_F(StoppedProcessesTest, AcknowledgesNothingThatIsNotExecuted) {
  send(215);
  ASSERT_TRUE(await_answers(4));
  for (const auto& [headers, path] : answers_) {
    EXPECT_EQ(headers.psn, roce::Psn(headers.opcode == roce::kStoppedOpcode ? kExpected : kExpected - 1));
  }
}

TEST_F(StoppedProcessesTest, SendsNoRnrNakWhereRetriesAreFinite) {
  show(6);
  send(205);
  ASSERT_TRUE(await_answers(1));
  const TimePoint later = MonotonicClock::now() + std::chrono::milliseconds(150);
  ASSERT_TRUE(run_until([&] { return MonotonicClock::now() > later; }));
  send(205);
  ASSERT_TRUE(run_until([&] { return words() == 2; }));
  EXPECT_FALSE(rnr_nak());
}

// Linux rxe restarts its timer at every response.
TEST_F(StoppedProcessesTest, RepeatsTheAcknowledgementBeforeTheRequest) {
  for (const uint8_t rnr_retry : std::to_array<uint8_t>({6, 7})) {
    show(rnr_retry);
    const size_t first = answers_.size();
    send(215);
    ASSERT_TRUE(await_answers(first + 5));
    int repeated = 0;
    for (size_t i = first; i < answers_.size(); ++i) {
      const roce::Headers& headers = answers_[i].first;
      if (headers.opcode == roce::kStoppedOpcode || headers.syndrome != roce::ack_syndrome()) continue;
      ++repeated;
      EXPECT_EQ(headers.psn, roce::Psn(kExpected - 1)) << "nothing is acknowledged that is not executed";
      EXPECT_EQ(headers.destination.value(), kRemoteQpn);
    }
    EXPECT_GE(repeated, 3);
  }
}

TEST_F(StoppedProcessesTest, RemindsNobodyWhenTheProcessGoesOn) {
  show(6);
  send(205);
  ASSERT_TRUE(await_answers(3));
  stopped_ = false;
  const int before = looked_;
  ASSERT_TRUE(run_until([&] { return looked_ > before + 1; }));  // so the first result has come
  answers_.clear();
  const TimePoint later = MonotonicClock::now() + std::chrono::milliseconds(100);
  ASSERT_TRUE(run_until([&] { return MonotonicClock::now() > later; }));
  EXPECT_TRUE(answers_.empty());
}

TEST_F(StoppedProcessesTest, SaysNothingForAProcessThatRuns) {
  stopped_ = false;
  send(205);
  ASSERT_TRUE(run_until([&] { return looked_ >= 3; }));
  EXPECT_TRUE(answers_.empty());
}

TEST_F(StoppedProcessesTest, LooksAtNoProcessThatReadsItsSocket) {
  send(205);
  std::array<std::byte, 256> packet;
  ASSERT_TRUE(
      run_until([&] { return ::recv(wire_.socket(kSlot), packet.data(), packet.size(), MSG_DONTWAIT) > 0; }));
  const TimePoint later = MonotonicClock::now() + std::chrono::milliseconds(100);
  ASSERT_TRUE(run_until([&] { return MonotonicClock::now() > later; }));
  EXPECT_EQ(looked_, 0);
}

// The user may have hundreds of processes that sleep, and make the files in /proc take long.
TEST_F(StoppedProcessesTest, LooksAtAProcessInATurnOfItsUser) {
  constexpr uid_t kSleeper = 1'000'000;  // not the user who runs the tests
  PausingLoop pausing;
  EventLoop& loop = pausing.loop();
  const auto looks = std::make_shared<std::atomic<int>>(0);
  StoppedProcesses processes(loop, sockets_.closer(), roce::kUdpPort, answers(), [looks](pid_t) {
    ++*looks;
    return false;
  });
  LeasedSlot slot = leased(kSlot + 1);
  slot.lessee.uid = kSleeper;
  processes.slot_changed(slot.index, slot);
  send_from(loopback(), 205, roce::Operation::kSendOnly, roce::Qpn::in_slot(slot.index, 7));
  pollfd come{.fd = slot.socket, .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&come, 1, -1), 1);
  loop.run_round();  // sees the packet
  pausing.make_pause(kSleeper);
  const auto run = [&] {
    loop.at(MonotonicClock::now() + std::chrono::milliseconds(5), [] {});
    loop.run_round();
  };
  while (*looks == 0 && !loop.has_work_for(kSleeper)) run();
  EXPECT_EQ(*looks, 0) << "its user pauses";
  pausing.end_pauses();
  while (loop.has_work_for(kSleeper)) run();
  EXPECT_TRUE(test::becomes_true([&] { return *looks == 1; }));
}

// To end the watch of its socket may take as long as the user likes.
TEST_F(StoppedProcessesTest, HandlesAPacketInATurnOfItsUser) {
  constexpr uid_t kSleeper = 1'000'000;  // not the user who runs the tests
  PausingLoop pausing;
  EventLoop& loop = pausing.loop();
  StoppedProcesses processes(loop, sockets_.closer(), roce::kUdpPort, answers(), [](pid_t) { return false; });
  LeasedSlot slot = leased(kSlot + 1);
  slot.lessee.uid = kSleeper;
  processes.slot_changed(slot.index, slot);
  pausing.make_pause(kSleeper);
  send_from(loopback(), 205, roce::Operation::kSendOnly, roce::Qpn::in_slot(slot.index, 7));
  pollfd come{.fd = slot.socket, .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&come, 1, -1), 1);
  loop.run_round();
  EXPECT_TRUE(loop.has_work_for(kSleeper)) << "its user pauses";
}

TEST_F(StoppedProcessesTest, AnswersNoResponseAndNoUnknownQp) {
  page_->qps[kQpn.index()].qpn = kQpn.value() + 1;
  send(205);
  ASSERT_TRUE(run_until([&] { return looked_ >= 2; }));
  page_->qps[kQpn.index()].qpn = kQpn.value();
  send(205, roce::Operation::kReadResponseMiddle);
  const int before = looked_;
  ASSERT_TRUE(run_until([&] { return looked_ > before + 1; }));
  EXPECT_TRUE(answers_.empty());
}

TEST_F(StoppedProcessesTest, LeavesThePacketsToTheProcess) {
  send(205);
  send(206);
  ASSERT_TRUE(await_answers(2));
  stopped_ = false;
  const int before = looked_;
  ASSERT_TRUE(run_until([&] { return looked_ > before + 1; }));  // so the first result has come
  std::array<std::byte, 256> packet;
  for (int i = 0; i < 2; ++i) {
    EXPECT_GT(::recv(wire_.socket(kSlot), packet.data(), packet.size(), MSG_DONTWAIT), 0);
  }
  EXPECT_LT(::recv(wire_.socket(kSlot), packet.data(), packet.size(), MSG_DONTWAIT), 0);
}

// Otherwise later packets would be dropped unnoticed, and their senders would give up.
TEST_F(StoppedProcessesTest, TakesTheOldestPacketsWhenTheSocketIsHalfFull) {
  const int bytes = 32 << 10;
  ASSERT_EQ(::setsockopt(wire_.socket(kSlot), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
  for (uint32_t i = 0; i < 400; ++i) {
    const auto before = words();
    send(205);
    ASSERT_TRUE(run_until([&] { return words() > before; })) << i;
  }
}

TEST_F(StoppedProcessesTest, AnswersOnlyThePeerThatTheStatusPageNames) {
  for (int i = 0; i < 3; ++i) send_from(loopback(2), 205);
  send(205);
  ASSERT_TRUE(run_until([&] { return acknowledgements_to(loopback()) >= 4; }));
  EXPECT_EQ(words_to(loopback()), 1);
  EXPECT_EQ(words_to(loopback(2)) + acknowledgements_to(loopback(2)), 0);
}

// Libraries of older versions do not publish the peer.
TEST_F(StoppedProcessesTest, AnswersEachSenderWhereThePeerIsNotKnown) {
  page_.show_peer(kQpn, {});
  send_from(loopback(2), 205);
  send_from(loopback(3), 205);
  send(205);
  ASSERT_TRUE(await_answers(6));
  for (const uint8_t last : std::to_array<uint8_t>({1, 2, 3}))
    EXPECT_EQ(words_to(loopback(last)), 1) << int{last};
}

TEST_F(StoppedProcessesTest, RemindsAnUnknownSenderOnlyOnceItsRequestHasComeAgain) {
  page_.show_peer(kQpn, {});
  send_from(loopback(2), 205);
  send(205);
  ASSERT_TRUE(await_answers(4));
  send(205);
  ASSERT_TRUE(run_until([&] { return acknowledgements_to(loopback()) >= 5; }));
  EXPECT_EQ(acknowledgements_to(loopback(2)), 1) << "with its word";
}

TEST_F(StoppedProcessesTest, ManySendersDoNotDriveOutOneWhoseRequestHasComeAgain) {
  page_.show_peer(kQpn, {});
  send(205);
  ASSERT_TRUE(run_until([&] { return words() == 1; }));
  send(205);
  ASSERT_TRUE(run_until([&] { return words() == 2; }));
  for (uint8_t last = 2; last < 32; ++last) send_from(loopback(last), 205);
  ASSERT_TRUE(run_until([&] { return words() == 32; }));
  const auto before = acknowledgements_to(loopback());
  EXPECT_TRUE(run_until([&] { return acknowledgements_to(loopback()) > before + 2; }));
}

TEST_F(StoppedProcessesTest, LooksAtAProcessOnceForAllItsSlots) {
  constexpr uint32_t kSecond = kSlot + 1;
  const roce::Qpn other = roce::Qpn::in_slot(kSecond, 7);
  Page page;
  page.show(other, 7);
  page.show_peer(other, loopback());
  LeasedSlot slot = leased(kSecond);
  slot.page = page.file();
  stopped_processes_.slot_changed(kSecond, slot);
  send(205);
  send_from(loopback(), 206, roce::Operation::kSendOnly, other);
  ASSERT_TRUE(run_until([&] { return words() >= 2; }));
  EXPECT_EQ(looked_at_second_word_, 1);
  stopped_processes_.slot_changed(kSecond, std::nullopt);
}

TEST_F(StoppedProcessesTest, ForgetsASlotThatIsGivenBack) {
  send(205);
  ASSERT_TRUE(await_answers(2));
  stopped_processes_.slot_changed(kSlot, std::nullopt);
  answers_.clear();
  send(205);
  const TimePoint later = MonotonicClock::now() + std::chrono::milliseconds(100);
  ASSERT_TRUE(run_until([&] { return MonotonicClock::now() > later; }));
  EXPECT_TRUE(answers_.empty());
}

}  // namespace
}  // namespace verbena::agent
