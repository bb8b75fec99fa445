// SPDX-License-Identifier: Apache-2.0
// The log lines of VERBENA_LOG=error for verbs that fail: the verb and the reason.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "adapter/objects/support/endpoint.h"
#include "base/format.h"
#include "base/log.h"

namespace verbena::adapter::testing {
namespace {

using ::testing::AllOf;
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
  EXPECT_THAT(said_by([&] { ibv_modify_qp(end_.qp.get(), &attr, IBV_QP_STATE); }),
              HasSubstr("ibv_modify_qp() failed, EINVAL (Invalid argument): QP "));
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
      HasSubstr("ibv_reg_mr_iova() failed, EINVAL (Invalid argument): remote writes and atomics want"));
}

TEST_F(FailedVerbs, AreNamedAsTheProgramWritesThem) {
  unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING;
  EXPECT_THAT(said_by([&] {
                EXPECT_EQ(ibv_reg_mr(end_.pd.get(), end_.buffer(), 64, static_cast<int>(access)), nullptr);
              }),
              HasSubstr(" ibv_reg_mr() failed, EINVAL"));
  ibv_gid_entry entry{};
  EXPECT_THAT(said_by([&] { EXPECT_EQ(ibv_query_gid_ex(end_.context.get(), 9, 0, &entry, 0), EINVAL); }),
              HasSubstr(" ibv_query_gid_ex() failed, EINVAL"));
}

TEST_F(FailedVerbs, AreNotToldWhenAProgramLooksThroughAllGids) {
  EXPECT_EQ(said_by([&] {
              ibv_gid_entry entry{};
              EXPECT_EQ(ibv_query_gid_ex(end_.context.get(), 1, 200, &entry, 0), ENODATA);
              EXPECT_EQ(ibv_get_pkey_index(end_.context.get(), 1, 0x1234), -1);
            }),
            "");
}

TEST_F(FailedVerbs, SayThatMemoryIsNotThere) {
  EXPECT_THAT(said_by([&] {
                EXPECT_EQ(ibv_reg_mr_iova2(end_.pd.get(), reinterpret_cast<void*>(4096), 64, 0, 0), nullptr);
              }),
              HasSubstr("64 bytes at 0x1000 are not all mapped"));
}

TEST_F(FailedVerbs, SayWhatStillUsesAnObject) {
  const std::string qp = verbena::format("QP {:#08x} use it: destroy what uses it first", end_.qp->qp_num);
  EXPECT_THAT(said_by([&] { EXPECT_EQ(ibv_dealloc_pd(end_.pd.get()), EBUSY); }),
              AllOf(HasSubstr("ibv_dealloc_pd() failed, EBUSY (Device or resource busy): ibv_pd 0x"),
                    HasSubstr("MR with lkey 0x"), HasSubstr(qp)));
  EXPECT_THAT(said_by([&] { EXPECT_EQ(ibv_destroy_cq(end_.cq.get()), EBUSY); }),
              AllOf(HasSubstr(": ibv_cq 0x"), HasSubstr(qp)));
}

TEST_F(FailedVerbs, SayThatAPointerIsNull) {
  EXPECT_THAT(said_by([&] { EXPECT_EQ(ibv_destroy_cq(nullptr), EINVAL); }), HasSubstr("ibv_cq is null"));
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

TEST_F(FailedVerbs, NameTheCapacityThatIsTooLarge) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = end_.cq.get();
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = 99'999'999;
  EXPECT_THAT(said_by([&] { EXPECT_EQ(ibv_create_qp(end_.pd.get(), &init), nullptr); }),
              HasSubstr("cap.max_send_wr 99999999 exceeds max_qp_wr 1048576"));
  EXPECT_THAT(
      said_by([&] { EXPECT_EQ(ibv_create_cq(end_.context.get(), -1, nullptr, nullptr, 0), nullptr); }),
      HasSubstr("cqe -1 is less than 1"));
}

TEST_F(FailedVerbs, NameTheQueuePairItsDeviceAndPort) {
  const std::string qp = verbena::format("QP {:#08x} of rxe_lo port 1: ", end_.qp->qp_num);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  EXPECT_THAT(said_by([&] { ibv_modify_qp(end_.qp.get(), &attr, IBV_QP_STATE); }),
              HasSubstr(qp + "a queue pair does not go from RESET to RTR; from RESET it goes to INIT"));
  end_.connect(end_.address());
  std::vector<ibv_sge> many(end_.options.cap.max_send_sge + 1, end_.piece(0, 1));
  EXPECT_THAT(said_by([&] { EXPECT_EQ(end_.post_send(send_request(1), many), EINVAL); }),
              HasSubstr(qp + "num_sge 9 is not within 0 to max_send_sge 8"));
}

TEST_F(FailedVerbs, NameTheStateThatAPostNeeds) {
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  EXPECT_THAT(said_by([&] { EXPECT_EQ(ibv_post_send(end_.qp.get(), &send, &bad_send), EINVAL); }),
              HasSubstr("it is in RESET; ibv_post_send needs RTS"));
  EXPECT_THAT(said_by([&] { EXPECT_EQ(end_.post_receive(1, end_.piece(0, 8)), EINVAL); }),
              HasSubstr("it is in RESET; ibv_post_recv needs INIT, RTR or RTS"));
  ibv_srq_init_attr srq_init{};
  srq_init.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  std::unique_ptr<ibv_srq, Destroy<ibv_destroy_srq>> srq(ibv_create_srq(end_.pd.get(), &srq_init));
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = end_.cq.get();
  init.srq = srq.get();
  init.qp_type = IBV_QPT_RC;
  Qp qp(ibv_create_qp(end_.pd.get(), &init));
  ibv_recv_wr receive{};
  ibv_recv_wr* bad = nullptr;
  EXPECT_THAT(said_by([&] { EXPECT_EQ(ibv_post_recv(qp.get(), &receive, &bad), EINVAL); }),
              HasSubstr("it uses an SRQ: use ibv_post_srq_recv()"));
}

TEST_F(FailedVerbs, NameTheOperationThatTheServiceDoesNotHave) {
  Pair pair({.type = IBV_QPT_UD});
  const ibv_sge piece = pair.a.piece(0, 8);
  const auto posted = [&](ibv_wr_opcode opcode) {
    return said_by([&] {
      const ibv_send_wr request = remote_request(opcode, 1, pair.b.address());
      if (pair.a.post_send(request, {&piece, 1}) == 0) pair.a.completion();
    });
  };
  EXPECT_THAT(posted(IBV_WR_TSO), HasSubstr("IBV_WR_TSO is not supported on UD"));
  EXPECT_THAT(posted(IBV_WR_RDMA_WRITE), HasSubstr("IBV_WR_RDMA_WRITE is not supported on UD"));
}

}  // namespace
}  // namespace verbena::adapter::testing
