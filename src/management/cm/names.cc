// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>

#include "management/cm/counters.h"
#include "management/cm/mad.h"
#include "management/cm/parameters.h"
#include "management/cm/reasons.h"

namespace verbena::cm {
namespace {

constexpr std::array<const char*, kMessageTypes> kMessageNames = {
    "REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"};

constexpr std::array<const char*, kStates> kStateNames = {
    "IDLE",      "REQ_SENT",  "REQ_RCVD",     "MRA_REQ_SENT",  "MRA_REQ_RCVD",
    "REP_SENT",  "REP_RCVD",  "MRA_REP_SENT", "MRA_REP_RCVD",  "ESTABLISHED",
    "DREQ_SENT", "DREQ_RCVD", "TIMEWAIT",     "SIDR_REQ_SENT", "SIDR_REQ_RCVD"};

constexpr std::array<const char*, kDropReasons> kDropReasonNames = {
    "not whole",  "not ours",           "malformed",    "unknown connection", "wrong peer",
    "unexpected", "too many half open", "not admitted", "peer to peer"};

constexpr std::array<const char*, 36> kReasonNames = {
    nullptr,
    "no QP available",
    "no EEC available",
    "no resources available",
    "timeout",
    "unsupported request",
    "invalid communication ID",
    "invalid communication instance",
    "invalid service ID",
    "invalid transport service type",
    "stale connection",
    "RDC does not exist",
    "invalid GID",
    "invalid LID",
    "invalid service level",
    "invalid traffic class",
    "invalid hop limit",
    "invalid packet rate",
    "invalid alternate GID",
    "invalid alternate LID",
    "invalid alternate service level",
    "invalid alternate traffic class",
    "invalid alternate hop limit",
    "invalid alternate packet rate",
    "CM redirection",
    "redirection",
    "invalid path MTU",
    "insufficient responder resources",
    "consumer reject",
    "invalid RNR retry count",
    "duplicate local communication ID",
    "invalid class version",
    "invalid flow label",
    "invalid alternate flow label",
    nullptr,
    "vendor option not supported",
};

}  // namespace

const char* message_name(MessageType type) {
  return kMessageNames[static_cast<size_t>(type)];
}

const char* state_name(State state) {
  return kStateNames[static_cast<size_t>(state)];
}

const char* drop_reason_name(DropReason reason) {
  return kDropReasonNames[static_cast<size_t>(reason)];
}

const char* reason_name(uint16_t reason) {
  const char* const name = reason < kReasonNames.size() ? kReasonNames[reason] : nullptr;
  return name != nullptr ? name : "unknown reason";
}

}  // namespace verbena::cm
