// SPDX-License-Identifier: Apache-2.0
// The traces that an agent leaves for the next one.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "agent/status/kept_traces.h"
#include "agent/status/traced_page.h"
#include "observe/trace/reader.h"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;
using trace::Kind;

class LeftTraces : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/verbena-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ / "traces";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Leaves, for each session, the trace of a process that did not end well.
  void leave(const std::vector<uint64_t>& sessions) {
    KeptTraces before{closer_};
    TracedPage page;
    page.write(Kind::kTimeout, 3);
    for (const uint64_t session : sessions) keep_copy(before, closer_, slot_of(page, session), false, now_);
    ASSERT_TRUE(leave_traces(before, path_));
  }
  std::vector<const KeptTraces::Kept*> take() {
    take_left_traces(after_, path_, now_);
    std::vector<const KeptTraces::Kept*> all;
    after_.for_each_notable([&](const KeptTraces::Kept& kept) { all.push_back(&kept); });
    return all;
  }

  fs::path folder_;
  fs::path path_;
  TimePoint now_ = MonotonicClock::now();
  ForeignCloser closer_;
  KeptTraces after_{closer_};
};

TEST_F(LeftTraces, AreTakenUpByTheNextAgent) {
  leave({5, 6});
  const auto taken = take();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0]->pid, 5);
  EXPECT_EQ(taken[0]->uid, 1000u);
  EXPECT_EQ(taken[0]->program, "test");
  EXPECT_EQ(taken[0]->ended, now_);
  EXPECT_NE(taken[0]->process, taken[1]->process);
  const auto events = trace::Reader(taken[0]->file.get(), 0).read();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2].numbers[0], 2u);
  EXPECT_FALSE(fs::exists(path_)) << "once";
}

TEST_F(LeftTraces, AreReadableByTheirUserOnly) {
  leave({5});
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(LeftTraces, OfProgramsThatEndedWellThereAreNone) {
  KeptTraces before{closer_};
  TracedPage page;
  page.write(Kind::kQpMade);
  keep_copy(before, closer_, slot_of(page, 1), true, now_);
  ASSERT_TRUE(leave_traces(before, path_));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(LeftTraces, OfTwoHoursAgoAreForgotten) {
  leave({5});
  now_ += std::chrono::hours(2);
  EXPECT_TRUE(take().empty());
}

TEST_F(LeftTraces, OfAnotherLifeOfTheMachineAreForgotten) {
  leave({5});
  now_ -= std::chrono::hours(1);
  EXPECT_TRUE(take().empty()) << "they have ended in the future";
}

TEST_F(LeftTraces, AFileThatIsNoneOfOursIsRemovedAndBelievedNothing) {
  std::ofstream(path_) << std::string(100'000, 'x');
  EXPECT_TRUE(take().empty());
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(LeftTraces, AFileThatOthersMayWriteIsNotBelieved) {
  leave({5});
  ASSERT_EQ(::chmod(path_.c_str(), 0622), 0);
  EXPECT_TRUE(take().empty());
}

TEST_F(LeftTraces, ASymbolicLinkIsNotFollowed) {
  leave({5});
  fs::rename(path_, folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", path_);
  EXPECT_TRUE(take().empty());
  EXPECT_TRUE(fs::exists(folder_ / "elsewhere"));
}

TEST_F(LeftTraces, WhereNoFileCanBeMadeIsAnError) {
  KeptTraces before{closer_};
  TracedPage page;
  page.write(Kind::kTimeout);
  keep_copy(before, closer_, slot_of(page, 1), false, now_);
  EXPECT_FALSE(leave_traces(before, folder_ / "nowhere" / "traces"));
}

}  // namespace
}  // namespace verbena::agent
