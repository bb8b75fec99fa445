// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include <infiniband/verbs.h>

#include "adapter/transport/queue_pair.h"
#include "base/time.h"
#include "wire/roce/aeth.h"
#include "wire/roce/packet.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

class QueuePair;

// A request that an XRC target QP forwards to the process that owns its shared receive queue (the owner).
struct ForwardedRequest {
  const QueuePair& target;
  const roce::Packet& packet;
  // Number of the run, a sequence of forwarded requests without a gap. A larger number than before tells the
  // owner that a new run starts with this request. The owner then forgets the requests that it has not
  // answered.
  uint32_t run = 0;
  uint32_t msn = 0;  // the target's MSN before this request
  // True if the target has already received the owner's answer to this request. The owner then answers again
  // from its responder resources.
  bool repeated = false;
};

// Answer of a queue's owner to forwarded requests: an AETH with its PSN. An acknowledgement covers all
// requests of the run up to its PSN. A NAK acknowledges the requests before its PSN, and ends the run: the
// owner executes no later request of this run.
struct OwnerAnswer {
  uint32_t owner = 0;  // slot of the process that owns the queue
  uint32_t run = 0;
  uint8_t syndrome = 0;
  roce::Psn psn;
  uint32_t msn = 0;
  std::optional<ibv_event_type> event;  // raised at the target after a NAK; empty: none
};

// Forwards an XRC target's requests to the process that owns the shared receive queue and has the same XRC
// domain open. That process executes the requests as if the target were its own, through a StandIn, and
// answers later: QueuePair::on_owner_answer() is then called. The process also sends READ and atomic
// responses to the requester itself. If the process ends, QueuePair::on_owner_gone() is called.
//
// Threads: the caller holds the shard's lock. No function calls on_owner_answer() or on_owner_gone() before
// it returns.
class QueueOwners {
 public:
  virtual ~QueueOwners() = default;

  // Returns a run number that was never used before; never 0.
  virtual uint32_t new_run() = 0;
  // Forwards a request; requests to the same owner stay in order. Returns false if there is no room for the
  // request now.
  virtual bool pass(const ForwardedRequest& request) = 0;
  // Tells the owners that the target has stopped receiving, perhaps in the middle of a message. Each owner
  // ends its StandIn, and flushes a receive request that the message had begun to fill.
  virtual void end(const QueuePair& target) = 0;
};

// Forwards an XRC target's requests for shared receive queues of other processes, and keeps account of them.
// (IBTA volume 1, annex A14, assumes one adapter that owns all these queues.) The requests are forwarded in
// order, and acknowledged once the process that owns the queue has answered.
//
// At any time, only one owner has unanswered requests. Otherwise a later request could be executed by a
// second owner, while an earlier one fails at the first owner and must be repeated. The requester repeats
// both, and the later one would be executed twice. So a request for a second owner stays in the target's
// reorder buffer until the first owner has answered. A target that does not keep early packets drops the
// request, and asks for it by a NAK once everything before it is answered.
//
// The unanswered forwarded PSNs are the last ones before the target's expected PSN. The target's Responder
// keeps the expected PSN and the MSN, and sends all packets; this class only decides what to send.
//
// Threads: the caller holds the lock of the target's shard.
class ForwardedRequests {
 public:
  explicit ForwardedRequests(QueuePair& qp) : qp_(qp) {}

  // Starts without forwarded requests.
  void start();
  // Tells the owners that the target takes no more requests; later answers are ignored. REQUIRES: take_back()
  // was called
  void end();

  bool any() const { return count_ > 0; }
  // Number of forwarded PSNs that the owner has not answered.
  uint32_t count() const { return count_; }
  // Whether a part of a SEND or WRITE was forwarded, and its last packet was not.
  bool in_message() const { return in_message_; }

  // State of the target.
  struct Target {
    roce::Psn expected;
    uint32_t msn;
    bool in_message;  // it is receiving a message for a queue of its own process
  };
  // kHeldBack: the request must wait until earlier ones are answered. kNotReady: the owner's process has no
  // room for it now. kInvalid: the target must refuse it.
  enum class Result : uint8_t { kPassed, kHeldBack, kNotReady, kInvalid };
  struct Passage {
    Result result;
    uint32_t psns = 0;  // number of PSNs forwarded
  };
  // Forwards the expected request. REQUIRES: its queue belongs to another process
  Passage pass(const roce::Packet& packet, const Target& target);
  // Forwards a repeated READ or atomic to the process that answered it first.
  void pass_again(const roce::Packet& packet, uint32_t msn);
  // Notes that a request behind the forwarded ones waits, or is missing. The target may ask the requester for
  // it only after all forwarded requests are answered: the NAK that asks also acknowledges them.
  void hold_back() { ask_afterwards_ = true; }
  // Undoes hold_back(): that request has come and was executed or forwarded.
  void settle() { ask_afterwards_ = false; }

  // Notes that the requester wants an acknowledgement once all PSNs up to `last` are answered.
  void note_asked(roce::Psn last);
  // RNR timer code with which requesters are asked to wait: 491 ms. The owner's answer ends the wait at once.
  static constexpr uint8_t kPatienceTimer = 31;
  // Call when the requester has repeated a request that the owner has not answered. Returns true if an RNR
  // NAK should ask the requester to wait. This is so from 100 ms to kLongestPatience after the first
  // repetition.
  bool asks_for_patience(TimePoint now);

  // Instructions for the target that follow from an owner's answer.
  struct Verdict {
    enum class Next : uint8_t {
      kNothing,
      kGoOn,      // execute the expected PSN if it is kept, or ask for it
      kNotReady,  // send an RNR NAK
      kRefuse,    // send a NAK with `code`, and raise `event`
    };
    Next next = Next::kNothing;
    bool acknowledge = false;
    uint32_t taken_back = 0;      // the last PSNs that the target must expect again; apply this first
    std::optional<uint32_t> msn;  // new MSN of the target; empty: unchanged
    roce::NakCode code = roce::NakCode::kInvalidRequest;
    std::optional<ibv_event_type> event;
  };
  // Handles the answer of an owner. Ignores an answer that is not of the current run.
  Verdict on_owner_answer(const OwnerAnswer& answer, roce::Psn expected);
  // Handles the end of an owner's process. If the target has unanswered requests or an incomplete message
  // with this owner, the verdict is to refuse them with `code`. Otherwise it is kNothing.
  Verdict on_owner_gone(uint32_t owner, roce::NakCode code);
  // Forgets all unanswered requests. Returns their number of PSNs, which the target must expect again.
  uint32_t take_back();

 private:
  bool is_asked_for(roce::Psn answered);
  Verdict on_acknowledgement(const OwnerAnswer& answer, int32_t place);

  QueuePair& qp_;
  uint32_t count_ = 0;
  uint32_t owner_ = 0;
  uint32_t run_ = 0;  // 0: nothing was forwarded
  bool in_message_ = false;
  // Whether the requester wants acknowledgements. It wants one as soon as PSN asked_first_ is answered, and
  // another when PSN asked_last_ is.
  bool asked_ = false;
  roce::Psn asked_first_;
  roce::Psn asked_last_;
  TimePoint silent_since_ = kNever;  // first repetition of an unanswered request
  bool ask_afterwards_ = false;      // a request behind the forwarded ones waits, or is missing
};

}  // namespace verbena::transport
