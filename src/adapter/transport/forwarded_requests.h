// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "adapter/transport/queue_owners.h"
#include "adapter/transport/queue_pair.h"
#include "base/time.h"
#include "wire/roce/aeth.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// The requests of an XRC target for shared receive queues of other processes (IBTA volume 1, annex A14, knows
// one adapter, whose queues these all are): passed on in their order, and acknowledged when their owner has
// answered for them.
//
// Only the requests of one owner are unanswered at a time: were a later one of another's executed already
// when an earlier one has to be repeated, it would be executed twice. What has to wait for that reason
// is kept by the target, or dropped where it keeps nothing, and then asked for again by a NAK, as soon as
// everything before it is answered.
//
// The PSNs that were passed on and not answered yet are the last before the one that the target expects. The
// target keeps that PSN and the MSN, and sends what is to be sent: here is only said what.
//
// For the shard's lock holder, as the target itself.
class ForwardedRequests {
 public:
  explicit ForwardedRequests(QueuePair& qp) : qp_(qp) {}

  // Nothing was passed on.
  void start();
  // The requests are nobody's any more, and it is too late for answers. REQUIRES: take_back() came before
  void end();

  bool any() const { return count_ > 0; }
  // PSNs that are not answered yet.
  uint32_t count() const { return count_; }
  // A message has begun at the owner, and not ended.
  bool in_message() const { return in_message_; }

  // Where the target stands.
  struct Target {
    roce::Psn expected;
    uint32_t msn;
    bool in_message;  // in one for a queue of its own
  };
  enum class Result : uint8_t { kPassed, kHeldBack, kNotReady, kInvalid };
  struct Passage {
    Result result;
    uint32_t psns = 0;  // that were passed on
  };
  // The expected request. REQUIRES: its queue is elsewhere
  Passage pass(const roce::Packet& packet, const Target& target);
  // A READ or an atomic is answered again by the process that answered it first.
  void pass_again(const roce::Packet& packet, uint32_t msn);
  // Something has to wait, or is missing, of which the requester cannot be told before all is answered.
  void hold_back() { ask_afterwards_ = true; }
  // It has come meanwhile, and has been passed on.
  void settle() { ask_afterwards_ = false; }

  // The requester wants to hear when all up to this PSN are answered.
  void note_asked(roce::Psn last);
  // How long a requester is asked to wait: that of the RNR NAK with this code, 491 ms. The owner's answer
  // ends it at once.
  static constexpr uint8_t kPatienceTimer = 31;
  // What is unanswered has come once more. Whether its requester is to be asked to wait.
  bool asks_for_patience(TimePoint now);

  // What an answer is to the target.
  struct Verdict {
    enum class Next : uint8_t {
      kNothing,
      kGoOn,      // with the expected PSN, if it is there, or ask for it
      kNotReady,  // an RNR NAK
      kRefuse,    // with `code`, and `event` for the application
    };
    Next next = Next::kNothing;
    bool acknowledge = false;
    uint32_t taken_back = 0;  // the last so many PSNs are expected again; before all else
    std::optional<uint32_t> msn;
    roce::NakCode code = roce::NakCode::kInvalidRequest;
    std::optional<ibv_event_type> event;
  };
  Verdict on_owner_answer(const OwnerAnswer& answer, roce::Psn expected);
  Verdict on_owner_gone(uint32_t owner, roce::NakCode code);
  // All that are unanswered are forgotten: so many PSNs are expected again.
  uint32_t take_back();

 private:
  bool is_asked_for(roce::Psn answered);
  Verdict on_acknowledgement(const OwnerAnswer& answer, int32_t place);

  QueuePair& qp_;
  uint32_t count_ = 0;
  uint32_t owner_ = 0;
  uint32_t run_ = 0;  // 0: nothing was passed on
  bool in_message_ = false;
  // The requester wants to hear of the first of these as soon as it is answered, and then of the last.
  bool asked_ = false;
  roce::Psn asked_first_;
  roce::Psn asked_last_;
  TimePoint silent_since_ = kNever;  // the owner, as far as was noticed
  bool ask_afterwards_ = false;      // what follows them waits, or is missing
};

}  // namespace verbena::transport
