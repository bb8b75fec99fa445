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

// Carries out the requests of `verbena capture`, which records shared-memory traffic. There is one capture at
// a time, by root or the agent's own user; it ends with its session. Each slot that is or will be leased gets
// a ring for its process to write to, which the session fetches. A session of root captures processes of all
// users, another only those of its own user.
//
// A slot gets its ring before its process learns that it has the slot, so that no traffic is missed. The
// agent keeps a ring until the session fetches it.
class CaptureRequests {
 public:
  // Sends a message to a session. Returns false if the session does not get such messages.
  using Tell = std::function<bool(uint64_t session, control::SlotCapture capture)>;
  CaptureRequests(const SlotLeases& slots, Tell tell) : slots_(slots), tell_(std::move(tell)) {}

  RequestResult<> start_capture(const Lessee& client, const protocol::StartCaptureRequest& request);
  RequestResult<protocol::CaptureNewsReply> get_capture_news(const Lessee& client,
                                                             const protocol::GetCaptureNewsRequest& request);

  // Starts or ends the capture of a slot whose holder has changed.
  void slot_changed(uint32_t slot);
  // Ends the capture if the session is the capturing one.
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
  std::optional<Lessee> capturer_;
  uint32_t snap_bytes_ = 0;
  std::map<uint32_t, uint64_t> captured_;  // slots, and their sessions at the start of the capture
  std::deque<News> news_;
  News given_;  // latest news given: keeps its descriptors open until the reply is sent
};

}  // namespace verbena::agent
