// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "agent/log/agent_log.h"

namespace verbena::agent {
namespace {

void expect_next(LogQueue& queue, const std::string& line, size_t dropped = 0) {
  ASSERT_TRUE(queue.has_next());
  const LogQueue::Entry entry = queue.take();
  EXPECT_EQ(entry.line, line);
  EXPECT_EQ(entry.dropped, dropped);
}

TEST(LogQueueTest, GivesLinesInTheirOrder) {
  LogQueue queue(100);
  queue.add("a");
  queue.add("b");
  expect_next(queue, "a");
  queue.add("c");
  expect_next(queue, "b");
  expect_next(queue, "c");
  EXPECT_FALSE(queue.has_next());
}

TEST(LogQueueTest, SaysHowManyDidNotFitWhereTheyAreMissing) {
  LogQueue queue(2);
  for (const char* line : {"a", "b", "c", "d"}) queue.add(line);
  expect_next(queue, "a");
  queue.add("e");
  queue.add("f");
  expect_next(queue, "b");
  expect_next(queue, "", 2);
  expect_next(queue, "e");
  expect_next(queue, "", 1);
  EXPECT_FALSE(queue.has_next());
}

TEST(LogQueueTest, ALineThatIsLongerThanTheQueueIsDropped) {
  LogQueue queue(3);
  queue.add("abcd");
  expect_next(queue, "", 1);
}

TEST(LogQueueTest, CountsWhatCouldNotBeWrittenAndSaysItBeforeTheNextLine) {
  LogQueue queue(2);
  for (const char* line : {"a", "b", "c"}) queue.add(line);
  queue.failed(queue.take());
  EXPECT_FALSE(queue.has_next()) << "it would fail at once";
  queue.add("d");
  expect_next(queue, "", 3);
  expect_next(queue, "d");
}

TEST(LogQueueTest, FailingAgainAndAgainLosesNoCount) {
  LogQueue queue(10);
  for (const char* line : {"a", "b", "c"}) {
    queue.add(line);
    queue.failed(queue.take());
    EXPECT_FALSE(queue.has_next());
  }
  queue.add("d");
  expect_next(queue, "", 3);
  expect_next(queue, "d");
}

TEST(LogQueueTest, HasRoomAgainWhenLinesAreTaken) {
  LogQueue queue(1);
  for (int i = 0; i < 1000; ++i) {
    queue.add("a");
    expect_next(queue, "a");
  }
}

}  // namespace
}  // namespace verbena::agent
