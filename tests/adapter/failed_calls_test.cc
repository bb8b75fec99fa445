// SPDX-License-Identifier: Apache-2.0
// What VERBENA_LOG=error says of verbs that fail: which, and why.
#include <functional>
#include <string>

#include <gmock/gmock.h>

#include "adapter/support/endpoint.h"
#include "base/log.h"

namespace verbena::adapter::testing {
namespace {

using ::testing::HasSubstr;

class FailedVerbs : public ::testing::Test {
 protected:
  FailedVerbs() : before_(log_level()) {}
  ~FailedVerbs() override { set_log_level(before_); }

  static std::string said_by(const std::function<void()>& call) {
    set_log_level(LogLevel::kError);
    ::testing::internal::CaptureStderr();
    call();
    set_log_level(LogLevel::kNone);
    return ::testing::internal::GetCapturedStderr();
  }

  Endpoint end_;

 private:
  const LogLevel before_;
};

TEST_F(FailedVerbs, NameTheAttributeThatIsWrong) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  EXPECT_THAT(
      said_by([&] { ibv_modify_qp(end_.qp.get(), &attr, IBV_QP_STATE); }),
      HasSubstr(
          "ibv_modify_qp() failed, EINVAL (Invalid argument): a queue pair does not go from RESET to RTR"));
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  EXPECT_THAT(said_by([&] { ibv_modify_qp(end_.qp.get(), &attr, IBV_QP_STATE | IBV_QP_PORT); }),
              HasSubstr("RESET to INIT wants IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX in the mask as well"));
}

TEST_F(FailedVerbs, NameTheRightsThatDoNotGoTogether) {
  EXPECT_THAT(
      said_by([&] {
        EXPECT_EQ(ibv_reg_mr_iova2(end_.pd.get(), end_.buffer(), 64, 0, IBV_ACCESS_REMOTE_WRITE), nullptr);
      }),
      HasSubstr("ibv_reg_mr_iova2() failed, EINVAL (Invalid argument): remote writes and atomics want"));
}

TEST_F(FailedVerbs, SayThatMemoryIsNotThere) {
  EXPECT_THAT(said_by([&] {
                EXPECT_EQ(ibv_reg_mr_iova2(end_.pd.get(), reinterpret_cast<void*>(4096), 64, 0, 0), nullptr);
              }),
              HasSubstr("64 bytes at 0x1000 are not all mapped"));
}

TEST_F(FailedVerbs, SayWhatStillUsesAnObject) {
  EXPECT_THAT(said_by([&] { EXPECT_EQ(ibv_dealloc_pd(end_.pd.get()), EBUSY); }),
              HasSubstr("ibv_dealloc_pd() failed, EBUSY (Device or resource busy): 2 regions, windows"));
}

TEST_F(FailedVerbs, SayThatAPointerIsNull) {
  EXPECT_THAT(said_by([&] { EXPECT_EQ(ibv_destroy_cq(nullptr), EINVAL); }), HasSubstr("the ibv_cq is null"));
}

TEST_F(FailedVerbs, TellOfWrongGids) {
  ibv_ah_attr attr{};
  attr.port_num = 1;
  EXPECT_THAT(said_by([&] { EXPECT_EQ(ibv_create_ah(end_.pd.get(), &attr), nullptr); }),
              HasSubstr("is_global is 0, and RoCE addresses by GIDs only"));
}

TEST_F(FailedVerbs, TellOfPostsThatAreRefused) {
  ibv_send_wr request{};
  ibv_send_wr* bad = nullptr;
  EXPECT_THAT(said_by([&] { EXPECT_EQ(ibv_post_send(end_.qp.get(), &request, &bad), EINVAL); }),
              HasSubstr("is in RESET"));
  EXPECT_EQ(bad, &request);
}

}  // namespace
}  // namespace verbena::adapter::testing
