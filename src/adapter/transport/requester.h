// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "adapter/congestion/algorithm.h"
#include "adapter/congestion/flow.h"
#include "adapter/transport/control_packets.h"
#include "adapter/transport/loss_scoreboard.h"
#include "adapter/transport/queue_pair.h"

namespace verbena::transport {

// The sending half of a QP of a reliable service, RC or XRC (IBTA volume 1, 9.7): turns send requests into
// packets, takes acknowledgements and responses, sends again from the oldest unacknowledged packet after a
// loss (go-back-N), and completes requests in order.
//
// The requests in the ring lie so:
//
//     consumed = head_        cursor_                assigned_             posted
//        | unacknowledged ...    | sent before, to be   | never sent          |
//        |                       | sent again           | yet                 |
//
// Requests before assigned_ have PSNs; of a request that is executed locally the range is empty. unacked_ is
// the oldest PSN not acknowledged, next_ the one that is sent next; after a loss next_ goes back to unacked_
// and cursor_ to head_. A READ owns the PSNs of its response packets. It is asked for in parts, each a READ
// request of its own, so that the responses in flight obey the window too.
class Requester {
 public:
  Requester(QueuePair& qp, roce::Service service) : qp_(qp), service_(service) {}

  // Enters RTS for the first time: PSNs from the attributes.
  void start();
  // Enters SQD: what has begun goes on to its end, which is announced.
  void drain();
  // The QP has got another route. REQUIRES: !has_outstanding()
  void on_route();
  // While something is outstanding nothing new is sent.
  void hold_new(bool on);
  // Stops for good (ERR, RESET); the ring's requests are no longer ours.
  void halt();

  TransmitResult transmit(TimePoint now, uint32_t& budget);
  // What most requests are, one packet each with nothing in the way, is sent here at a fraction of the cost.
  // The first that is anything else, and all behind it, is left to transmit(). True: nothing is.
  // `acknowledgement`, if there is one, travels in the first packet, and is taken from the caller then.
  bool send_simple(TimePoint now, std::optional<Acknowledgement>& acknowledgement);
  bool can_transmit() const;
  bool may_gather() const;
  bool has_outstanding() const { return unacked_.is_before(highest_); }
  // A request cannot complete yet, and nothing will tell when it can but to try again.
  bool awaits_users() const { return users_ != 0; }

  void on_acknowledge(const Acknowledgement& acknowledgement, TimePoint now);
  // The peer's agent says that the process is stopped, and executes nothing from this PSN on.
  void on_stopped(roce::Psn psn, TimePoint now);
  void on_arrivals(const roce::Packet& packet, TimePoint now);
  void on_read_response(const roce::Packet& packet, TimePoint now);
  void on_atomic_acknowledge(const roce::Headers& headers, TimePoint now);
  // A switch on the way is filling up: packets that it passed on were marked.
  void on_congestion();
  // Others send to the same process as the peer, or as this one what it reads.
  void on_incast(const congestion::Incast& incast);

  TimePoint deadline() const {
    // Asked several times for each message: of a list the compiler would make a loop.
    const TimePoint resends = std::min(ack_deadline_, rnr_deadline_);
    const TimePoint sends = std::min(paced_until_, probe_deadline_);
    return std::min(std::min(resends, sends), overdue_);
  }
  void on_timer(TimePoint now);

  roce::Psn next_psn() const { return next_new_; }

 private:
  // What the route's traits come to at our path MTU.
  struct Sizes {
    uint32_t charge = 0;  // what a packet costs in flight beside its payload
    // Packets that leave best together. READ data is asked for in parts of as many where nothing paces it.
    uint32_t run_packets = 1;
    uint32_t run_bytes = 0;
    uint32_t joined = 1;           // packets of one message that go as one
    uint32_t lent = 0;             // those whose payload stays here
    uint32_t joined_messages = 1;  // small ones
    int32_t max_packets = 0;       // in flight
    // Requests of at most so many bytes, or those that may be joined, may wait until so many are together,
    // while so many before them have not been acknowledged.
    uint32_t gather_requests = 0;
    uint32_t gather_bytes = 0;
    uint32_t gather_behind = 0;
  };
  Sizes sizes_of(const Traits& traits, uint32_t mtu) const;

  // Transmission
  TransmitResult send_posted(TimePoint now, uint32_t& budget);
  bool may_start(const queues::SendWqe& wqe) const;
  bool window_allows(uint32_t bytes) const { return inflight_ == 0 || inflight_ + bytes <= window_; }
  bool begins_run(const queues::SendWqe& wqe) const;
  bool window_allows_run(const queues::SendWqe& wqe) const;
  bool pace_allows(const queues::SendWqe& wqe, TimePoint now) const;
  bool goes_with_first(const queues::SendWqe& wqe, uint32_t index) const;
  void assign(queues::SendWqe& wqe);
  uint32_t part_packets() const;
  // What of a request is asked for at once.
  struct Part {
    roce::Psn first;
    roce::Psn limit;
  };
  static Part part_of(const queues::SendWqe& wqe, roce::Psn psn);
  bool execute_here(queues::SendWqe& wqe);
  void executed(queues::SendWqe& wqe);
  bool may_go_direct(const queues::SendWqe& wqe) const;
  bool go_direct(queues::SendWqe& wqe, uint32_t& budget);
  bool copy_directly(queues::SendWqe& wqe, const PeerRange& range, uint32_t& budget);
  void count_direct_octets(bool is_read, uint32_t bytes, uint32_t packets);
  bool change_directly(queues::SendWqe& wqe, PeerRange range, uint32_t& budget);
  void done_directly(queues::SendWqe& wqe, ibv_wc_status status = IBV_WC_SUCCESS);
  bool must_drain_for_direct(const queues::SendWqe& wqe);
  void drain_for_direct();
  bool holds_new() const { return holds_new_ || drains_for_direct_; }
  SendStatus send_data(queues::SendWqe& wqe);
  uint32_t packets_to_lend(const queues::SendWqe& wqe, uint32_t index) const;
  uint32_t middles_together(const queues::SendWqe& wqe, uint32_t most) const;
  SendStatus send_middles(queues::SendWqe& wqe, uint32_t count, uint32_t& budget);
  SendStatus send_read(queues::SendWqe& wqe);
  SendStatus put_read(const queues::SendWqe& wqe, roce::Psn from, roce::Psn limit);
  SendStatus put_atomic(const queues::SendWqe& wqe);
  SendStatus put_placement(const queues::SendWqe& wqe);
  SendStatus send_atomic(queues::SendWqe& wqe);
  SendStatus send_placement(queues::SendWqe& wqe);
  bool may_send_simply() const;
  bool is_simple(const queues::SendWqe& wqe) const;
  bool is_plain(const queues::SendWqe& wqe) const;
  static bool may_be_joined(const queues::SendWqe& wqe);
  struct Together;
  Together find_together(uint32_t most) const;
  SendStatus send_together(const Together& messages, std::optional<Acknowledgement>& acknowledgement);
  SendStatus send_one(queues::SendWqe& wqe, uint32_t packets,
                      std::optional<Acknowledgement>& acknowledgement);
  SendStatus send_plain(const queues::SendWqe& wqe, ConstBytes payload, uint32_t packets, bool asks,
                        const std::optional<Acknowledgement>& acknowledgement);
  SendStatus send_with_headers(const queues::SendWqe& wqe, ConstBytes payload, bool asks,
                               const std::optional<Acknowledgement>& acknowledgement);
  void left_simply(uint32_t requests, uint32_t packets, uint32_t bytes, bool asked);
  void lost();
  bool peer_may_not_have_looked();
  void timed_out();
  void obey_flow();
  void show_path();
  uint32_t asks_after(uint32_t cost) const;
  // `last`: the request that they end, or are of.
  bool must_ask(uint32_t packets, uint32_t bytes, bool ends, uint32_t last) const;
  bool more_follows(uint32_t packets, uint32_t bytes, bool ends, uint32_t last) const;
  void await_acknowledgement(TimePoint now) {
    if (ack_deadline_ != kNever) return;
    const Duration timeout = ack_timeout();
    if (timeout != Duration::zero()) ack_deadline_ = now + timeout;
  }
  // So many packets, joined or not, which use the PSNs up to `past`: those of a READ's answer, too.
  void sent(queues::SendWqe& wqe, roce::Psn past, uint32_t payload_bytes, uint32_t packets);
  void sent_request(queues::SendWqe& wqe, roce::Psn past, uint32_t payload_bytes);
  int32_t max_packets() const;
  void stop_at_cursor(ibv_wc_status status);
  bool has_unasked() const { return unacked_.is_before(next_) && asked_.is_before(next_); }
  // Packets are in flight that did not ask for an acknowledgement, in the belief that more would follow, and
  // nothing follows. Without this the requester would wait for an answer that the peer does not owe.
  bool must_ask_again() const { return has_unasked() && must_ask_now(); }
  bool must_ask_now() const;
  void ask_again();
  // The packets before next_ that were just sent cost so much in flight; whether they asked for an
  // acknowledgement.
  void note_question(bool asked, uint32_t cost) {
    if (asked) {
      since_ack_request_ = 0;
      asked_ = next_;
      asks_next_ = false;
    } else {
      since_ack_request_ += std::max(cost, 1u);
    }
  }
  void ask_for_the_last();
  void announce_drained();

  // Repair
  bool can_send_new() const;
  bool can_repair() const;
  const LossScoreboard* holes_to_repair() const;
  const LossScoreboard::Hole* first_lost() const {
    const LossScoreboard::Hole* hole = scoreboard_.first_lost();
    return hole != nullptr ? hole : answers_.first_lost();
  }
  TransmitResult repair(TimePoint now, uint32_t& budget);
  SendStatus repair_one(LossScoreboard& holes, TimePoint now);
  // One packet of a request that carries data. The bytes are counted.
  SendStatus put_data_again(const queues::SendWqe& wqe, roce::Psn psn, bool ack_request);
  void count_sent_again(roce::Psn first);
  SendStatus ask_for_last_answer(const queues::SendWqe& wqe);
  SendStatus send_probe(TimePoint now);
  SendStatus send_heard();
  RepeatedReads::Request read_of(const queues::SendWqe& wqe, roce::Psn from, roce::Psn limit) const;
  void note_read(const queues::SendWqe& wqe, roce::Psn limit);
  void name_reads(uint32_t& budget);
  // The request that has this PSN. REQUIRES: unacked_ <= psn < highest_
  queues::SendWqe& owner_of(roce::Psn psn);
  // Calls visit(request, from, limit) for each that has a part of [from, limit). REQUIRES: as for owner_of()
  template <class Visit>
  void for_each_owner(roce::Psn from, roce::Psn limit, Visit visit) {
    while (from.is_before(limit)) {
      const queues::SendWqe& wqe = owner_of(from);
      const roce::Psn past = wqe.last_psn + 1;
      const roce::Psn to = past.is_before(limit) ? past : limit;
      visit(wqe, from, to);
      from = to;
    }
  }
  void left_flight(uint32_t bytes, bool was_lost);
  void note_time(roce::Psn first, roce::Psn limit, LossScoreboard::State state);
  void note_answer_time(roce::Psn first, roce::Psn limit, LossScoreboard::State state);
  void take_arrived(roce::Psn from, roce::Psn limit, bool was_lost);
  void settle_flow(const queues::SendWqe& wqe, roce::Psn limit);
  uint64_t give_up_hole(const LossScoreboard& holes, LossScoreboard::Hole& hole);
  void progressed_flow(TimePoint now);
  // It has been told of the gap that a NAK tells of, by one who keeps what came after it.
  bool knows_of_gap() const {
    return tells_arrivals_ && !scoreboard_.empty() && scoreboard_.all().front().first == unacked_;
  }
  void note_closed(const LossScoreboard::Hole& hole, TimePoint now);
  void note_repeated(roce::Psn psn, TimePoint now);
  void note_disorder(TimePoint now);
  void find_lost(TimePoint now);
  uint64_t give_up_overdue(LossScoreboard& holes, TimePoint now);

  // Answers that come before their turn
  // Not those to what is still to be sent again: it is not in flight.
  bool is_early(roce::Psn psn) const {
    return flow_ && running_ && unacked_.is_before(psn) && psn.is_before(next_);
  }
  void on_early_answer(const roce::Packet& packet, TimePoint now);
  ibv_wc_status take_answer(const queues::SendWqe& wqe, const roce::Packet& packet);
  void note_reached(roce::Psn limit, TimePoint now);
  void note_requests(roce::Psn limit, TimePoint now);
  void answered_early(roce::Psn from, roce::Psn limit, bool was_lost);
  void take_early();
  bool is_answer_of(const queues::SendWqe& wqe, const roce::Packet& packet) const;
  Duration patience() const;
  Duration answer_time() const;
  Duration repair_timeout() const;
  void await_probe(TimePoint now);
  void on_probe(TimePoint now);

  // Acknowledgement
  bool acknowledge_before(roce::Psn limit);
  void acknowledge_whole(roce::Psn limit);
  void settle(const queues::SendWqe& wqe, roce::Psn limit);
  void retire(ibv_wc_status status);
  void retire_executed();
  queues::SendWqe* response_target(roce::Psn psn, TimePoint now);
  void on_placement_response(const queues::SendWqe& wqe, const roce::Packet& packet, TimePoint now);
  void progressed(TimePoint now);
  void on_rnr(uint8_t timer_code, bool counts, TimePoint now);
  void on_acknowledge(const Acknowledgement& answer, bool counts, TimePoint now);
  void on_ready();
  void on_sequence_error();
  struct Failure {
    roce::Psn psn;
    ibv_wc_status status;
  };
  void note_failure(const Failure& failure);
  void fail_in_turn();
  void note_nak(const Acknowledgement& nak);
  void on_implied_loss();
  void go_back();
  void start_over();
  void fail_head(ibv_wc_status status);

  queues::SendQueue& ring() { return qp_.send_queue(); }
  const queues::SendQueue& ring() const { return qp_.send_queue(); }
  uint32_t mtu() const { return qp_.attributes().path_mtu; }
  // What a packet of that size costs in flight.
  uint32_t full_packet() const { return mtu() + sizes_.charge; }
  // Where the packet's payload lies in its message.
  uint32_t offset_at(const queues::SendWqe& wqe, roce::Psn psn) const;
  Duration ack_timeout() const;
  roce::Headers headers_for(roce::Operation operation, roce::Psn psn) const;
  uint32_t flight_bytes(const queues::SendWqe& wqe, roce::Psn from, roce::Psn limit) const;

  QueuePair& qp_;
  const roce::Service service_;
  bool running_ = false;
  bool holds_new_ = false;
  bool heard_ = false;         // the peer has answered: both know where they are
  bool lends_ = true;          // the peer has got what was lent to it
  uint32_t direct_bytes_ = 0;  // of the request at the cursor, which have been copied without the peer's help
  bool direct_refused_ = false;     // it is to go by packets, as has just been found
  bool drains_for_direct_ = false;  // nothing new is sent until all is answered: then requests go direct
  Connection connection_;
  uint32_t one_sided_run_ = 0;    // so many requests that might went by packets, one behind the other
  uint64_t one_sided_bytes_ = 0;  // and so many bytes, since it was asked whether they had better not

  uint32_t head_ = 0;
  uint32_t cursor_ = 0;
  uint32_t assigned_ = 0;
  roce::Psn unacked_;
  roce::Psn next_;
  roce::Psn next_new_;  // the first PSN no request has
  roce::Psn highest_;   // past the highest PSN ever sent (or, of a READ, asked for)

  Sizes sizes_;
  // Where nothing is lost, or nothing is to be found out, the window needs no more than itself; elsewhere
  // the flow decides, with all it knows.
  congestion::FixedWindow lossless_window_;
  std::unique_ptr<congestion::Flow> flow_;
  BlockPins pins_;
  uint32_t window_ = 0;             // bytes that may be in flight
  uint32_t inflight_ = 0;           // bytes between unacked_ and next_
  uint32_t since_ack_request_ = 0;  // bytes, and one for each packet without
  roce::Psn asked_;                 // past the last packet that asked for an acknowledgement
  bool asks_next_ = false;          // the packet at next_ was sent before and is sent again to ask for one
  uint32_t runs_unasked_ = 2;       // are sent before an acknowledgement is asked for, if the window has room
  uint32_t reads_outstanding_ = 0;  // parts of READs, and atomics, between unacked_ and next_

  // The request at cursor_ cannot be sent, and fails with this when its turn comes. Whatever moves cursor_
  // back or past it resets this.
  std::optional<ibv_wc_status> stopped_;
  // The request with this PSN has failed, and answers to requests before it are still missing: the peer has
  // refused it, or its own answer came early and found no place.
  std::optional<Failure> fails_at_;
  // The peer has refused the request with this PSN. It has answered all before, and answers nothing more.
  std::optional<roce::Psn> refused_at_;
  std::optional<roce::Psn> implied_loss_at_;
  // Identifies the users of the memory that the request at cursor_ has taken away (KeyTable::users()). 0:
  // nobody. It is not 0 only while that request has been carried out and is not marked as executed.
  uint64_t users_ = 0;

  // ---- what is sent again, where packets may be lost
  // Between unacked_ and the last that is known to have arrived: requests at the peer, and here what answers
  // READs and atomics. What is before the latest answer is done by the peer, so of other requests nothing is
  // missing there.
  LossScoreboard scoreboard_;
  LossScoreboard answers_;
  roce::Psn held_up_;            // answers before this PSN wait for a request that was lost, or may do so
  bool tells_arrivals_ = false;  // the peer keeps what comes early, and tells what it has
  bool heard_due_ = false;       // it is to be told that it is understood
  uint8_t heard_sent_ = 0;
  bool probe_due_ = false;
  bool asked_for_parts_ = false;  // of READs, by themselves
  Part asked_again_;              // the latest of these
  RepeatedReads latest_reads_;
  uint32_t reads_not_named_ = 0;    // so many of these
  uint32_t reads_to_name_ = 0;      // so many more, as something has been lost
  uint8_t probes_ = 0;              // since the last answer
  uint8_t disorder_ = 0;            // how often a packet was only late that had been taken for lost
  TimePoint disorder_counts_at_{};  // not before
  uint8_t losses_ = 0;              // that were some, since the last such, in so many round trips
  TimePoint loss_counts_at_{};      // not before
  TimePoint probe_deadline_ = kNever;
  TimePoint repaired_at_{};     // when the latest was sent of what has arrived after it had been sent again
  TimePoint overdue_ = kNever;  // when the next hole is too old to be one that closes by itself

  TimePoint ack_deadline_ = kNever;
  TimePoint rnr_deadline_ = kNever;
  TimePoint paced_until_ = kNever;  // nothing leaves before: it would be too fast
  TimePoint sending_at_{};          // by whose clock
  bool is_patient_ = false;         // a timeout has come; false: the peer has been heard since
  uint32_t put_ = 0;                // PacketSink::put_so_far(), at the latest timeout
  bool looks_late_ = false;         // and it had not been taken then
  uint8_t retries_left_ = 0;
  uint8_t rnr_retries_left_ = 0;
};

}  // namespace verbena::transport
