// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "agent/sessions/session_reply.h"
#include "agent/slots/slot_leases.h"
#include "base/unique_fd.h"
#include "control/model/slot_capture.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// What `verbena capture` asks: to see what processes send each other by memory. There is one capture at a
// time, for the agent's own user or root; it ends with its session. Each slot that is lent, now or later,
// gets a ring to write into, which the session fetches. Processes of another user than the session's are left
// out, unless that is root.
//
// A slot has its ring before its process hears that it has the slot, so that nothing it sends is missed. A
// ring is kept here until it is fetched.
class CaptureRequests {
 public:
  // Tells a session. False: it does not hear of this.
  using Tell = std::function<bool(uint64_t session, control::SlotCapture capture)>;
  CaptureRequests(const SlotLeases& slots, Tell tell) : slots_(slots), tell_(std::move(tell)) {}

  RequestResult<> start_capture(const Borrower& client, const protocol::StartCaptureRequest& request);
  RequestResult<protocol::CaptureNewsReply> get_capture_news(const Borrower& client,
                                                             const protocol::GetCaptureNewsRequest& request);

  // A slot has another owner, or none.
  void slot_changed(uint32_t slot);
  // A session is gone, and with it what it captured.
  void session_went(uint64_t session);

 private:
  struct News {
    protocol::CaptureNewsReply message{};
    UniqueFd ring;
    UniqueFd page;
  };

  bool wants(const LeasedSlot& slot) const;
  void begin(const LeasedSlot& slot);
  Result<void> hand_ring(const LeasedSlot& slot, News& news);
  void end(uint32_t slot);

  const SlotLeases& slots_;
  const Tell tell_;
  std::optional<Borrower> capturer_;
  uint32_t snap_bytes_ = 0;
  std::map<uint32_t, uint64_t> captured_;  // slots, and the sessions that had them when it began
  std::deque<News> news_;
  News given_;  // the last one: its descriptors are open until the reply is sent
};

}  // namespace verbena::agent
