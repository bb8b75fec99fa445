// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapter/memory/region.h"
#include "adapter/transport/control_packets.h"
#include "adapter/transport/forwarded_requests.h"
#include "adapter/transport/gather.h"
#include "adapter/transport/inbound.h"
#include "adapter/transport/queue_pair.h"
#include "adapter/transport/reorder_buffer.h"
#include "base/cache_line.h"
#include "wire/roce/aeth.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

// Responder resources (IBTA volume 1, 9.7.5.1.3): the READs and atomics that a responder has executed. Holds
// the responses that are still to be sent, in PSN order. Also saves the latest responses, to answer duplicate
// requests. There is room for max_dest_rd_atomic new responses, as many repeated ones, and as many saved
// ones.
class ResponderResources {
 public:
  enum class Kind : uint8_t {
    kRead,
    kAtomic,
    kEmpty,  // a READ response without payload, to an ATOMIC WRITE or a FLUSH
  };
  struct alignas(kCacheLine) Resource {
    bool valid = false;
    Kind kind = Kind::kRead;
    roce::Psn first;  // of the response packets
    roce::Psn last;
    uint64_t address = 0;  // range that a READ reads
    uint32_t rkey = 0;
    uint32_t length = 0;
    uint32_t msn = 0;       // of the response
    RemoteUser user;        // by whose rights `rkey` is used
    uint64_t original = 0;  // value before an atomic
  };
  // A response being sent. Its first packet has PSN `resource.first`; the packets from PSN `next` to
  // `resource.last` are still to be sent.
  struct Reply {
    Resource resource;
    roce::Psn next;
    roce::Psn given;        // all packets before this PSN were sent at least once
    bool repeated = false;  // the whole response was sent before

    // Whether the next packet was sent before.
    bool is_given_again() const { return repeated || next.is_before(given); }
    // Call when all packets before `past` have been sent.
    void advance(roce::Psn past) {
      next = past;
      if (given.is_before(past)) given = past;
    }
  };

  // Forgets everything, and makes room for `most` responses, but at least one. Call on entering RTR.
  void start(uint32_t most);
  // Drops the responses still to be sent; saved resources stay.
  void stop() { count_ = repeated_ = 0; }

  bool empty() const { return count_ == 0; }
  Reply& front() { return ring_[first_]; }
  void pop_front() {
    if (front().repeated) --repeated_;
    first_ = first_ + 1 == ring_.size() ? 0 : first_ + 1;
    --count_;
  }

  // Whether the response to another new request fits.
  bool has_room() const { return count_ - repeated_ < saved_.size(); }
  // Queues the response to a new request, and saves it. Returns false if max_dest_rd_atomic new responses are
  // still to be sent.
  bool add(const Resource& resource);

  // Returns the saved resource of this kind whose PSNs include `psn`; nullptr if there is none. Returns the
  // newest one, as PSNs repeat after 2^24.
  const Resource* saved(roce::Psn psn, Kind kind) const;
  // Queues a saved response again, or a part of it, for a duplicate request. Does not queue packets that are
  // still to be sent anyway. Drops the response if max_dest_rd_atomic repeated responses wait: the peer will
  // send its request again.
  void repeat(const Resource& answer);

 private:
  Reply& at(uint32_t place) { return ring_[(first_ + place) % ring_.size()]; }
  bool queue(const Resource& resource, bool repeated);

  std::vector<Resource> saved_;  // a ring; the next to be replaced is at next_saved_
  uint32_t next_saved_ = 0;
  std::vector<Reply> ring_;  // in PSN order: count_ from first_
  uint32_t first_ = 0;
  uint32_t count_ = 0;
  uint32_t repeated_ = 0;  // repeated ones among them
};

struct Sack;

// The receiving half of a QP of a reliable service, RC or XRC (IBTA volume 1, 9.7 and 9.7.5). Executes
// requests in order, acknowledges them, answers READs and atomics, and answers duplicates from its responder
// resources.
//
// It sends urgent packets first: READ responses and atomic acknowledgements in PSN order, then SACKs and
// NAKs. After these, it sends one coalesced acknowledgement of everything before the expected PSN.
class Responder {
 public:
  Responder(QueuePair& qp, roce::Service service) : qp_(qp), service_(service), inbound_(qp), passed_(qp) {}

  // Enters RTR: sets the expected PSN from the attributes, and makes room for max_dest_rd_atomic responses.
  void start();
  // Enters ERR or RESET: takes no more requests. In ERR, an acknowledgement that is due is still sent,
  // because an adapter would have sent it at once. Without it, the peer would repeat executed requests until
  // its retries end. The acknowledgement is dropped if responses wait, which are not sent any more.
  void halt(ibv_qp_state to);

  // Handles a request of the peer: executes it, keeps it until the requests missing before it have come, or
  // answers it as a duplicate. `lent` is the packet's rendezvous payload, or null if the packet has its
  // payload.
  void on_request(const roce::Packet& packet, TimePoint now, LentPayload* lent = nullptr);
  // Fast path of on_request() for a PlainSend: places the data, with no other effect. Returns false if the
  // caller must use on_request() instead. After true, the caller handles the acknowledgement that came with
  // the packet, if any, and calls end_plain_send().
  bool begin_plain_send(const PlainSend& message) {
    return running_ && message.headers.psn == expected_ && kept_.empty() && !nak_ &&
           inbound_.place_whole(message.payload, message.count);
  }
  void end_plain_send(const PlainSend& message);
  // Executes a batch of messages (IncomingPacket::messages, with these lengths) as if each message had come
  // alone.
  void on_messages(const roce::Packet& packet, std::span<const uint8_t> lengths, TimePoint now);
  // Handles the peer's confirmation that it understands SACKs. Ignores a confirmation whose PSN is not
  // recent: it may be forged.
  void on_heard(roce::Psn psn) { is_heard_ = is_heard_ || knows_where_we_are(psn); }
  // Executes the READ requests in a RepeatedReads packet whose originals have not arrived.
  void on_repeated_reads(const roce::Packet& word, TimePoint now);
  // Makes a SACK due that reports other senders, if the peer has confirmed SACKs.
  void tell_of_incast() { arrivals_due_ |= is_heard_; }

  // Sends the responses, SACKs and NAKs that are due: at most `budget` packets or super-packets. Subtracts
  // the number sent from `budget`.
  TransmitResult transmit_urgent(uint32_t& budget, TimePoint now);
  // Sends the acknowledgement that is due, if any. Returns false if the route is full.
  bool transmit_acknowledgement();
  // Returns the acknowledgement that is due, for another packet to carry it; nullopt if none is due. Call
  // acknowledgement_taken() once that packet was sent.
  std::optional<Acknowledgement> acknowledgement() const {
    if (!acknowledgement_due_) return std::nullopt;
    return Acknowledgement{answered(), msn_, roce::ack_syndrome()};
  }
  void acknowledgement_taken() {
    acknowledgement_due_ = false;
    qp_.count(kSentPackets);
  }

  bool has_urgent() const {
    return !replies_.empty() || nak_.has_value() || arrivals_due_ || has_late_receive();
  }
  bool has_acknowledgement() const { return acknowledgement_due_; }

  roce::Psn expected_psn() const { return expected_; }
  // Returns the responder's progress, encoded as protocol::ResponderProgress.
  uint64_t progress() const;

  // When to call on_timer(); kNever: not at all.
  TimePoint deadline() const { return next_look_; }
  void on_timer(TimePoint now);

  // ---- XRC: requests executed by other processes, which own their queues

  void on_owner_answer(const OwnerAnswer& answer) {
    if (running_) take(passed_.on_owner_answer(answer, expected_));
  }
  void on_owner_gone(uint32_t owner, roce::NakCode code) {
    if (running_) take(passed_.on_owner_gone(owner, code));
  }
  // Sets the expected PSN and the MSN. For a stand-in, which runs in the process that owns the queue: the
  // next forwarded request has PSN `expected`, and `msn` is the MSN before it.
  void synchronize(roce::Psn expected, uint32_t msn);

 private:
  struct Nak {
    uint8_t syndrome;
    roce::Psn psn;
    bool for_receive = false;  // a receive request of this process would resolve it
  };

  void on_early(const roce::Packet& packet, uint32_t ahead, const LentPayload* lent);
  // Whether to send a SACK about early packets.
  bool may_tell(bool gap_is_new) {
    if (is_heard_ || unheard_ < Sack::kMaxUnheard) return true;
    return gap_is_new && ++unheard_gaps_ % Sack::kGapsUnheard == 0;
  }
  bool knows_where_we_are(roce::Psn word) const;
  void execute(const roce::Packet& packet, LentPayload* lent = nullptr);
  void execute_kept();
  bool keeps() const { return !qp_.route().traits.lossless && qp_.config().repairs; }
  // Whether an early packet may be kept. One with a rendezvous payload may not, as the payload may be gone
  // when the packet's turn comes. A super-packet may not, as the reorder buffer has no place for it. Both
  // come over shared memory, which happens even while the QP's own route still is a port.
  bool may_keep(const roce::Packet& packet, const LentPayload* lent) const {
    return keeps() && packet.count == 1 && lent == nullptr;
  }
  uint32_t psns_of(const roce::Packet& packet) const;
  void receive(const roce::Packet& packet, LentPayload* lent);
  void execute_read(const roce::Packet& packet);
  void execute_atomic(const roce::Packet& packet);
  void execute_atomic_write(const roce::Packet& packet);
  void execute_flush(const roce::Packet& packet);
  void answer_empty();
  void repeat(const roce::Packet& packet);

  // Makes a NAK due and enters ERR. The current receive request fails with `receive_status`, unless that is
  // IBV_WC_SUCCESS.
  void refuse(roce::NakCode code, ibv_wc_status receive_status = IBV_WC_SUCCESS);
  void note_refusal(const roce::Packet& packet);
  SendStatus send_refusal();
  void note_nak(const Nak& nak);
  void fail_read(roce::Psn psn);
  SendStatus refuse_repetition(ResponderResources::Reply& reply);
  void give_up(const Nak& nak, std::optional<ibv_event_type> event);
  void stop(std::optional<ibv_event_type> event);
  void not_ready();  // makes an RNR NAK due
  void wait_for_receive(TimePoint now);
  void end_wait();
  Duration patience() const;
  // Call when a receive request may have been posted for the peer's request that waits for one. Executes the
  // peer's request if it was kept, or else asks the peer for it again.
  void on_late_receive(TimePoint now);
  void ask_again();
  bool is_not_ready() const { return nak_ && roce::aeth_kind(nak_->syndrome) == roce::AethKind::kRnrNak; }
  // Whether the program has now posted a receive request for the peer's request that waits for one. Returns
  // false if the queue is a shared one: only on_timer() looks there.
  bool has_late_receive() const {
    return wait_ == Wait::kForReceive && awaiting_ == expected_ && qp_.receives().shared() == nullptr &&
           !qp_.recv_queue().empty();
  }
  void ask_for_expected();  // makes a sequence error NAK due
  void ask_for_dropped();
  void settle_absence();

  void pass_on(const roce::Packet& packet);
  void hold_back(const roce::Packet& packet);
  void on_unanswered(const roce::Packet& packet, TimePoint now);
  void take(const ForwardedRequests::Verdict& verdict);
  // The last PSN that may be acknowledged: everything before unanswered forwarded requests.
  roce::Psn answered() const { return expected_ - 1 - passed_.count(); }

  // Stores the progress in QpConfig::progress. Call before a packet that acknowledges leaves: the agent needs
  // the progress if it must answer for this process later, because the process is stopped.
  void show_progress() const {
    if (qp_.config().progress != nullptr) qp_.config().progress->store(progress(), std::memory_order_relaxed);
  }
  SendStatus send_read_response(ResponderResources::Reply& reply);
  SendStatus send_atomic_acknowledge(ResponderResources::Reply& reply);
  SendStatus send_acknowledge(uint8_t syndrome, roce::Psn psn);
  SendStatus send_arrivals();
  SendStatus send_arrivals(const Sack& arrivals);
  roce::Headers headers_for(roce::Operation operation, roce::Psn psn) const;

  void message_ended() { msn_ = (msn_ + 1) & 0xffffff; }
  bool takes_reads() const { return qp_.attributes().max_dest_rd_atomic > 0; }
  uint32_t mtu() const { return qp_.attributes().path_mtu; }

  QueuePair& qp_;
  const roce::Service service_;
  Inbound inbound_;
  ResponderResources replies_;
  ForwardedRequests passed_;
  bool running_ = false;
  bool refusing_ = false;
  roce::Psn expected_;
  uint32_t msn_ = 0;
  bool gap_reported_ = false;  // a NAK for the packet expected_ was sent; no other is until that packet comes
  bool acknowledgement_due_ = false;
  std::optional<Nak> nak_;
  // The peer's request with PSN awaiting_ came before a receive request was posted for it, and its RNR NAK is
  // held back (kForReceive). If the request was kept, it is executed once a receive request is posted.
  // Otherwise the peer is asked for the request again (kForRequest).
  enum class Wait : uint8_t { kNone, kForReceive, kForRequest };
  Wait wait_ = Wait::kNone;
  roce::Psn awaiting_;
  TimePoint awaits_since_ = kNever;
  TimePoint next_look_ = kNever;
  // The furthest early packet that was dropped, if the peer may not know that it must send this packet again.
  // This is so if the NAK that was due has been taken back, or a NAK has asked only for an earlier packet.
  std::optional<roce::Psn> dropped_;
  std::string refusal_;  // reason of a refusal, for a peer of our own user on this host; else empty
  ReorderBuffer kept_;   // packets after a gap, or that wait for an owner's answer or a receive request
  ReadsByWord by_word_;
  bool arrivals_due_ = false;  // a SACK is due
  bool is_heard_ = false;      // the peer understands SACKs
  uint8_t unheard_ = 0;        // SACKs sent before the peer confirmed one
  uint8_t unheard_gaps_ = 0;   // gaps since kMaxUnheard SACKs were sent
};

}  // namespace verbena::transport
