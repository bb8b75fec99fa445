// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <verbena/result.hpp>

namespace verbena {
namespace {

TEST(Error, SaysWhatWasTriedAndWhyItFailed) {
  const error one("open", ENODEV, "rxe_eth9", "see ibv_devices");
  EXPECT_EQ(one.message(), "open rxe_eth9: No such device (errno 19): see ibv_devices");
  EXPECT_EQ(one.code(), ENODEV);
  EXPECT_FALSE(one.is_completion());
}

TEST(Error, OfACompletionNamesTheQueuePairAndTheRemedy) {
  const error one("SEND", IBV_WC_RNR_RETRY_EXC_ERR, 0x1234);
  EXPECT_EQ(one.message(), std::string("SEND on QP 0x1234: ") + ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR) +
                               " (13): the peer has posted no receive");
  EXPECT_EQ(one.code(), EIO);
  EXPECT_EQ(one.status(), IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST(Error, ShowsWhereItCutsLongSubjects) {
  const auto with_end = [](std::size_t count, std::string_view end) {
    std::string text(count, 'x');
    text += end;
    return text;
  };
  EXPECT_EQ(error("open", ENODEV, with_end(95, "")).subject(), with_end(95, ""));
  EXPECT_EQ(error("open", ENODEV, with_end(96, "")).subject(), with_end(92, "\u2026"));
  const std::string accents = with_end(91, "\u00e9 and more");  // of two bytes: the 92nd and 93rd
  EXPECT_EQ(error("open", ENODEV, accents).subject(), with_end(91, "\u2026"));
}

TEST(Error, TakesASubjectLaterUnlessItHasOne) {
  EXPECT_EQ(error("connect", ECONNREFUSED).about("10.0.0.1:7471").subject(), "10.0.0.1:7471");
  EXPECT_EQ(error("look up", EINVAL, "nonsense").about("10.0.0.1:7471").subject(), "nonsense");
}

TEST(Result, HoldsAValueOrAnError) {
  result<std::unique_ptr<int>> good = std::make_unique<int>(7);
  ASSERT_TRUE(good);
  EXPECT_EQ(**good, 7);
  EXPECT_EQ(*std::move(good).value(), 7);
  result<int> bad = error("open", EPERM);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), EPERM);
  EXPECT_EQ(std::move(bad).value_or(3), 3);
}

TEST(Result, ThrowsItsErrorFromValue) {
  const result<void> bad = error("open", EPERM, "rxe_eth0");
  try {
    bad.value();
    FAIL();
  } catch (const exception& thrown) {
    EXPECT_EQ(thrown.error().code(), EPERM);
    EXPECT_STREQ(thrown.what(), "open rxe_eth0: Operation not permitted (errno 1)");
  }
  EXPECT_NO_THROW(result<void>().value());
}

}  // namespace
}  // namespace verbena
