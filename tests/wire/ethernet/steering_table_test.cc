// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <list>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "wire/ethernet/frames.h"
#include "wire/ethernet/steering.h"

namespace verbena::ethernet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

struct NamedRule : SteeringRule {
  int name = 0;
};

class SteeringTableTest : public ::testing::Test {
 protected:
  NamedRule& rule(int name, uint16_t priority = 0) {
    NamedRule& made = rules_.emplace_back();
    made.name = name;
    made.priority = priority;
    return made;
  }
  NamedRule& for_port(int name, uint16_t port, uint16_t priority = 0) {
    NamedRule& made = rule(name, priority);
    made.value.destination_port = byteswap(port);
    made.mask.destination_port = 0xffff;
    made.value.layers = made.mask.layers = kUdp;
    return made;
  }
  NamedRule& for_all_of_our_address(int name, uint16_t priority = 0) {
    NamedRule& made = rule(name, priority);
    made.value.destination = {2, 0, 0, 0, 0, 0xd};
    made.mask.destination.fill(0xff);
    return made;
  }
  NamedRule& fallback(int name, RuleKind kind) {
    NamedRule& made = rule(name);
    made.kind = kind;
    return made;
  }

  std::vector<int> steer(const testing::Frame& frame) {
    std::vector<int> names;
    table_.steer(parse_headers(frame)->key,
                 [&](const SteeringRule& r) { names.push_back(static_cast<const NamedRule&>(r).name); });
    return names;
  }

  SteeringTable table_;
  std::list<NamedRule> rules_;
};

testing::Frame multicast() {
  testing::Frame frame = testing::udp4();
  frame[0] = std::byte{1};
  return frame;
}

TEST_F(SteeringTableTest, SteersNothingWithoutARule) {
  EXPECT_TRUE(table_.empty());
  EXPECT_THAT(steer(testing::udp4()), IsEmpty());
}

TEST_F(SteeringTableTest, RuleTakesWhatMatches) {
  table_.add(for_port(1, 2000));
  table_.add(for_port(2, 2001));
  EXPECT_THAT(steer(testing::udp4()), ElementsAre(1));
  EXPECT_THAT(steer(testing::tcp4()), IsEmpty());
}

TEST_F(SteeringTableTest, LowerPriorityNumberComesFirst) {
  table_.add(for_port(1, 2000, 5));
  table_.add(for_all_of_our_address(2, 3));
  EXPECT_THAT(steer(testing::udp4()), ElementsAre(2));
}

TEST_F(SteeringTableTest, MoreSpecificRuleComesFirstAtEqualPriority) {
  table_.add(for_port(1, 2000));
  table_.add(for_all_of_our_address(2));
  EXPECT_THAT(steer(testing::udp4()), ElementsAre(2)) << "48 bits are more than 17";
}

TEST_F(SteeringTableTest, EqualRulesGetACopyEach) {
  table_.add(for_port(1, 2000));
  table_.add(for_port(2, 2000));
  EXPECT_THAT(steer(testing::udp4()), UnorderedElementsAre(1, 2));
}

TEST_F(SteeringTableTest, RuleThatDoesNotTrapLeavesACopyForLaterRules) {
  NamedRule& first = for_all_of_our_address(1, 0);
  first.traps = false;
  table_.add(first);
  table_.add(for_port(2, 2000, 1));
  table_.add(for_port(3, 2000, 2));
  EXPECT_THAT(steer(testing::udp4()), ElementsAre(1, 2));
}

TEST_F(SteeringTableTest, DefaultsGetWhatNoRuleTook) {
  table_.add(for_port(1, 2000));
  table_.add(fallback(2, RuleKind::kAllDefault));
  EXPECT_THAT(steer(testing::udp4()), ElementsAre(1));
  EXPECT_THAT(steer(testing::tcp4()), ElementsAre(2));
}

TEST_F(SteeringTableTest, MulticastDefaultGetsMulticastOnly) {
  table_.add(fallback(1, RuleKind::kMulticastDefault));
  table_.add(fallback(2, RuleKind::kAllDefault));
  EXPECT_THAT(steer(multicast()), UnorderedElementsAre(1, 2));
  EXPECT_THAT(steer(testing::udp4()), ElementsAre(2));
}

TEST_F(SteeringTableTest, RemovedRuleIsGone) {
  NamedRule& one = for_port(1, 2000);
  NamedRule& same = for_port(2, 2000);
  NamedRule& all = fallback(3, RuleKind::kAllDefault);
  for (NamedRule* r : {&one, &same, &all}) table_.add(*r);
  table_.remove(one);
  EXPECT_THAT(steer(testing::udp4()), ElementsAre(2));
  table_.remove(same);
  EXPECT_THAT(steer(testing::udp4()), ElementsAre(3));
  table_.remove(all);
  EXPECT_THAT(steer(testing::udp4()), IsEmpty());
  EXPECT_TRUE(table_.empty());
  table_.remove(one);  // removing it a second time has no effect
  EXPECT_EQ(table_.size(), 0u);
}

// Compares the table with the definition: all matching rules of the highest priority and weight.
TEST_F(SteeringTableTest, FindsTheSameRulesAsALinearSearch) {
  const uint64_t seed = 20'240;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int round = 0; round < 300; ++round) {
    SteeringTable table;
    std::list<NamedRule> rules;
    std::vector<testing::Frame> frames;
    while (frames.size() < 8) {
      testing::Frame frame = testing::random_frame(random);
      if (parse_headers(frame)) frames.push_back(frame);
    }
    for (int name = 0; name < 12; ++name) {
      NamedRule& made = rules.emplace_back();
      const auto wanted =
          testing::random_rule(random, parse_headers(frames[random.below(frames.size())])->key);
      made.name = name;
      made.priority = static_cast<uint16_t>(random.below(3));
      made.value = wanted.value;
      made.mask = wanted.mask;
      table.add(made);
    }
    for (int removals = 0; removals < 4; ++removals) {
      const auto victim = std::next(rules.begin(), static_cast<ptrdiff_t>(random.below(rules.size())));
      table.remove(*victim);
      rules.erase(victim);
    }
    for (const testing::Frame& frame : frames) {
      const FlowKey key = parse_headers(frame)->key;
      std::vector<const NamedRule*> matching;
      for (const NamedRule& r : rules) {
        if ((key & r.mask) == r.value) matching.push_back(&r);
      }
      std::vector<const NamedRule*> found;
      table.steer(key, [&](const SteeringRule& r) { found.push_back(static_cast<const NamedRule*>(&r)); });
      ASSERT_EQ(found.empty(), matching.empty());
      for (const NamedRule* r : found) {
        ASSERT_NE(std::find(matching.begin(), matching.end(), r), matching.end());
        for (const NamedRule* other : matching) {
          const bool earlier = other->priority < r->priority ||
                               (other->priority == r->priority && weight(other->mask) > weight(r->mask));
          ASSERT_FALSE(earlier) << other->name << " comes before " << r->name;
          const bool same = other->priority == r->priority && other->mask == r->mask;
          if (!same) continue;
          ASSERT_NE(std::find(found.begin(), found.end(), other), found.end());
        }
      }
    }
  }
}

}  // namespace
}  // namespace verbena::ethernet
