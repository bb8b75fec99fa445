// SPDX-License-Identifier: Apache-2.0
#include "base/failed_call.h"

#include <cerrno>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/c_abi.h"

namespace verbena {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class FailedCall : public ::testing::Test {
 protected:
  FailedCall() : before_(log_level()) { set_log_level(LogLevel::kError); }
  ~FailedCall() override { set_log_level(before_); }

  // Returns the text that `work` writes to standard error.
  template <class Work>
  std::string said_by(Work work) {
    ::testing::internal::CaptureStderr();
    work();
    return ::testing::internal::GetCapturedStderr();
  }

 private:
  const LogLevel before_;
};

int ibv_of_the_test(int code) {
  return answer_code([&] { return code == EINVAL ? because(EINVAL, "its {} is {}", "size", 7) : code; });
}

int create_of_the_test() {
  return answer_minus_one([] { return ENOMEM; });
}

TEST_F(FailedCall, IsOneSentenceWithTheReason) {
  const std::string said = said_by([] { EXPECT_EQ(ibv_of_the_test(EINVAL), EINVAL); });
  EXPECT_THAT(said, EndsWith("error: ibv_of_the_test() failed, EINVAL (Invalid argument): its size is 7\n"));
}

TEST_F(FailedCall, HasTheUsualCauseWhereNobodyToldAnother) {
  EXPECT_THAT(said_by([] { ibv_of_the_test(EBUSY); }),
              HasSubstr("EBUSY (Device or resource busy): something"));
}

TEST_F(FailedCall, IsNotToldOfWhenItIsNone) {
  EXPECT_EQ(said_by([] {
              for (const int code : {0, EAGAIN, EINTR, EINPROGRESS}) EXPECT_EQ(ibv_of_the_test(code), code);
            }),
            "");
}

TEST_F(FailedCall, InsideAnotherCallGivesItsReasonToThat) {
  const auto outer = [](int code) {
    return answer_code([&] { return ibv_of_the_test(EINVAL), code; }, "rdma_of_the_test");
  };
  EXPECT_THAT(said_by([&] { EXPECT_EQ(outer(EINVAL), EINVAL); }),
              EndsWith("error: rdma_of_the_test() failed, EINVAL (Invalid argument): its size is 7\n"));
  EXPECT_THAT(said_by([&] { outer(ENODEV); }), Not(HasSubstr("its size")));
  EXPECT_EQ(said_by([&] { EXPECT_EQ(outer(0), 0); }), "") << "the program perceives no error";
}

TEST_F(FailedCall, IsToldOfWhereNoThreadCanBeStarted) {
  EXPECT_THAT(said_by([] { answer_code([] { return EAGAIN; }, "ibv_open_device"); }),
              HasSubstr("no thread can be started"));
}

TEST_F(FailedCall, KeepsItsReasonWhileThingsAreGivenBack) {
  const auto create = [] {
    return answer_code(
        [] {
          const int error = ibv_of_the_test(EINVAL);
          const KeptReason kept;
          ibv_of_the_test(0);
          return error;
        },
        "rdma_create_of_the_test");
  };
  EXPECT_THAT(said_by(create), EndsWith("EINVAL (Invalid argument): its size is 7\n"));
}

TEST_F(FailedCall, IsNoErrorIfItAnswersAQuestion) {
  const auto query = [] {
    answer_code([] { return ENODATA; }, "ibv_query_gid_ex");
    answer_code([] { return ENOENT; }, "ibv_read_sysfs_file");
  };
  EXPECT_EQ(said_by(query), "");
  set_log_level(LogLevel::kInfo);
  EXPECT_THAT(said_by(query), HasSubstr("info: ibv_query_gid_ex() failed, ENODATA"));
}

TEST_F(FailedCall, ReasonIsNotTheNextCalls) {
  EXPECT_THAT(said_by([] { ibv_of_the_test(EINVAL), ibv_of_the_test(ENODEV); }),
              EndsWith("looks for the cause)\n"));
  because(EINVAL, "found, and made up for");
  EXPECT_THAT(said_by([] { ibv_of_the_test(ENODEV); }), EndsWith("looks for the cause)\n"));
}

TEST_F(FailedCall, OfAPointerInTheContextGetsItsFamilysName) {
  EXPECT_THAT(said_by([] { EXPECT_EQ(create_of_the_test(), -1); }),
              HasSubstr(" ibv_create_of_the_test() failed"));
}

TEST_F(FailedCall, LeavesErrnoAlone) {
  said_by([] {
    EXPECT_EQ(create_of_the_test(), -1);
    EXPECT_EQ(errno, ENOMEM);
  });
}

TEST_F(FailedCall, CutsWhatIsTooLong) {
  const std::string word(1000, 'x');
  const std::string said = said_by([&] { answer_code([&] { return because(EPERM, "{}", word); }, "ibv_x"); });
  EXPECT_THAT(said, HasSubstr(std::string(240, 'x')));
  EXPECT_THAT(said, Not(HasSubstr(std::string(241, 'x'))));
}

TEST_F(FailedCall, IsSilentByDefault) {
  set_log_level(LogLevel::kNone);
  EXPECT_EQ(said_by([] { ibv_of_the_test(EINVAL); }), "");
}

}  // namespace
}  // namespace verbena
