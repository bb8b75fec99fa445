// SPDX-License-Identifier: Apache-2.0
// The traces of two hosts on a lossy network contain what happened there, and nothing else.
#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/transport/simulation/world.h"
#include "observe/trace/event_words.h"
#include "observe/trace/ring_file.h"

namespace verbena::transport {
namespace {

using testing::Contains;
using trace::Event;
using trace::Kind;

// One recorder traces both hosts. Only their contents tell the QPs of both hosts apart.
class Trace : public testing::Test {
 protected:
  WorldOptions options(uint32_t packets) {
    WorldOptions o = WorldOptions::draw(1, packets);
    o.conditions = {};
    o.conditions.delay = std::chrono::microseconds(5);
    o.qp_pairs = 1;
    o.both_ways = false;
    o.flow.lateness = 0;
    o.sizes.trace = &recorder;
    return o;
  }
  std::vector<Event> read() { return file.reader().read(); }
  static size_t count(const std::vector<Event>& events, Kind kind) {
    return static_cast<size_t>(std::ranges::count(events, kind, &Event::kind));
  }

  trace::RingFile file;
  trace::Recorder recorder{file.rings()};
};

TEST_F(Trace, OfAGoodNetworkTellsOfStatesOnly) {
  World world(options(1000));
  ASSERT_TRUE(world.run()) << world.complaint();
  for (const Event& event : read()) {
    const bool is_of_setup = event.kind == Kind::kState || event.kind == Kind::kPeer ||
                             event.kind == Kind::kRoute || event.kind == Kind::kReadyToSend ||
                             event.kind == Kind::kAsyncEvent;
    EXPECT_TRUE(is_of_setup) << words_of(event);
    EXPECT_FALSE(is_trouble(event)) << words_of(event);
  }
}

TEST_F(Trace, OfALossyNetworkTellsWhatWasMissingAndWasSentAgain) {
  WorldOptions o = options(2000);
  o.conditions.loss = 20'000;  // parts per million
  World world(o);
  ASSERT_TRUE(world.run()) << world.complaint();
  const auto events = read();
  EXPECT_GT(count(events, Kind::kOutOfSequence), 0u);
  EXPECT_GT(count(events, Kind::kLost) + count(events, Kind::kGoesBack), 0u);
  EXPECT_EQ(count(events, Kind::kSendFailed), 0u);
  const uint64_t sent_again =
      world.host(0).counter(kRetransmittedPackets) + world.host(1).counter(kRetransmittedPackets);
  EXPECT_GT(sent_again, 0u) << "the counters show it, too";
}

TEST_F(Trace, OfAPeerThatFallsSilentTellsOfEachTryAndHowItEnds) {
  WorldOptions o = options(100'000);
  o.isolate_at = std::chrono::milliseconds(1);
  o.attributes.retry_count = 3;
  o.attributes.timeout = 14;
  World world(o);
  ASSERT_TRUE(world.run()) << world.complaint();
  std::vector<uint64_t> tries;
  uint64_t failed = 0;
  bool is_in_error = false;
  for (const Event& event : read()) {
    if (event.kind == Kind::kTimeout) tries.push_back(event.numbers[2]);
    if (event.kind == Kind::kSendFailed) failed = event.numbers[0] & 0xffffffff;
    is_in_error |= event.kind == Kind::kState && event.numbers[1] == IBV_QPS_ERR && is_trouble(event);
  }
  EXPECT_THAT(tries, testing::ElementsAre(3, 2, 1, 0));
  EXPECT_EQ(failed, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(is_in_error);
}

TEST_F(Trace, OfARefusedRequestTellsWhyOnBothSides) {
  WorldOptions o = options(1000);
  o.flow.fault = Fault::kRemoteKey;
  o.flow.fault_at = 3;
  World world(o);
  ASSERT_TRUE(world.run()) << world.complaint();
  const auto events = read();
  EXPECT_EQ(count(events, Kind::kRefused), 1u);
  EXPECT_EQ(count(events, Kind::kSendFailed), 1u);
  const auto refused = std::ranges::find(events, Kind::kRefused, &Event::kind);
  ASSERT_NE(refused, events.end());
  EXPECT_EQ(refused->numbers[0] >> 8, static_cast<uint64_t>(roce::NakCode::kRemoteAccess));
  const auto is_access_nak = [](const Event& e) {
    return e.numbers[1] == roce::nak_syndrome(roce::NakCode::kRemoteAccess);
  };
  for (const Kind kind : {Kind::kNakSent, Kind::kNakReceived}) {
    const auto nak =
        std::ranges::find_if(events, [&](const Event& e) { return e.kind == kind && is_access_nak(e); });
    EXPECT_NE(nak, events.end()) << trace::name_of(kind);
  }
}

TEST_F(Trace, OfAMissingReceiveRequestTellsOfRnrNaksAndTheTriesThatAreLeft) {
  WorldOptions o = options(1000);
  o.flow.fault = Fault::kNoReceive;
  o.flow.fault_at = 3;
  o.attributes.min_rnr_timer = 14;
  o.attributes.rnr_retry = 2;
  World world(o);
  ASSERT_TRUE(world.run()) << world.complaint();
  std::vector<uint64_t> left;
  for (const Event& event : read()) {
    if (event.kind == Kind::kNakReceived) left.push_back(event.numbers[2]);
  }
  ASSERT_GE(left.size(), 3u);
  EXPECT_THAT((std::vector<uint64_t>(left.end() - 3, left.end())), testing::ElementsAre(2, 1, 0));
}

}  // namespace
}  // namespace verbena::transport
