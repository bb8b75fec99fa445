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

// The sending half of a QP of a reliable service, RC or XRC (IBTA volume 1, 9.7). Turns send requests into
// packets, handles acknowledgements and responses, and completes requests in order. After a loss it sends
// everything again from the oldest unacknowledged packet on (go-back-N). Over routes that may lose packets,
// it sends only the missing packets again, if the peer sends SACKs (QpConfig::repairs).
//
// Threads: the caller holds the shard's lock.
//
// The requests in the send queue's ring:
//
//     consumed = head_        cursor_                assigned_             posted
//        | unacknowledged ...    | sent before, to be   | never sent          |
//        |                       | sent again           | yet                 |
//
// Requests before assigned_ have PSNs. A request that is executed without packets has an empty range of PSNs.
// unacked_ is the oldest unacknowledged PSN, next_ the PSN that is sent next. Go-back-N sets next_ to
// unacked_, and cursor_ to head_. A READ owns the PSNs of its response packets. It is sent as several READ
// requests, each for a part of the data, so that the responses in flight obey the window, too.
//
// The loss scoreboards keep track of single packets. Where packets may be lost, a congestion::Flow (flow_)
// sets window and pace; else a FixedWindow.
class Requester {
 public:
  Requester(QueuePair& qp, roce::Service service) : qp_(qp), service_(service) {}

  // Enters RTS for the first time: takes the first PSN from the attributes.
  void start();
  // Enters SQD: finishes the requests that have begun. Then raises IBV_EVENT_SQ_DRAINED, if the program wants
  // the event.
  void drain();
  // Call when the QP has another route: takes over its Traits. REQUIRES: !has_outstanding()
  void on_route();
  // If `on`, sends no new packets while packets are outstanding, but sends old ones again if needed. Used
  // before a change of the route, which must wait until nothing is outstanding.
  void hold_new(bool on);
  // Stops, in ERR or RESET. The caller flushes or drops the requests in the ring.
  void halt();

  // Sends what may be sent now, at most `budget` packets or super-packets. Subtracts the number sent.
  TransmitResult transmit(TimePoint now, uint32_t& budget);
  // Fast path of transmit(). Handles SENDs of one packet or super-packet, and requests that go by direct
  // access (route.h). Stops at the first request that needs transmit(). Returns true if all posted requests
  // have left. `acknowledgement`, if any, travels in the first packet; it is then reset.
  bool send_simple(TimePoint now, std::optional<Acknowledgement>& acknowledgement);
  // Whether transmit() has something to send.
  bool can_transmit() const;
  // See QueuePair::may_gather().
  bool may_gather() const;
  // Whether packets were sent that are not yet acknowledged or answered.
  bool has_outstanding() const { return unacked_.is_before(highest_); }
  // Whether the request at cursor_ has invalidated a key that other processes may still be using. No event
  // reports when they have stopped using it, so the caller must call transmit() again until this is false.
  bool awaits_users() const { return users_ != 0; }

  // Handles an ACK or NAK.
  void on_acknowledge(const Acknowledgement& acknowledgement, TimePoint now);
  // Handles the notice of the peer's agent that the peer's process is stopped, and has executed nothing from
  // `psn` on. Waits as after an RNR NAK, but does not count this as a retry.
  void on_stopped(roce::Psn psn, TimePoint now);
  // Handles a SACK.
  void on_arrivals(const roce::Packet& packet, TimePoint now);
  // Handle a response: to a READ, an ATOMIC WRITE or a FLUSH; to another atomic.
  void on_read_response(const roce::Packet& packet, TimePoint now);
  void on_atomic_acknowledge(const roce::Headers& headers, TimePoint now);
  // Call when switches have marked packets: a CNP has come, or marked READ responses. Sends less or slower.
  void on_congestion();
  // Call with a new estimate of how many peers send to one process (IncastMeter). This is the peer's process
  // if a SACK reports the estimate, and our own process while READ responses come.
  void on_incast(const congestion::Incast& incast);

  // When to call on_timer(); kNever: not at all.
  TimePoint deadline() const {
    // Compares pairs, as this is called several times per message: the compiler turns a list into a loop.
    const TimePoint resends = std::min(ack_deadline_, rnr_deadline_);
    const TimePoint sends = std::min(paced_until_, probe_deadline_);
    return std::min(std::min(resends, sends), overdue_);
  }
  void on_timer(TimePoint now);

  // PSN of the next new request.
  roce::Psn next_psn() const { return next_new_; }

 private:
  // Sizes that follow from the route's Traits and the path MTU.
  struct Sizes {
    uint32_t charge = 0;  // cost of a packet in flight besides its payload, in bytes
    // run_packets is the number of packets that should leave together, as a packet train (run). run_bytes is
    // their cost in flight. A READ request asks for run_packets packets, if the flow does not pace.
    uint32_t run_packets = 1;
    uint32_t run_bytes = 0;
    uint32_t joined = 1;           // max packets in a super-packet
    uint32_t lent = 0;             // max packets in a super-packet whose payload goes by rendezvous
    uint32_t joined_messages = 1;  // max messages in a batch
    int32_t max_packets = 0;       // max packets in flight
    // Coalescing (may_gather()): waits until gather_requests requests are posted, while at least
    // gather_behind requests are unacknowledged. Only for requests of at most gather_bytes bytes. On a route
    // with batches of messages, only for requests that may join a batch.
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
  // PSNs of one READ request packet: a READ asks for its data in parts. For other requests, one PSN.
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
  // must_ask() returns whether the next `packets` packets must request an acknowledgement. more_follows()
  // returns whether further packets will surely follow these. `ends`: they end the request with index `last`;
  // else they are a part of it.
  bool must_ask(uint32_t packets, uint32_t bytes, bool ends, uint32_t last) const;
  bool more_follows(uint32_t packets, uint32_t bytes, bool ends, uint32_t last) const;
  void await_acknowledgement(TimePoint now) {
    if (ack_deadline_ != kNever) return;
    const Duration timeout = ack_timeout();
    if (timeout != Duration::zero()) ack_deadline_ = now + timeout;
  }
  // Notes that `packets` packets of the request have left. They use the PSNs from next_ up to `past`, not
  // included. For a READ, these are the PSNs of the response.
  void sent(queues::SendWqe& wqe, roce::Psn past, uint32_t payload_bytes, uint32_t packets);
  void sent_request(queues::SendWqe& wqe, roce::Psn past, uint32_t payload_bytes);
  int32_t max_packets() const;
  void stop_at_cursor(ibv_wc_status status);
  bool has_unasked() const { return unacked_.is_before(next_) && asked_.is_before(next_); }
  // Whether the last packet must be sent again, only to request an acknowledgement. This is so if the latest
  // packets in flight did not request one, because others should have followed, and now none can follow.
  // Without a request, the peer owes no acknowledgement.
  bool must_ask_again() const { return has_unasked() && must_ask_now(); }
  bool must_ask_now() const;
  void ask_again();
  // Notes whether the packets that were just sent requested an acknowledgement. The last of them has the PSN
  // next_ - 1. `cost`: the bytes for which these packets count in the window.
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
  // Sends one packet of a SEND or WRITE again. Counts its payload bytes.
  SendStatus put_data_again(const queues::SendWqe& wqe, roce::Psn psn, bool ack_request);
  void count_sent_again(roce::Psn first);
  SendStatus ask_for_last_answer(const queues::SendWqe& wqe);
  SendStatus send_probe(TimePoint now);
  SendStatus send_heard();
  RepeatedReads::Request read_of(const queues::SendWqe& wqe, roce::Psn from, roce::Psn limit) const;
  void note_read(const queues::SendWqe& wqe, roce::Psn limit);
  void name_reads(uint32_t& budget);
  // Returns the request that owns this PSN. REQUIRES: unacked_ <= psn < highest_
  queues::SendWqe& owner_of(roce::Psn psn);
  // Calls visit(request, from, limit) for each request that owns PSNs of [from, limit), with the range that
  // it owns. REQUIRES: from and limit lie between unacked_ and highest_
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
  // Whether a SACK has already reported the gap at unacked_. A NAK for this gap then needs no go-back-N, as
  // the peer keeps later packets.
  bool knows_of_gap() const {
    return tells_arrivals_ && !scoreboard_.empty() && scoreboard_.all().front().first == unacked_;
  }
  void note_closed(const LossScoreboard::Hole& hole, TimePoint now);
  void note_repeated(roce::Psn psn, TimePoint now);
  void note_disorder(TimePoint now);
  void find_lost(TimePoint now);
  uint64_t give_up_overdue(LossScoreboard& holes, TimePoint now);

  // Early answers: responses that come while an earlier response is missing
  //
  // Whether a response with this PSN is early. PSNs that will be sent again are not in flight, so not early.
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
  // Cost in flight of a packet with a full path MTU of payload, in bytes.
  uint32_t full_packet() const { return mtu() + sizes_.charge; }
  // Offset of the packet's payload in its message, in bytes.
  uint32_t offset_at(const queues::SendWqe& wqe, roce::Psn psn) const;
  Duration ack_timeout() const;
  roce::Headers headers_for(roce::Operation operation, roce::Psn psn) const;
  uint32_t flight_bytes(const queues::SendWqe& wqe, roce::Psn from, roce::Psn limit) const;

  QueuePair& qp_;
  const roce::Service service_;
  bool running_ = false;
  bool holds_new_ = false;
  bool heard_ = false;         // the peer has answered a packet, so it is connected to this QP
  bool lends_ = true;          // rendezvous is allowed: the peer has not failed to fetch a payload
  uint32_t direct_bytes_ = 0;  // bytes of the request at cursor_ that direct access has copied so far
  // ---- direct access (route.h)
  bool direct_refused_ = false;     // direct access has just failed for the request at cursor_
  bool drains_for_direct_ = false;  // nothing new is sent until all is answered, to allow direct access
  Connection connection_;
  uint32_t one_sided_run_ = 0;    // consecutive requests that went by packets, but could have gone directly
  uint64_t one_sided_bytes_ = 0;  // their bytes, since the latest DirectAccess::is_best_for()

  uint32_t head_ = 0;
  uint32_t cursor_ = 0;
  uint32_t assigned_ = 0;
  roce::Psn unacked_;
  roce::Psn next_;
  roce::Psn next_new_;  // the first PSN that no request owns
  roce::Psn highest_;   // after the highest PSN ever sent, or asked for by a READ

  Sizes sizes_;
  // flow_ sets the window and the pace. Without flow_ (lossless route, QpConfig::repairs is false, or no
  // memory), lossless_window_ sets the window.
  congestion::FixedWindow lossless_window_;
  std::unique_ptr<congestion::Flow> flow_;
  BlockPins pins_;
  uint32_t window_ = 0;    // max bytes in flight
  uint32_t inflight_ = 0;  // bytes in flight: sent, but neither acknowledged nor taken for lost
  // Bytes sent since the last request for an acknowledgement; an empty packet counts as one byte.
  uint32_t since_ack_request_ = 0;
  roce::Psn asked_;                 // after the last packet that requested an acknowledgement
  bool asks_next_ = false;          // the packet at next_ is sent again only to request an acknowledgement
  uint32_t runs_unasked_ = 2;       // runs per request for an acknowledgement, if the window has room
  uint32_t reads_outstanding_ = 0;  // READ requests and atomics that await a response

  // Status with which the request at cursor_ fails when its turn comes, as it cannot be sent; else empty.
  // Code that moves cursor_ resets this.
  std::optional<ibv_wc_status> stopped_;
  // A request that has failed while answers to earlier requests are still missing; else empty. The peer has
  // refused the request, or its response came early and could not be stored.
  std::optional<Failure> fails_at_;
  // PSN of a request that the peer has refused; else empty. The peer has answered all requests before that
  // PSN, and answers no more.
  std::optional<roce::Psn> refused_at_;
  // unacked_ when a later answer showed that the response there is lost. Each position counts once.
  std::optional<roce::Psn> implied_loss_at_;
  // Identifies the accesses that may still use the key that the request at cursor_ has invalidated
  // (KeyTable::users()); 0: none. Is not 0 only from the execution of that request until the request is
  // marked as executed.
  uint64_t users_ = 0;

  // ---- selective repair, where packets may be lost
  // Which request packets the peer has, from unacked_ on.
  LossScoreboard scoreboard_;
  // Which responses to READs and atomics have come. PSNs of other requests count as arrived.
  LossScoreboard answers_;
  // Responses before this PSN may have waited for a lost request, so their RTT is not measured.
  roce::Psn held_up_;
  bool tells_arrivals_ = false;   // the peer has sent a SACK, so it keeps early packets
  bool heard_due_ = false;        // a confirmation of SACKs is due
  uint8_t heard_sent_ = 0;        // confirmations sent
  bool probe_due_ = false;        // a probe is due: the last packet again, to get an answer
  bool asked_for_parts_ = false;  // a missing part of a READ's data was asked for again
  Part asked_again_;              // the latest of these parts
  RepeatedReads latest_reads_;
  uint32_t reads_not_named_ = 0;    // new READ requests since the last RepeatedReads packet
  uint32_t reads_to_name_ = 0;      // further READ requests to put into RepeatedReads packets, after a loss
  uint8_t probes_ = 0;              // probe timeouts since the last answer
  uint8_t disorder_ = 0;            // how often packets that were taken for lost were only late
  TimePoint disorder_counts_at_{};  // disorder_ does not rise before this time
  uint8_t losses_ = 0;              // round trips with true losses, since disorder_ changed
  TimePoint loss_counts_at_{};      // losses_ does not rise before this time
  TimePoint probe_deadline_ = kNever;
  TimePoint repaired_at_{};     // latest send time of a retransmission that has arrived
  TimePoint overdue_ = kNever;  // when the next hole is old enough to be taken for lost

  TimePoint ack_deadline_ = kNever;
  TimePoint rnr_deadline_ = kNever;
  TimePoint paced_until_ = kNever;  // the pace allows no packet before this time; kNever: it allows one
  TimePoint sending_at_{};          // time of the present or latest transmit()
  bool is_patient_ = false;         // a timeout has come, and no answer since
  uint32_t put_ = 0;                // PacketSink::put_so_far() at a timeout
  bool looks_late_ = false;         // at the latest timeout, the peer had not taken these entries
  uint8_t retries_left_ = 0;
  uint8_t rnr_retries_left_ = 0;
};

}  // namespace verbena::transport
