// SPDX-License-Identifier: Apache-2.0
// The QP state machine: every transition with every attribute, as Linux's ib_modify_qp_is_ok() accepts them.
#include "adapter/transport/qp_state.h"

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

namespace verbena::transport {
namespace {

const std::map<std::string, int> kAttributes = {
    {"cur_state", IBV_QP_CUR_STATE},
    {"sqd_notify", IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {"access", IBV_QP_ACCESS_FLAGS},
    {"pkey", IBV_QP_PKEY_INDEX},
    {"port", IBV_QP_PORT},
    {"qkey", IBV_QP_QKEY},
    {"av", IBV_QP_AV},
    {"mtu", IBV_QP_PATH_MTU},
    {"timeout", IBV_QP_TIMEOUT},
    {"retry", IBV_QP_RETRY_CNT},
    {"rnr_retry", IBV_QP_RNR_RETRY},
    {"rq_psn", IBV_QP_RQ_PSN},
    {"rd", IBV_QP_MAX_QP_RD_ATOMIC},
    {"alt", IBV_QP_ALT_PATH},
    {"min_rnr", IBV_QP_MIN_RNR_TIMER},
    {"sq_psn", IBV_QP_SQ_PSN},
    {"dest_rd", IBV_QP_MAX_DEST_RD_ATOMIC},
    {"mig", IBV_QP_PATH_MIG_STATE},
    {"cap", IBV_QP_CAP},
    {"qpn", IBV_QP_DEST_QPN},
    {"rate", IBV_QP_RATE_LIMIT},
};
const std::map<std::string, ibv_qp_type> kTypes = {{"rc", IBV_QPT_RC},          {"uc", IBV_QPT_UC},
                                                   {"ud", IBV_QPT_UD},          {"raw", IBV_QPT_RAW_PACKET},
                                                   {"xsend", IBV_QPT_XRC_SEND}, {"xrecv", IBV_QPT_XRC_RECV}};
constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                    IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};

// A transition: states, QP types, required attributes, optional attributes.
struct Rule {
  ibv_qp_state from;
  ibv_qp_state to;
  const char* types;
  const char* required;
  const char* optional;
};
const Rule kRules[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, "rc uc xsend xrecv", "pkey port access", ""},
    {IBV_QPS_RESET, IBV_QPS_INIT, "ud", "pkey port qkey", ""},
    {IBV_QPS_RESET, IBV_QPS_INIT, "raw", "port", ""},
    {IBV_QPS_INIT, IBV_QPS_INIT, "rc uc xsend xrecv", "", "pkey port access"},
    {IBV_QPS_INIT, IBV_QPS_INIT, "ud", "", "pkey port qkey"},
    {IBV_QPS_INIT, IBV_QPS_INIT, "raw", "", ""},
    {IBV_QPS_INIT, IBV_QPS_RTR, "uc xsend", "av mtu qpn rq_psn", "alt access pkey"},
    {IBV_QPS_INIT, IBV_QPS_RTR, "rc xrecv", "av mtu qpn rq_psn dest_rd min_rnr", "alt access pkey"},
    {IBV_QPS_INIT, IBV_QPS_RTR, "ud", "", "pkey qkey"},
    {IBV_QPS_INIT, IBV_QPS_RTR, "raw", "", ""},
    {IBV_QPS_RTR, IBV_QPS_RTS, "ud", "sq_psn", "cur_state qkey"},
    {IBV_QPS_RTR, IBV_QPS_RTS, "uc", "sq_psn", "cur_state alt access mig"},
    {IBV_QPS_RTR, IBV_QPS_RTS, "rc", "timeout retry rnr_retry sq_psn rd", "cur_state alt access min_rnr mig"},
    {IBV_QPS_RTR, IBV_QPS_RTS, "xsend", "timeout retry rnr_retry sq_psn rd", "cur_state alt access mig"},
    {IBV_QPS_RTR, IBV_QPS_RTS, "xrecv", "timeout sq_psn", "cur_state alt access min_rnr mig"},
    {IBV_QPS_RTR, IBV_QPS_RTS, "raw", "", "rate"},
    {IBV_QPS_RTS, IBV_QPS_RTS, "ud", "", "cur_state qkey"},
    {IBV_QPS_RTS, IBV_QPS_RTS, "uc xsend", "", "cur_state alt access mig"},
    {IBV_QPS_RTS, IBV_QPS_RTS, "rc xrecv", "", "cur_state alt access min_rnr mig"},
    {IBV_QPS_RTS, IBV_QPS_RTS, "raw", "", "rate"},
    {IBV_QPS_RTS, IBV_QPS_SQD, "rc uc ud xsend xrecv", "", "sqd_notify"},
    {IBV_QPS_RTS, IBV_QPS_SQD, "raw", "", ""},
    {IBV_QPS_SQD, IBV_QPS_RTS, "ud", "", "cur_state qkey"},
    {IBV_QPS_SQD, IBV_QPS_RTS, "uc xsend", "", "cur_state alt access mig"},
    {IBV_QPS_SQD, IBV_QPS_RTS, "rc xrecv", "", "cur_state alt access min_rnr mig"},
    {IBV_QPS_SQD, IBV_QPS_RTS, "raw", "", ""},
    {IBV_QPS_SQD, IBV_QPS_SQD, "ud", "", "pkey qkey"},
    {IBV_QPS_SQD, IBV_QPS_SQD, "uc", "", "av alt access pkey mig"},
    {IBV_QPS_SQD, IBV_QPS_SQD, "rc", "",
     "port av timeout retry rnr_retry rd dest_rd alt access pkey min_rnr mig"},
    {IBV_QPS_SQD, IBV_QPS_SQD, "xsend", "", "port av timeout retry rnr_retry rd alt access pkey mig"},
    {IBV_QPS_SQD, IBV_QPS_SQD, "xrecv", "", "port av timeout dest_rd alt access pkey min_rnr mig"},
    {IBV_QPS_SQD, IBV_QPS_SQD, "raw", "", ""},
    {IBV_QPS_SQE, IBV_QPS_RTS, "ud", "", "cur_state qkey"},
    {IBV_QPS_SQE, IBV_QPS_RTS, "uc", "", "cur_state access"},
    {IBV_QPS_SQE, IBV_QPS_RTS, "rc xsend xrecv raw", "", ""},
};

std::vector<std::string> words(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}
std::set<int> bits(const char* text) {
  std::set<int> all;
  for (const std::string& word : words(text)) all.insert(kAttributes.at(word));
  return all;
}
int sum(const std::set<int>& set) {
  int mask = 0;
  for (const int bit : set) mask |= bit;
  return mask;
}

TEST(QpState, TakesExactlyTheAttributesOfEachTransition) {
  std::set<std::tuple<ibv_qp_type, ibv_qp_state, ibv_qp_state>> known;
  for (const Rule& rule : kRules) {
    const std::set<int> required = bits(rule.required);
    const std::set<int> optional = bits(rule.optional);
    const int least = sum(required) | IBV_QP_STATE;
    for (const std::string& name : words(rule.types)) {
      const ibv_qp_type type = kTypes.at(name);
      SCOPED_TRACE(name + " " + std::to_string(rule.from) + " -> " + std::to_string(rule.to));
      ASSERT_TRUE(known.emplace(type, rule.from, rule.to).second) << "two rules";
      EXPECT_EQ(check_transition(type, rule.from, rule.to, least), 0);
      EXPECT_EQ(check_transition(type, rule.from, rule.to, least | sum(optional)), 0);
      for (const auto& [attribute, bit] : kAttributes) {
        if (required.contains(bit)) {
          EXPECT_EQ(check_transition(type, rule.from, rule.to, least & ~bit), EINVAL)
              << "without " << attribute;
        } else {
          EXPECT_EQ(check_transition(type, rule.from, rule.to, least | bit),
                    optional.contains(bit) ? 0 : EINVAL)
              << "with " << attribute;
        }
      }
    }
  }
  // Without a rule there is no transition, with two exceptions: RESET can be entered from any state, and ERR
  // from any state but RESET.
  for (const auto& [name, type] : kTypes) {
    for (const ibv_qp_state from : kStates) {
      for (const ibv_qp_state to : kStates) {
        if (known.contains({type, from, to})) continue;
        SCOPED_TRACE(name + " " + std::to_string(from) + " -> " + std::to_string(to));
        const bool ends = to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET);
        EXPECT_EQ(check_transition(type, from, to, IBV_QP_STATE), ends ? 0 : EINVAL);
        for (const auto& [attribute, bit] : kAttributes) {
          EXPECT_EQ(check_transition(type, from, to, IBV_QP_STATE | bit), EINVAL) << "with " << attribute;
        }
      }
    }
  }
}

TEST(QpState, RefusesTypesAndStatesThatThereAreNot) {
  EXPECT_EQ(check_transition(IBV_QPT_DRIVER, IBV_QPS_RESET, IBV_QPS_RESET, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(check_transition(static_cast<ibv_qp_type>(0), IBV_QPS_RESET, IBV_QPS_RESET, IBV_QP_STATE),
            EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_UNKNOWN, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(check_transition(IBV_QPT_RC, IBV_QPS_UNKNOWN, IBV_QPS_RESET, IBV_QP_STATE), EINVAL);
}

TEST(QpState, SaysWhenRequestsMayBePosted) {
  for (const ibv_qp_state state : kStates) {
    const bool sends =
        state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE || state == IBV_QPS_ERR;
    EXPECT_EQ(accepts_sends(state), sends) << state;
    EXPECT_EQ(accepts_receives(state), state != IBV_QPS_RESET) << state;
  }
}

}  // namespace
}  // namespace verbena::transport
