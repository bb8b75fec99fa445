// SPDX-License-Identifier: Apache-2.0
#include "control/client/agent_session.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include "control/client/fake_host.h"
#include "control/client/no_descriptors.h"

namespace verbena::control {
namespace {

using protocol::MessageType;
using test::FakeAgent;
using test::FakeHost;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Turn = AgentSession::Turn;

constexpr SessionOptions kPatient{.patience = {std::chrono::seconds(10), std::chrono::seconds(10)}};
constexpr Duration kMoment = std::chrono::milliseconds(50);
constexpr SessionOptions kHasty{.patience = {kMoment, kMoment}};
constexpr SessionOptions kFaithful{.patience = {kMoment, Patience::kAsLongAsItLives}};

FakeAgent::Answer agree(const FakeAgent::Request& request) {
  return request.type() == MessageType::kHello ? FakeAgent::greet(request) : FakeAgent::agree(request);
}

// Replies to hello, and dies on the first request.
FakeAgent::Answer die_of_a_request(const FakeAgent::Request& request) {
  return request.type() == MessageType::kHello ? FakeAgent::greet(request) : FakeAgent::death();
}

// Records its calls and runs the test's action.
class Recorder final : public Restorer {
 public:
  Recorder(std::string name, std::vector<std::string>& calls) : name_(std::move(name)), calls_(calls) {}
  Result<void> restore(const NewAgent& agent) override {
    calls_.push_back(name_ + std::to_string(agent.generation));
    return act ? act(agent) : Result<void>();
  }
  bool needs_agent() override { return needs; }

  std::function<Result<void>(const NewAgent&)> act;
  bool needs = true;

 private:
  const std::string name_;
  std::vector<std::string>& calls_;
};

class AgentSessionTest : public ::testing::Test {
 protected:
  std::unique_ptr<AgentSession> session(SessionOptions options = kPatient,
                                        AgentListener* listener = nullptr) {
    return std::make_unique<AgentSession>(host.dialer(), std::vector<Restorer*>{&first, &second}, listener,
                                          options);
  }
  // Makes a call and returns its errno value, or 0.
  static int call(AgentSession& session) {
    Turn turn(session);
    const auto answer = turn.call(MessageType::kGetLinks, protocol::GetLinksRequest{});
    return answer ? 0 : answer.error().code;
  }
  // Calls attend() as an engine thread does, until the session has greeted agent number `generation`.
  static void attend_until(AgentSession& session, uint32_t generation) {
    while (session.generation() < generation) {
      pollfd entry{session.event_fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&entry, 1, 10'000), 1) << "the session has fallen asleep";
      session.attend();
    }
  }

  FakeHost host;
  std::vector<std::string> calls;
  Recorder first{"first", calls};
  Recorder second{"second", calls};
};

TEST_F(AgentSessionTest, ReachesAnAgentAtTheFirstCallAndTellsItWhatThereIs) {
  host.run(agree);
  const auto session = this->session();
  EXPECT_EQ(host.opened(), 0);
  EXPECT_EQ(session->generation(), 0u);
  EXPECT_EQ(call(*session), 0);
  EXPECT_EQ(call(*session), 0);
  EXPECT_EQ(host.opened(), 1);
  EXPECT_EQ(session->generation(), 1u);
  EXPECT_THAT(calls, ElementsAre("first1", "second1"));
}

TEST_F(AgentSessionTest, ACallThatFindsTheAgentDeadTellsTheNextOneEverythingInOrder) {
  host.run(agree);
  const auto session = this->session();
  ASSERT_EQ(call(*session), 0);
  host.agent().die();
  FakeAgent& successor = host.run(agree);
  EXPECT_EQ(call(*session), 0);
  EXPECT_THAT(calls, ElementsAre("first1", "second1", "first2", "second2"));
  EXPECT_EQ(successor.count(MessageType::kGetLinks), 1u);
}

TEST_F(AgentSessionTest, ARequestIsMadeForTheAgentThatGetsIt) {
  host.run(die_of_a_request);
  const auto session = this->session();
  host.let_start(agree);
  std::vector<uint32_t> made_for;
  Turn turn(*session);
  const auto answer = turn.call_made<protocol::PlainReply>(MessageType::kGetLinks,
                                                           [&]() -> Result<protocol::GetLinksRequest> {
                                                             made_for.push_back(session->generation());
                                                             return protocol::GetLinksRequest{};
                                                           });
  EXPECT_TRUE(answer);
  EXPECT_THAT(made_for, ElementsAre(1u, 2u));
}

TEST_F(AgentSessionTest, ARequestThatTheNextAgentWouldNotUnderstandIsNotSent) {
  host.run(die_of_a_request);
  const auto session = this->session();
  host.let_start(agree);
  Turn turn(*session);
  const auto answer = turn.call_made<protocol::PlainReply>(MessageType::kGetLinks,
                                                           [&]() -> Result<protocol::GetLinksRequest> {
                                                             if (session->generation() != 1)
                                                               return fail(ESTALE);
                                                             return protocol::GetLinksRequest{};
                                                           });
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ESTALE);
  EXPECT_EQ(host.agent().count(MessageType::kGetLinks), 0u);
}

TEST_F(AgentSessionTest, AttendingNoticesTheDeathAndReachesTheSuccessor) {
  host.run(agree);
  const auto session = this->session();
  ASSERT_EQ(call(*session), 0);
  const int fd = session->event_fd();
  host.agent().die();
  host.let_start(agree);
  attend_until(*session, 2);
  EXPECT_EQ(session->event_fd(), fd);
  EXPECT_EQ(host.started(), 1);
  EXPECT_THAT(calls, ElementsAre("first1", "second1", "first2", "second2"));
  EXPECT_EQ(call(*session), 0);
}

// An engine that watches links has to read those of the new agent.
TEST_F(AgentSessionTest, ASuccessorThatACallHasReachedIsNewsForTheOneThatAttends) {
  host.run(agree);
  const auto session = this->session();
  ASSERT_EQ(call(*session), 0);
  pollfd entry{session->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  host.agent().die();
  host.run(agree);
  ASSERT_EQ(call(*session), 0);
  EXPECT_EQ(::poll(&entry, 1, 10'000), 1);
}

TEST_F(AgentSessionTest, NoAgentIsLookedForWhereNoRestorerNeedsOne) {
  host.run(agree);
  const auto session = this->session();
  ASSERT_EQ(call(*session), 0);
  first.needs = second.needs = false;
  host.agent().die();
  host.let_start(agree);
  session->attend();
  EXPECT_EQ(host.opened(), 1);
  EXPECT_EQ(call(*session), 0) << "but a call needs one";
  EXPECT_EQ(session->generation(), 2u);
}

TEST_F(AgentSessionTest, GivesUpByTheDeadlineWhereNoAgentComes) {
  host.let_start_in_vain();
  const auto session = this->session(kHasty);
  EXPECT_EQ(call(*session), ECONNREFUSED);
  EXPECT_GE(host.started(), 1);
  EXPECT_THAT(calls, IsEmpty());
}

// Starting an agent may take long on a busy machine or disk.
TEST_F(AgentSessionTest, TheStartOfAnAgentTakesNothingOfTheTimeOfTheCall) {
  host.let_start_slowly(agree, 4 * kMoment);
  const auto session = this->session(kHasty);
  EXPECT_EQ(call(*session), 0);
  EXPECT_EQ(host.started(), 1);
}

// Another program may have started an agent just before, or the one being started waits for a resource.
TEST_F(AgentSessionTest, FindsAnotherAgentThatListensDuringAStart) {
  host.let_start_slowly_beside(agree, die_of_a_request, std::chrono::hours(1));
  const auto session = this->session(kHasty);
  const TimePoint before = MonotonicClock::now();
  EXPECT_EQ(call(*session), 0);
  EXPECT_EQ(host.started(), 1);
  EXPECT_LT(MonotonicClock::now() - before, std::chrono::seconds(5)) << "a start is waited for longer";
}

TEST_F(AgentSessionTest, GivesUpAtOnceWhereNoneMayBeStarted) {
  const auto session = this->session();
  EXPECT_EQ(call(*session), ECONNREFUSED);
  EXPECT_EQ(host.opened(), 1);
  EXPECT_EQ(host.started(), 0);
}

TEST_F(AgentSessionTest, GivesUpByTheDeadlineWhenTheAgentDoesNotAnswer) {
  host.run([](const FakeAgent::Request& request) {
    return request.type() == MessageType::kHello ? FakeAgent::greet(request) : FakeAgent::Answer();
  });
  const auto session = this->session(kHasty);
  EXPECT_EQ(call(*session), ETIMEDOUT);
  EXPECT_EQ(call(*session), ETIMEDOUT);
  EXPECT_EQ(session->generation(), 1u) << "it may be slow and is not dead";
}

TEST_F(AgentSessionTest, RestorersHaveTheDeadlineOfTheCall) {
  host.run([](const FakeAgent::Request& request) {
    return request.type() == MessageType::kHello ? FakeAgent::greet(request) : FakeAgent::Answer();
  });
  const auto session = this->session(kHasty);
  TimePoint deadline{};
  first.act = [&](const NewAgent& agent) {
    deadline = agent.deadline;
    return Result<void>();
  };
  const TimePoint before = MonotonicClock::now();
  EXPECT_EQ(call(*session), ETIMEDOUT);
  EXPECT_GE(MonotonicClock::now(), deadline);
  EXPECT_GE(deadline, before + kMoment);
}

// The agent's process is alive, so it is stopped or starved. An error would mean "no device" to the program.
TEST_F(AgentSessionTest, WaitsForASilentAgentUntilItDiesAndAsksTheNextOne) {
  std::atomic<bool> asked = false;
  FakeAgent& silent = host.run([&](const FakeAgent::Request& request) {
    if (request.type() == MessageType::kHello) return FakeAgent::greet(request);
    asked = true;
    return FakeAgent::Answer();
  });
  const auto session = this->session(kFaithful);
  std::atomic<bool> answered = false;
  int error = -1;
  std::thread caller([&] {
    error = call(*session);
    answered = true;
  });
  while (!asked) std::this_thread::yield();
  const TimePoint later = MonotonicClock::now() + 4 * kMoment;
  while (MonotonicClock::now() < later) std::this_thread::yield();
  EXPECT_FALSE(answered);
  host.let_start(agree);
  silent.die();
  caller.join();
  EXPECT_EQ(error, 0);
  EXPECT_EQ(session->generation(), 2u);
}

// The wait for a silent agent does not count towards the time allowed for the next one.
TEST_F(AgentSessionTest, WaitsForASilentAgentThatDoesNotGreetAndThenForTheNextOne) {
  std::atomic<bool> asked = false;
  FakeAgent& silent = host.run([&](const FakeAgent::Request&) {
    asked = true;
    return FakeAgent::Answer();
  });
  const auto session = this->session(kFaithful);
  int error = -1;
  std::thread caller([&] { error = call(*session); });
  while (!asked) std::this_thread::yield();
  const TimePoint later = MonotonicClock::now() + 4 * kMoment;
  while (MonotonicClock::now() < later) std::this_thread::yield();
  host.let_start(agree);
  silent.die();
  caller.join();
  EXPECT_EQ(error, 0);
}

// The thread that calls attend() has other work to do.
TEST_F(AgentSessionTest, AttendingDoesNotWaitForASilentSuccessor) {
  host.run(agree);
  const auto session =
      this->session({.patience = {kMoment, Patience::kAsLongAsItLives}, .attend_limit = kMoment});
  ASSERT_EQ(call(*session), 0);
  host.agent().die();
  FakeAgent& silent = host.run([](const FakeAgent::Request&) { return FakeAgent::Answer(); });
  while (silent.requests().empty()) {
    pollfd entry{session->event_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 10'000), 1) << "the session has fallen asleep";
    session->attend();
  }
  silent.die();
  host.run(agree);
  attend_until(*session, 2);
}

TEST_F(AgentSessionTest, ANewAgentThatDiesWhileItIsToldIsFollowedByAnother) {
  host.run(agree);
  const auto session = this->session();
  host.let_start(agree);
  second.act = [&](const NewAgent& agent) -> Result<void> {
    if (agent.generation == 1) host.agent().die();
    const auto answer = agent.connection.call<protocol::PlainReply>(
        MessageType::kGetLinks, protocol::GetLinksRequest{}, 0, agent.deadline);
    if (!answer) return fail(answer.error().code);
    return {};
  };
  EXPECT_EQ(call(*session), 0);
  EXPECT_THAT(calls, ElementsAre("first1", "second1", "first2", "second2"));
}

TEST_F(AgentSessionTest, AnAgentThatARestorerRefusesIsNotKept) {
  FakeAgent& agent = host.run(agree);
  const auto session = this->session();
  first.act = [](const NewAgent& each) -> Result<void> {
    if (each.generation == 1) return fail(EPROTO);
    return {};
  };
  EXPECT_EQ(call(*session), EPROTO);
  EXPECT_THAT(calls, ElementsAre("first1")) << "the others are not asked";
  EXPECT_EQ(agent.count(MessageType::kGetLinks), 0u);
  EXPECT_EQ(call(*session), 0);
  EXPECT_EQ(agent.count(MessageType::kHello), 2u);
}

TEST_F(AgentSessionTest, AnAgentOfAnotherVersionIsToldNothingAndItsWordsReachTheCaller) {
  host.run([](const FakeAgent::Request& request) {
    return FakeAgent::refuse(request, protocol::kProtocolVersion + 2, EPROTONOSUPPORT,
                             "end the older of the two");
  });
  const auto session = this->session();
  {
    Turn turn(*session);
    const auto answer = turn.call(MessageType::kGetLinks, protocol::GetLinksRequest{});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, EPROTONOSUPPORT);
    EXPECT_THAT(answer.error().text, HasSubstr("older"));
  }
  EXPECT_THAT(calls, IsEmpty());
  host.run(agree);  // upgraded
  EXPECT_EQ(call(*session), 0);
}

TEST_F(AgentSessionTest, TheTakeoverStateOfADeadAgentGoesToTheNext) {
  const auto trusting = [](const FakeAgent::Request& request) {
    FakeAgent::Answer answer = FakeAgent::greet(request);
    answer.fds.emplace_back(::dup(answer.fds[0].get()));
    return answer;
  };
  FakeAgent& one = host.run(trusting);
  const auto session = this->session();
  first.act = [&](const NewAgent& agent) {
    if (agent.generation == 1) one.die();  // before restoration is complete
    return Result<void>();
  };
  second.act = [](const NewAgent& agent) -> Result<void> {
    if (agent.generation == 1) return fail(ECONNRESET);
    return {};
  };
  host.let_start(agree);
  ASSERT_EQ(call(*session), 0);
  ASSERT_EQ(one.requests().size(), 1u);
  EXPECT_EQ(one.requests()[0].fds, 0u);
  EXPECT_EQ(host.agent().requests()[0].fds, 1u);
}

// The next agent may start late and waits for survivors only briefly. A back-off of up to a second made most
// of them arrive too late.
TEST_F(AgentSessionTest, AHolderOfTakeoverStateLooksForTheNextAgentSeveralTimesWhileItWaits) {
  host.run([](const FakeAgent::Request& request) {
    if (request.type() != MessageType::kHello) return FakeAgent::agree(request);
    FakeAgent::Answer answer = FakeAgent::greet(request);
    answer.fds.emplace_back(::dup(answer.fds[0].get()));
    return answer;
  });
  const auto session = this->session();
  ASSERT_EQ(call(*session), 0);
  host.agent().die();
  const int before = host.opened();
  const TimePoint end = MonotonicClock::now() + 5 * kSurvivorWait;
  while (MonotonicClock::now() < end) {
    pollfd entry{session->event_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 10'000), 1) << "the session has fallen asleep";
    session->attend();
  }
  EXPECT_GE(host.opened() - before, 5 * 2);
}

// After a process drops its privileges, a program of its new user may listen at the agent's name.
TEST_F(AgentSessionTest, TheTakeoverStateGoesToNoAgentOfAnotherUser) {
  const auto trusting = [](const FakeAgent::Request& request) {
    if (request.type() != MessageType::kHello) return FakeAgent::agree(request);
    FakeAgent::Answer answer = FakeAgent::greet(request);
    answer.fds.emplace_back(::dup(answer.fds[0].get()));
    return answer;
  };
  const uid_t own = ::geteuid();
  FakeAgent& one = host.run(trusting, own + 1);
  const auto session = this->session();
  ASSERT_EQ(call(*session), 0);
  one.die();
  FakeAgent& two = host.run(trusting, own);
  ASSERT_EQ(call(*session), 0);
  EXPECT_EQ(two.requests()[0].fds, 0u);
  two.die();
  FakeAgent& three = host.run(agree, own);
  ASSERT_EQ(call(*session), 0);
  EXPECT_EQ(three.requests()[0].fds, 1u) << "that of the second";
}

TEST_F(AgentSessionTest, AForkedChildTellsNoAgentAnything) {
  FakeAgent& agent = host.run(agree);
  const auto session = this->session();
  ASSERT_EQ(call(*session), 0);
  const size_t before = agent.requests().size();
  const pid_t child = ::fork();
  if (child == 0) {
    session->abandon();
    session->attend();
    const bool silent = call(*session) == ECONNREFUSED && calls.size() == 2 && session->event_fd() < 0;
    ::_exit(silent ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(agent.requests().size(), before);
  EXPECT_EQ(call(*session), 0) << "the parent goes on with the same agent";
  EXPECT_EQ(session->generation(), 1u);
}

// The child's copy of the socket must not hide the agent's end from the parent.
TEST_F(AgentSessionTest, AParentNoticesTheDeathWhileAChildLives) {
  host.run(agree);
  const auto session = this->session();
  ASSERT_EQ(call(*session), 0);
  int hold[2];
  ASSERT_EQ(::pipe(hold), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(hold[1]);
    char byte;
    [[maybe_unused]] const ssize_t got = ::read(hold[0], &byte, 1);
    ::_exit(0);
  }
  host.agent().die();
  host.let_start(agree);
  attend_until(*session, 2);
  pollfd entry{session->event_fd(), POLLIN, 0};
  while (::poll(&entry, 1, 0) == 1) session->attend();  // the timer of the last attempt
  EXPECT_EQ(::poll(&entry, 1, 0), 0) << "the dead agent's socket is not watched any more";
  ::close(hold[0]);
  ::close(hold[1]);
  ::waitpid(child, nullptr, 0);
}

class Listener final : public AgentListener {
 public:
  bool on_event(AgentEvent event) override {
    types.push_back(event.header.type);
    return event.header.type != static_cast<uint16_t>(MessageType::kHello);
  }
  std::vector<uint16_t> types;
};

TEST_F(AgentSessionTest, WhatTheAgentSaysIsHeard) {
  FakeAgent& agent = host.run(agree);
  Listener listener;
  const auto session = this->session(kPatient, &listener);
  ASSERT_EQ(call(*session), 0);
  protocol::PeerMessage message{};
  message.header = protocol::request_header(MessageType::kPeer, 1);
  agent.send_event(protocol::bytes_of(message));
  session->attend();
  EXPECT_THAT(listener.types, ElementsAre(static_cast<uint16_t>(MessageType::kPeer)));
  EXPECT_EQ(session->generation(), 1u);
}

// Any user can use up the descriptors of a program that accepts connections, and cause such an event.
TEST_F(AgentSessionTest, AnEventWithADescriptorWaitsUntilOneCanBeOpened) {
  FakeAgent& agent = host.run(agree);
  Listener listener;
  const auto session = this->session(kPatient, &listener);
  ASSERT_EQ(call(*session), 0);
  protocol::PeerMessage message{};
  message.header = protocol::request_header(MessageType::kPeer, 1);
  const int file = STDIN_FILENO;
  agent.send_event(protocol::bytes_of(message), {&file, 1});
  pollfd news{session->event_fd(), POLLIN, 0};
  {
    const test::NoDescriptors now;
    session->attend();
    EXPECT_THAT(listener.types, IsEmpty());
    EXPECT_EQ(::poll(&news, 1, 0), 0) << "the thread does not spin";
    EXPECT_EQ(::poll(&news, 1, 10'000), 1) << "it looks again later";
    session->attend();
    EXPECT_THAT(listener.types, IsEmpty());
  }
  session->attend();
  EXPECT_THAT(listener.types, ElementsAre(static_cast<uint16_t>(MessageType::kPeer)));
  EXPECT_EQ(session->generation(), 1u);
  agent.send_event(protocol::bytes_of(message));
  EXPECT_EQ(::poll(&news, 1, 10'000), 1) << "later events are heard";
}

TEST_F(AgentSessionTest, AnAgentThatTalksNonsenseCountsAsDead) {
  FakeAgent& agent = host.run(agree);
  Listener listener;
  const auto session = this->session(kPatient, &listener);
  ASSERT_EQ(call(*session), 0);
  agent.send_event(protocol::bytes_of(protocol::request_header(MessageType::kHello, 1)));
  attend_until(*session, 2);
  EXPECT_EQ(agent.count(MessageType::kHello), 2u);
}

}  // namespace
}  // namespace verbena::control
