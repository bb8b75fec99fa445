// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/qp_state.h"

#include <iterator>
#include <new>
#include <string>

#include "adapter/queues/status_words.h"
#include "base/failed_call.h"
#include "base/format.h"

namespace verbena::transport {
namespace {

// Short names for the table.
constexpr uint8_t kRc = kRcService, kUc = kUcService, kUd = kUdService, kRaw = kRawService;
constexpr uint8_t kXrcSend = kXrcSendService, kXrcRecv = kXrcRecvService, kXrc = kXrcSend | kXrcRecv;

// A row of the table: a transition, for some services. A service without a row for a transition that others
// have may make it, without attributes.
struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  uint8_t services;
  int required;
  int optional;
};

constexpr int kInitConnected = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kInitDatagram = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int kRtrUc = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRtrRc = kRtrUc | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtrOptional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
constexpr int kRtsRc =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kRtsXrcRecv = IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
constexpr int kRtsOptional = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr int kSqdAny =
    IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE;
constexpr int kSqdXrcSend =
    kSqdAny | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kSqdXrcRecv =
    kSqdAny | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kSqdRc = kSqdXrcSend | kSqdXrcRecv;

constexpr Transition kTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kRc | kUc | kXrc, kInitConnected, 0},
    {IBV_QPS_RESET, IBV_QPS_INIT, kUd, kInitDatagram, 0},
    {IBV_QPS_RESET, IBV_QPS_INIT, kRaw, IBV_QP_PORT, 0},

    {IBV_QPS_INIT, IBV_QPS_INIT, kRc | kUc | kXrc, 0, kInitConnected},
    {IBV_QPS_INIT, IBV_QPS_INIT, kUd, 0, kInitDatagram},

    {IBV_QPS_INIT, IBV_QPS_RTR, kUc, kRtrUc, kRtrOptional},
    {IBV_QPS_INIT, IBV_QPS_RTR, kRc | kXrcRecv, kRtrRc, kRtrOptional},
    {IBV_QPS_INIT, IBV_QPS_RTR, kXrcSend, kRtrUc, kRtrOptional},
    {IBV_QPS_INIT, IBV_QPS_RTR, kUd, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},

    {IBV_QPS_RTR, IBV_QPS_RTS, kUc, IBV_QP_SQ_PSN, kRtsOptional},
    {IBV_QPS_RTR, IBV_QPS_RTS, kRc, kRtsRc, kRtsOptional | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTR, IBV_QPS_RTS, kXrcSend, kRtsRc, kRtsOptional},
    {IBV_QPS_RTR, IBV_QPS_RTS, kXrcRecv, kRtsXrcRecv, kRtsOptional | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTR, IBV_QPS_RTS, kUd, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, kRaw, 0, IBV_QP_RATE_LIMIT},

    {IBV_QPS_RTS, IBV_QPS_RTS, kUc | kXrcSend, 0, kRtsOptional},
    {IBV_QPS_RTS, IBV_QPS_RTS, kRc | kXrcRecv, 0, kRtsOptional | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, kUd, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPS_RTS, IBV_QPS_RTS, kRaw, 0, IBV_QP_RATE_LIMIT},
    {IBV_QPS_RTS, IBV_QPS_SQD, kRc | kUc | kUd | kXrc, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},

    {IBV_QPS_SQD, IBV_QPS_RTS, kUc | kXrcSend, 0, kRtsOptional},
    {IBV_QPS_SQD, IBV_QPS_RTS, kRc | kXrcRecv, 0, kRtsOptional | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_SQD, IBV_QPS_RTS, kUd, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPS_SQD, IBV_QPS_SQD, kRc, 0, kSqdRc},
    {IBV_QPS_SQD, IBV_QPS_SQD, kXrcSend, 0, kSqdXrcSend},
    {IBV_QPS_SQD, IBV_QPS_SQD, kXrcRecv, 0, kSqdXrcRecv},
    {IBV_QPS_SQD, IBV_QPS_SQD, kUc, 0, kSqdAny},
    {IBV_QPS_SQD, IBV_QPS_SQD, kUd, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},

    {IBV_QPS_SQE, IBV_QPS_RTS, kUc, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_SQE, IBV_QPS_RTS, kUd, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
};

// Names by bit of enum ibv_qp_attr_mask.
constexpr const char* kAttributes[] = {
    "STATE",
    "CUR_STATE",
    "EN_SQD_ASYNC_NOTIFY",
    "ACCESS_FLAGS",
    "PKEY_INDEX",
    "PORT",
    "QKEY",
    "AV",
    "PATH_MTU",
    "TIMEOUT",
    "RETRY_CNT",
    "RNR_RETRY",
    "RQ_PSN",
    "MAX_QP_RD_ATOMIC",
    "ALT_PATH",
    "MIN_RNR_TIMER",
    "SQ_PSN",
    "MAX_DEST_RD_ATOMIC",
    "PATH_MIG_STATE",
    "CAP",
    "DEST_QPN",
};

std::string names_of(int mask) {
  std::string names;
  for (size_t bit = 0; bit < std::size(kAttributes); ++bit) {
    if ((mask >> bit & 1) != 0)
      names += verbena::format("{}IBV_QP_{}", names.empty() ? "" : ", ", kAttributes[bit]);
  }
  return names;
}

int refuse(ibv_qp_state from, ibv_qp_state to, int missing, int too_many) noexcept try {
  if (log_level() < LogLevel::kError) return EINVAL;
  if (missing != 0)
    return because(EINVAL, "{} to {} wants {} in the mask as well", name_of(from), name_of(to),
                   names_of(missing));
  return because(EINVAL, "{} to {} takes no {}", name_of(from), name_of(to), names_of(too_many));
} catch (const std::bad_alloc&) {
  return EINVAL;
}

// No service has this transition: names those that exist.
int refuse_states(ibv_qp_state from, ibv_qp_state to) noexcept try {
  if (log_level() < LogLevel::kError) return EINVAL;
  std::string possible;
  const auto add = [&](ibv_qp_state state) {
    if (possible.find(name_of(state)) == std::string::npos)
      possible += verbena::format("{}{}", possible.empty() ? "" : " or ", name_of(state));
  };
  for (const Transition& t : kTransitions) {
    if (t.from == from && t.to != from) add(t.to);
  }
  if (from != IBV_QPS_RESET) add(IBV_QPS_RESET);
  return because(EINVAL, "a queue pair does not go from {} to {}; from {} it goes to {}", name_of(from),
                 name_of(to), name_of(from), possible);
} catch (const std::bad_alloc&) {
  return EINVAL;
}

}  // namespace

const char* name_of(ibv_qp_state state) {
  return static_cast<size_t>(state) < std::size(queues::kQpStates) ? queues::kQpStates[state] : "no state";
}

int check_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  const uint8_t service = service_bit(type);
  if (service == 0 || from > IBV_QPS_ERR || to > IBV_QPS_ERR)
    return because(EINVAL, "qp_state {} is none", static_cast<int>(to));
  mask &= ~IBV_QP_STATE;
  // To RESET from any state, and to ERR from any state but RESET; without attributes.
  if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
    return mask == 0 ? 0 : refuse(from, to, 0, mask);
  bool exists = false;
  for (const Transition& t : kTransitions) {
    if (t.from != from || t.to != to) continue;
    exists = true;
    if ((t.services & service) == 0) continue;
    const int missing = t.required & ~mask;
    const int too_many = mask & ~(t.required | t.optional);
    return missing == 0 && too_many == 0 ? 0 : refuse(from, to, missing, too_many);
  }
  // A transition that other services have is allowed, without attributes.
  if (exists && mask == 0) return 0;
  return exists ? refuse(from, to, 0, mask) : refuse_states(from, to);
}

}  // namespace verbena::transport
