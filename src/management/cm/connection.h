// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/intrusive_list.h"
#include "base/time.h"
#include "management/cm/mad.h"
#include "management/cm/parameters.h"

namespace verbena::cm {

// The migration states of an established connection.
enum class LapState : uint8_t { kNone, kSent, kMraReceived, kReceived, kMraSent };

// A datagram at most: what a timer repeats, or what answers the same question again.
struct Repetition {
  Mad mad;
  bool kept = false;
  MessageType type = MessageType::kReq;  // kept
  uint16_t reason = 0;                   // Passage::reason
  uint16_t sent = 0;                     // how often
};

// All that a manager knows of one communication ID: a connection in IBTA's sense, between two QPs, or a
// service ID resolution. (control::Connection is a socket to the agent, and rsockets has streams.) The
// table of connections owns it and holds it by its hooks; only the manager's roles touch it.
struct Connection {
  ConnectionInfo info;

  bool has_owner = true;  // not destroyed yet
  bool lingers = false;   // idle, but repeats its last answer for a while
  bool is_peer_to_peer = false;
  LapState lap = LapState::kNone;
  uint32_t account = 0;      // of its owner, to which it counts while it is half open
  uint64_t transaction = 0;  // of the request at hand; answers carry it
  uint64_t service_id = 0;
  uint64_t local_ca_guid = 0;

  Repetition last;
  uint8_t retries_left = 0;
  uint8_t unasked = 0;      // what timers have sent to a peer that has never answered
  Duration timeout{};       // how long an answer may take
  Duration repeat_after{};  // that, or as long as an MRA asks for
  TimePoint expires = kNever;

  // Hooks.
  static constexpr size_t kNoTimer = ~size_t{0};
  size_t timer_position = kNoTimer;
  ListHook wait_hook;                      // connections in TIMEWAIT and those that linger
  Connection* next_by_local_id = nullptr;  // chains of the tables
  Connection* next_by_remote_id = nullptr;
  Connection* next_by_remote_qpn = nullptr;
  bool in_remote_ids = false;
  bool in_remote_qpns = false;
  bool in_sidr_requests = false;  // by next_by_remote_id
};

}  // namespace verbena::cm
