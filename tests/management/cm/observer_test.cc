// SPDX-License-Identifier: Apache-2.0
// Events that the manager reports to an observer: messages sent and received.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "management/cm/events.h"
#include "management/cm/support/endpoint.h"

namespace verbena::cm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Writes "sent REQ" or "received REP", followed by the number of earlier transmissions: "sent REQ 2".
class Record : public Observer {
 public:
  explicit Record(Endpoint& endpoint) { endpoint.manager.set_observer(*this); }
  void on_sent(const ConnectionInfo&, const Passage& passage) override { write("sent ", passage); }
  void on_received(const ConnectionInfo&, const Passage& passage) override { write("received ", passage); }

  std::vector<std::string> lines;
  uint16_t last_reason = 0;

 private:
  void write(const std::string& what, const Passage& passage) {
    const std::string repetitions = passage.repetitions != 0 ? " " + std::to_string(passage.repetitions) : "";
    lines.push_back(what + message_name(passage.type) + repetitions);
    last_reason = passage.reason;
  }
};

TEST(CmObserver, HearsOfAllMessagesOfAConnection) {
  Pair pair;
  Record a(pair.a), b(pair.b);
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.disconnect(ids.a, {}, pair.now));
  pair.carry();
  ASSERT_TRUE(pair.b.manager.confirm_disconnect(ids.b, {}, pair.now));
  pair.carry();
  EXPECT_THAT(a.lines, ElementsAre("sent REQ", "received REP", "sent RTU", "sent DREQ", "received DREP"));
  // on_request() reports the REQ: before it there is no connection.
  EXPECT_THAT(b.lines, ElementsAre("sent REP", "received RTU", "received DREQ", "sent DREP"));
}

TEST(CmObserver, HearsHowOftenAMessageWasSentBefore) {
  HalfOpen pair;
  Record a(pair.a), b(pair.b);
  pair.a.sent.clear();
  pair.pass_in_silence(pair.a.manager.deadline() - pair.now);
  ASSERT_THAT(a.lines, ElementsAre("sent REQ 1"));
  EXPECT_THAT(b.lines, IsEmpty());
}

TEST(CmObserver, HearsTheReasonOfARejection) {
  HalfOpen pair;
  Record a(pair.a), b(pair.b);
  ASSERT_TRUE(pair.b.manager.reject(pair.b.last().id, {}, pair.now));
  pair.carry();
  EXPECT_THAT(a.lines, ElementsAre("received REJ"));
  EXPECT_EQ(a.last_reason, static_cast<uint16_t>(RejReason::kConsumer));
  EXPECT_THAT(b.lines, ElementsAre("sent REJ"));
  EXPECT_EQ(b.last_reason, static_cast<uint16_t>(RejReason::kConsumer));
}

TEST(CmObserver, HearsWhatADestructionSendsAndNothingAfterIt) {
  Pair pair;
  const auto ids = pair.connect();
  Record a(pair.a);
  ASSERT_TRUE(pair.a.manager.destroy(ids.a, pair.now));
  EXPECT_THAT(a.lines, ElementsAre("sent DREQ"));
  pair.pass(std::chrono::minutes(1));
  EXPECT_THAT(a.lines, ElementsAre("sent DREQ"));
}

TEST(CmObserver, HearsNothingOfMessagesThatOthersSendInThePeersName) {
  Pair pair;
  const auto ids = pair.connect();
  Record a(pair.a);
  Dreq dreq;
  dreq.local_id = pair.b.manager.info(ids.b)->local_id;
  dreq.remote_id = ids.a;
  dreq.remote_qpn = 100;
  roce::Path path = pair.b.path_to(pair.a);
  path.source = address(9);
  pair.a.receive({encode(dreq, 1), path}, pair.now);
  EXPECT_THAT(a.lines, IsEmpty());
}

}  // namespace
}  // namespace verbena::cm
