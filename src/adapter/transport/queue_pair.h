// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <infiniband/verbs.h>

#include "adapter/congestion/algorithm.h"
#include "adapter/memory/key_table.h"
#include "adapter/memory/region.h"
#include "adapter/queues/completion_queue.h"
#include "adapter/queues/shared_receive_queue.h"
#include "adapter/queues/work_queue.h"
#include "adapter/transport/counters.h"
#include "adapter/transport/gather.h"
#include "adapter/transport/incast.h"
#include "adapter/transport/packet_io.h"
#include "adapter/transport/route.h"
#include "base/cache_line.h"
#include "base/intrusive_list.h"
#include "base/log.h"
#include "base/spin_lock.h"
#include "base/time.h"
#include "observe/trace/recorder.h"
#include "wire/roce/aeth.h"

namespace verbena::transport {

// Gives a QP the receive requests for its incoming messages, from its own receive queue or from a shared one.
//
// A request of the QP's own queue stays in the queue's ring until its message is complete. A request of a
// shared queue is taken out of that queue, and held here until its message is complete. Meanwhile, messages
// of other QPs take the next requests of the shared queue (IBTA volume 1, 10.2.9).
//
// Threads: the caller holds the shard's lock, except for posting to own() (under QueuePair::recv_lock()).
class Receives {
 public:
  // `shared` may be null. `cq` and `pd` are the QP's own. A shared queue has its own PD, which replaces `pd`.
  // A shared queue for XRC or tag matching may have its own CQ, which replaces `cq`.
  Receives(queues::RecvQueue own, queues::SharedReceiveQueue* shared, queues::CompletionQueue* cq,
           memory::PdId pd)
      : own_(std::move(own)), shared_(shared), cq_(cq), pd_(pd) {
    if (shared_ != nullptr) held_ = std::make_unique<queues::HeldReceive>();
  }

  queues::RecvQueue& own() { return own_; }
  const queues::RecvQueue& own() const { return own_; }
  queues::SharedReceiveQueue* shared() { return shared_; }

  // XRC: takes receive requests from `shared` from now on, the queue whose number is in the peer's packet.
  // REQUIRES: no message is being received
  void select(queues::SharedReceiveQueue& shared) {
    shared_ = &shared;
    if (held_ == nullptr) held_ = std::make_unique<queues::HeldReceive>();
  }
  // Call before a shared queue is destroyed. Drops a request that was taken from that queue and is held here.
  void forget(const queues::SharedReceiveQueue& shared) {
    if (shared_ != &shared) return;
    shared_ = nullptr;
    holding_ = false;
  }

  // The tagged buffers, if the queue is for tag matching; else nullptr.
  queues::TagList* tags() const { return shared_ != nullptr ? shared_->tags() : nullptr; }
  // Takes the oldest tagged buffer with a matching tag as the receive request of the current message. Returns
  // false if no buffer matches. REQUIRES: tags() is not null, and no request is held
  bool take_tagged(uint64_t tag) { return holding_ = tags()->take(tag, *held_); }

  // Returns the receive request of the current message, or of the next one if none has begun. Takes it from a
  // shared queue if needed. Returns nullptr if none is posted.
  const queues::RecvWqe* current() {
    if (shared_ == nullptr) [[likely]]
      return own_.empty() ? nullptr : &own_.at(own_.consumed());
    if (!holding_) holding_ = shared_->take(*held_);
    return holding_ ? &held_->wqe : nullptr;
  }

  // Whether current() would return a request. Takes nothing from a shared queue.
  bool any() { return shared_ == nullptr ? !own_.empty() : holding_ || shared_->any(); }

  // Frees the current request, whose message is complete or has failed. REQUIRES: current() was not null
  void finish() {
    if (shared_ == nullptr) [[likely]] {
      own_.consume();
    } else {
      holding_ = false;
    }
  }

  // Whether a request must be flushed: one in the QP's own queue, or the one taken from a shared queue.
  // Requests that are still in a shared queue stay there.
  bool any_to_flush() const { return holding_ || !own_.empty(); }

  void clear() {
    own_.clear();
    holding_ = false;
  }

  // The protection domain of the keys in receive requests, and the completion queue for these requests.
  memory::PdId pd() const { return shared_ != nullptr ? shared_->pd() : pd_; }
  queues::CompletionQueue* cq() const {
    return shared_ != nullptr && shared_->cq() != nullptr ? shared_->cq() : cq_;
  }

 private:
  queues::RecvQueue own_;
  queues::SharedReceiveQueue* shared_;
  queues::CompletionQueue* const cq_;
  const memory::PdId pd_;
  std::unique_ptr<queues::HeldReceive> held_;  // room for a request of the shared queue
  bool holding_ = false;
};

struct OwnerAnswer;
class QueueOwners;
struct TaggedMessage;

// Receives asynchronous events of a QP (IBTA volume 1, 11.6.3). Called with the shard's lock held.
class QpEventListener {
 public:
  virtual ~QpEventListener() = default;
  virtual void on_qp_event(ibv_event_type event) = 0;
};

// Attributes that ibv_modify_qp() sets. Timers and counts are encoded as in struct ibv_qp_attr.
struct QpAttributes {
  roce::Path path;
  roce::Qpn destination;
  uint32_t path_mtu = 1024;  // bytes
  uint32_t qkey = 0;
  roce::Psn receive_psn;
  roce::Psn send_psn;
  memory::Access access = 0;
  uint8_t max_rd_atomic = 0;       // READs and atomics in flight as the requester
  uint8_t max_dest_rd_atomic = 0;  // as the responder
  uint8_t min_rnr_timer = 0;       // code of the wait that RNR NAKs ask for
  uint8_t timeout = 0;             // ACK timeout: 4.096 us * 2^timeout; 0: none
  uint8_t retry_count = 0;
  uint8_t rnr_retry = 0;        // 7: without limit
  bool notify_drained = false;  // IBV_QP_EN_SQD_ASYNC_NOTIFY: raise an event when draining in SQD ends
};

// Max time for which an XRC target asks its requester to wait, while the process that owns a shared receive
// queue does not answer forwarded requests.
inline constexpr Duration kLongestPatience = std::chrono::seconds(4);

// Parameters of a QP that never change.
struct QpConfig {
  roce::Qpn qpn;
  ibv_qp_type type{};  // for error texts
  memory::PdId pd = 0;
  bool signal_all = false;  // every send request is signaled (sq_sig_all)
  queues::CompletionQueue* send_cq = nullptr;
  queues::CompletionQueue* recv_cq = nullptr;
  queues::SharedReceiveQueue* srq = nullptr;  // instead of a receive queue of its own
  memory::KeyTable* keys = nullptr;
  // XRC targets: the process's shared receive queues, and the domain whose queues the QP may use.
  const queues::SharedReceiveQueueTable* srqs = nullptr;
  uint64_t xrc_domain = 0;
  Routes* routes = nullptr;       // null: packets are lost, as without a wire
  QueueOwners* owners = nullptr;  // XRC targets: forwards requests to other processes; null: cannot
  QpEventListener* listener = nullptr;
  QpCounters* counters = nullptr;
  QpMoreCounters* more_counters = nullptr;  // null: not counted
  PathNumbers* path_numbers = nullptr;      // null: not recorded
  // Where a responder stores its protocol::ResponderProgress before each acknowledgement; null: nowhere.
  std::atomic<uint64_t>* progress = nullptr;
  // Min ACK timeout; a program may ask for as little as 8 us. Threads share processors, so the peer's thread
  // may not get to run for some milliseconds. With a shorter timeout, such a pause would count as a loss.
  Duration least_ack_timeout = std::chrono::milliseconds(16);
  // Congestion control on routes that may lose packets.
  congestion::Kind congestion = congestion::Kind::kFixed;
  // Whether to use congestion control, SACKs and receiver reports, and to send only missing packets again. If
  // false, the QP uses a FixedWindow, and after a loss sends everything again from the lost packet on, as
  // adapters do.
  bool repairs = true;
  IncastMeter* incast = nullptr;     // null: senders are not counted
  trace::Recorder* trace = nullptr;  // null: no trace
};

enum class TransmitResult : uint8_t {
  kIdle,   // nothing to send until something happens
  kMore,   // the budget is used up, and there is more
  kPaced,  // there is more, from deadline() on
  kBusy,   // the route is full
};

// Whether the QP has accepted a packet, or why it has dropped it. Packets that the protocol answers with a
// NAK are accepted, too.
enum class Verdict : uint8_t { kAccepted, kNotReady, kWrongService, kBadPkey, kBadSource };

// Two sizes that do not match, so that a request was refused. Error texts name both sizes. `bytes` is the
// size of what came, `room` the size that was available.
struct Misfit {
  enum class Kind : uint8_t {
    kNone,
    kPathMtu,        // `bytes` of a packet's payload, `room`: the queue pair's path MTU
    kReceiveBuffer,  // `bytes` of a complete message, `room` in the receive request's buffers
    kPartOfMessage,  // `bytes` of a message received so far, `room` in the receive request's buffers
  };
  Kind kind = Kind::kNone;
  uint64_t bytes = 0;
  uint64_t room = 0;
};

// Base class of queue pairs: the part that all transport services share. Pure: it gets packets and the time
// from its caller, and sends packets by its Route.
//
// Threads: callers hold the lock of the QP's shard (docs/glossary.md), with two exceptions. Any thread may
// post (to send_queue() and recv_queue(), under send_lock() and recv_lock()) and read state().
class alignas(kCacheLine) QueuePair {
 public:
  QueuePair(const QpConfig& config, queues::SendQueue send_queue, queues::RecvQueue recv_queue)
      : config_(config),
        send_queue_(std::move(send_queue)),
        receives_(std::move(recv_queue), config.srq, config.recv_cq, config.pd) {}
  virtual ~QueuePair() = default;
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  const QpConfig& config() const { return config_; }
  queues::SendQueue& send_queue() { return send_queue_; }
  queues::RecvQueue& recv_queue() { return receives_.own(); }
  Receives& receives() { return receives_; }
  memory::KeyFinder& keys() const { return keys_; }
  SpinLock& send_lock() { return send_lock_; }
  SpinLock& recv_lock() { return recv_lock_; }

  ibv_qp_state state() const { return state_.load(std::memory_order_acquire); }
  QpAttributes& attributes() { return attributes_; }
  const QpAttributes& attributes() const { return attributes_; }

  // The route of the QP's packets: found at the transition to RTR, and kept until RESET or reroute(). Each
  // request of a datagram QP has its own destination, so the route of a datagram QP changes with its
  // requests.
  const Route& route() const { return *route_; }
  // Call when there may be a better route to the peer. Looks up the route again, but not before packets in
  // flight have arrived: packets on the new route could overtake them. A UC QP does so only before its first
  // packet, as nothing tells when its packets have arrived. REQUIRES: the caller then calls Shard::touched()
  virtual void reroute() {}

  // Call when a packet of the connected peer has come over shared memory, which means that both sides use
  // shared memory. peer_is_local() is then true until this QP looks up its route again.
  void note_local_peer() { peer_is_local_ = true; }
  bool peer_is_local() const { return peer_is_local_; }

  // Publishes `count` receive requests that were filled in. Returns true if the caller must ring the shard's
  // doorbell: a request of the peer waits for a receive request, or the QP is in ERR and must flush receive
  // requests. (After posting sends, the caller always rings.)
  //
  // A thread that changes the state does not wait for posting threads: they may be inside a batch
  // (ibv_wr_start), which only they can end. So a thread that saw the state before ERR may still publish. The
  // posting thread publishes, then reads the state; fail() and enter() store the state, then look for
  // requests. All four accesses are sequentially consistent, so that one side sees the other: either the
  // flush finds the request, or the poster sees ERR and rings. With plain stores both could miss, as each
  // store may wait in its processor's store buffer.
  bool publish_receives(uint32_t count) {
    recv_queue().publish_and_look(count);
    return state_.load(std::memory_order_seq_cst) == IBV_QPS_ERR ||
           awaits_receive_.load(std::memory_order_seq_cst);
  }
  // Sets whether a request of the peer waits for a receive request. While it does, publish_receives() returns
  // true. The caller must look for receive requests after this call, as one may have been published just
  // before.
  void await_receive(bool waits) {
    if (awaits_receive_.load(std::memory_order_relaxed) != waits) awaits_receive_.store(waits);
  }

  // Enters a state that check_transition() allows, with attributes() already set. RESET drops all requests
  // without completions; ERR flushes them.
  void enter(ibv_qp_state next, protocol::TraceCause cause = protocol::TraceCause::kAsked);
  // Sets whether to trace each request and packet, or only rare events.
  void trace_details(bool on) {
    details_ = on ? config_.trace : nullptr;
    traced_posts_ = send_queue_.posted();
  }
  // Traces a packet to this QP before the packet is examined. trace_refusal() traces that the packet was
  // dropped, and why.
  void trace_received(const IncomingPacket& packet) {
    if (details_ != nullptr) [[unlikely]]
      trace_arrived(packet);
  }
  void trace_refusal(Verdict verdict, const roce::Headers& headers) const;
  // Traces the requests posted since the last call.
  void trace_posted() {
    if (details_ != nullptr) [[unlikely]]
      trace_new_requests();
  }

  // The completion counters that are attached to the QP; null for kinds of requests that are not counted.
  CompletionCounts completion_counts() const { return counts_ != nullptr ? *counts_ : CompletionCounts{}; }
  void set_completion_counts(const CompletionCounts& counts) {
    counts_ = std::make_unique<CompletionCounts>(counts);
  }

  // Handles a packet that came for the QP.
  virtual Verdict on_packet(const IncomingPacket& packet, TimePoint now) = 0;
  // Fast path of on_packet() for a PlainSend over a lossless route. Returns nullopt if the caller must use
  // on_packet() instead; the packet has had no visible effect then.
  virtual std::optional<Verdict> on_plain_send(const PlainSend&, const roce::Path&, TimePoint) {
    return std::nullopt;
  }

  // Sends what may be sent now, at most `budget` packets or super-packets. If `with_acknowledgements` is
  // false, keeps back an acknowledgement that may wait. The application may send a message with its next
  // verb, and that message then carries the acknowledgement.
  virtual TransmitResult transmit(TimePoint now, uint32_t budget, bool with_acknowledgements) = 0;

  // Fast path of transmit(): sends posted requests, and an acknowledgement that is due. Returns false if the
  // caller must call transmit() for the rest.
  virtual bool send_at_once(TimePoint) { return false; }

  // Sends an acknowledgement that is due, if it may leave before everything else that the QP has to send.
  virtual void transmit_acknowledgement() {}

  // Whether transmit() has something to do. has_acknowledgement() reports an acknowledgement that may wait,
  // has_urgent() reports everything else.
  virtual bool has_urgent() const = 0;
  virtual bool has_acknowledgement() const = 0;
  // Whether sending may wait to coalesce more requests: the next request is small, and earlier requests are
  // in flight. The application probably waits for these to complete, so it will soon call a verb again, and
  // that call sends.
  virtual bool may_gather() const { return false; }
  // Whether received packets need their traffic class and hop limit: for a GRH, or for ECN marks.
  virtual bool wants_ip_details() const { return false; }
  // Whether the peer may execute READs and WRITEs in our memory directly now, if our keys allow it.
  virtual bool takes_direct_access() const { return false; }
  // Whether packets of this QP are in flight and not yet acknowledged or answered.
  virtual bool has_outstanding() const = 0;

  // Call after on_packet(), transmit() and on_timer(), when the QP's state is consistent. If a completion
  // queue in error (it was full) has lost a completion of this QP, the QP enters ERR: its program does not
  // learn all results (IBTA volume 1, 11.6.3.2: local work queue catastrophic error).
  void answer_lost_completions() {
    if (completion_lost_) fail_for_lost_completions();
  }
  bool has_lost_completions() const { return completion_lost_; }

  // When to call on_timer(); kNever: not at all.
  virtual TimePoint deadline() const = 0;
  virtual void on_timer(TimePoint now) = 0;

  // XRC targets: called when the process that owns a shared receive queue has answered forwarded requests, or
  // has ended. on_owner_gone() gets the slot of the process, and the code of the NAK to send.
  virtual void on_owner_answer(const OwnerAnswer&) {}
  virtual void on_owner_gone(uint32_t, roce::NakCode) {}

  // The next PSN to send and the next expected PSN, as ibv_query_qp() reports them.
  virtual roce::Psn next_send_psn() const = 0;
  virtual roce::Psn next_receive_psn() const = 0;
  // The receive PSN as stored in the status page (protocol::kQpReceivePsn).
  virtual uint64_t receive_progress() const { return next_receive_psn().value(); }

  // flush_send_queue() and flush_recv_queue() complete all requests in their queue with IBV_WC_WR_FLUSH_ERR.
  // REQUIRES: the state is ERR, or SQE for the send queue
  void flush_send_queue();
  void flush_recv_queue();

  // The memory windows bound to the QP. They must be unbound before the QP is destroyed.
  memory::BoundWindows& bound_windows() { return bound_windows_; }

  // Place of the QP in the shard's lists: QPs that have something to send, QPs that owe an acknowledgement,
  // and QPs with new requests.
  ListHook ready_hook;
  ListHook acknowledgement_hook;
  std::atomic<bool> doorbell_rung{false};
  std::atomic<QueuePair*> doorbell_next{nullptr};
  // Place of the QP in the shard's timer wheel, and the time for which its timer is set. The time is kNever
  // while the QP is not in the wheel.
  ListHook timer_hook;
  TimePoint timer_armed_for = kNever;

 protected:
  friend class CongestionNotices;
  friend class Requester;
  friend class Responder;
  friend class Inbound;

  bool has_to_flush() const { return !send_queue_.empty() || receives_.any_to_flush(); }
  bool send_queue_empty() const { return send_queue_.empty(); }

  // Returns the route to the sender of a packet; see Routes::find_known().
  const Route& known_route(const roce::Path& path, roce::Qpn destination) const {
    return config_.routes != nullptr ? config_.routes->find_known(path, destination) : no_route();
  }
  // Looks up the route to `destination`, and sends the QP's packets by it from now on.
  void find_route(const roce::Path& path, roce::Qpn destination) {
    go_by(config_.routes != nullptr ? config_.routes->find(path, destination) : no_route());
  }
  void go_by(const Route& route) {
    route_ = &route;
    peer_is_local_ = false;
  }
  // Sends a packet by the QP's route, counts its octets and traces it.
  SendStatus send_out(const OutgoingPacket& packet) {
    const SendStatus status = route_->sink->send(packet);
    if (status == SendStatus::kSent) [[likely]]
      count(kSentOctets, octets_of(packet));
    if (details_ != nullptr) [[unlikely]]
      trace_sent(packet, status);
    return status;
  }
  SendStatus send_out(const PlainSend& message) {
    const SendStatus status = route_->sink->send_plain(attributes_.path, message);
    if (status == SendStatus::kSent) [[likely]]
      count(kSentOctets, octets_of(attributes_.path, message));
    if (details_ != nullptr) [[unlikely]]
      trace_sent(message, status);
    return status;
  }
  // Sends a packet train by the QP's route and counts its octets. REQUIRES: packets are not traced
  TrainSent send_out(const PacketTrain& train) {
    const TrainSent sent = route_->sink->send_train(train);
    count(kSentOctets, uint64_t{sent.packets} * (least_octets(attributes_.path) + train.packet_payload));
    return sent;
  }
  // Whether each packet is traced.
  bool traces_packets() const { return details_ != nullptr; }
  // Sends the connected peer a control packet. A control packet belongs to no message: it is a CNP, or has a
  // vendor opcode that only Verbena understands.
  SendStatus send_word(uint8_t opcode, roce::Psn psn, ConstBytes payload = {});
  // Sends a control packet to any QP. Packet captures also show the source QP, which most control packets do
  // not carry on the wire.
  SendStatus send_word(const Route& route, const roce::Path& path, roce::Headers headers, ConstBytes payload);
  // Keeps the peer's text that says why it refuses our oldest request, for the error message. The peer is on
  // this host, but its text is not trusted: keeps at most 400 bytes, and replaces unprintable ones.
  void hear_refusal(ConstBytes words);
  // Counts a received packet for the IncastMeter. Returns true if the packet's sender should now get a report
  // on the other senders to this process; never for a lossless route.
  bool has_news_of_incast(IncastShare& share, const roce::Packet& packet, TimePoint now) {
    return config_.incast != nullptr && !route_->traits.lossless &&
           share.on_packet(*config_.incast, packet.payload.size(), now);
  }

  // Whether a packet came from our peer's address to ours, as the kernel's rxe checks. The network interface
  // must match, too, if both paths have one (link-local addresses). Interface index 0 means that the
  // interface is unknown.
  bool is_from_peer(const roce::Path& incoming) const {
    const roce::Path& ours = attributes_.path;
    if (incoming.source != ours.destination || incoming.destination != ours.source) return false;
    return ours.interface_index == incoming.interface_index || ours.interface_index == 0 ||
           incoming.interface_index == 0;
  }
  bool may(memory::Access access) const { return (attributes_.access & access) != 0; }
  // Returns the PD and QPN against which the keys that the peer uses are checked. In XRC, the PD is that of
  // the shared receive queue (IBTA volume 1, annex A14).
  RemoteUser remote_user() const {
    return {config_.srqs != nullptr ? receives_.pd() : config_.pd, config_.qpn};
  }
  // XRC: makes the peer's messages take receive requests from the shared receive queue with this number.
  // `in_message`: a message has begun, so its queue must not change. Returns false if the message began with
  // another queue, or if this process has no such queue in the QP's XRC domain.
  bool select_receives(uint32_t srq_number, bool in_message);
  // XRC: whether requests to this SRQ number must be forwarded, because the number belongs to another
  // process. The queue need not exist. Returns false if this QP cannot forward.
  bool is_elsewhere(uint32_t srq_number) const {
    return config_.owners != nullptr && !config_.srqs->is_own(srq_number);
  }

  virtual void on_enter(ibv_qp_state from, ibv_qp_state to) = 0;

  // Enters ERR because of an error on the wire or in memory, and then raises `event`, if any. Does nothing if
  // the QP is in ERR already.
  void fail(std::optional<ibv_event_type> event = std::nullopt);

  // Completes the oldest request of the send queue, and frees its slot. A completion entry is written only if
  // the request is signaled or has failed.
  void complete_send(const queues::SendWqe& wqe, ibv_wc_status status);
  // Whether success of the request is invisible to the program: it is unsignaled, and no completion counter
  // is attached. Then consume_in_silence() may replace complete_send(), which handles such requests, too.
  bool ends_in_silence(const queues::SendWqe& wqe) const {
    return !config_.signal_all && (wqe.flags & (IBV_SEND_SIGNALED | queues::kTagMatchingRequest)) == 0 &&
           counts_ == nullptr;
  }
  // Frees the slots of the oldest `requests` requests of the send queue, which have succeeded;
  // ends_in_silence() is true for each. `sends` of them were SENDs.
  void consume_in_silence(uint32_t requests, uint32_t sends) {
    count(kSends, sends);
    send_queue_.consume(requests);
  }
  // Completes the oldest request of the send queue with the error `status`, and enters SQE: only the send
  // queue stops (IBTA volume 1, 10.3.1).
  void fail_send(ibv_wc_status status) {
    complete_send(send_queue_.at(send_queue_.consumed()), status);
    enter(IBV_QPS_SQE, protocol::TraceCause::kFailure);
  }
  // Flushes the queues that the state has stopped: the send queue in SQE, both in ERR.
  void flush_stopped() {
    if (state() == IBV_QPS_SQE || state() == IBV_QPS_ERR) flush_send_queue();
    if (state() == IBV_QPS_ERR) flush_recv_queue();
  }
  // Completes a request that fetch_rendezvous() has posted. If it is the READ, writes the completion of the
  // matched receive buffer, with `status`. If it is the SEND, does nothing, as the program gets no completion
  // for it.
  void complete_rendezvous(const queues::SendWqe& wqe, ibv_wc_status status);
  // Completes the current receive request with the result in `wc`. REQUIRES: receives().current() was not
  // null
  void complete_recv(ibv_wc& wc, bool solicited, const Misfit& misfit = {});
  // Like complete_recv() with success, for a SEND without immediate data or invalidation.
  void complete_plain_receive(uint32_t bytes, bool solicited);
  // Like complete_plain_receive() for several SENDs; the caller has called receives().finish() for each of
  // them.
  void complete_plain_receives(std::span<const queues::CompletionQueue::Differing> received);
  // Like complete_recv(), for a receive buffer whose tag matched. The message's data is in the buffer, or a
  // READ is fetching it.
  void complete_match(const TaggedMessage& message, ibv_wc_status status, uint8_t flags, uint32_t bytes);
  // Writes the completion of a match before the message's data has come. The receive request stays current.
  void announce_match(const TaggedMessage& message) {
    complete_tagged(receives_.current()->wr_id, IBV_WC_SUCCESS, IBV_WC_TM_MATCH, 0, message);
  }
  void count(QpCounter counter, uint64_t amount = 1) {
    if (counter < kFirstMoreCounter) {
      transport::count(*config_.counters, counter, amount);
    } else if (config_.more_counters != nullptr) {
      transport::count(*config_.more_counters, counter - kFirstMoreCounter, amount);
    }
  }
  void count_received(const IncomingPacket& incoming) {
    count(kReceivedPackets, incoming.packet.count);
    count(kReceivedBytes, incoming.payload_bytes());
    count(kReceivedOctets, octets_of(incoming));
  }
  void count_on_path(PathNumber which, uint64_t amount = 1) {
    if (config_.path_numbers != nullptr) transport::count(*config_.path_numbers, which, amount);
  }
  void emit(ibv_event_type event) {
    note(trace::Kind::kAsyncEvent, {event});
    config_.listener->on_qp_event(event);
  }

  // Traces a rare event. note_frequent() traces an event that the network can make frequent.
  void note(trace::Kind kind, const trace::Recorder::Numbers& numbers = {}) const {
    if (config_.trace != nullptr) config_.trace->note(config_.qpn, kind, numbers);
  }
  void note_frequent(trace::Kind kind, const trace::Recorder::Numbers& numbers = {}) const {
    if (config_.trace != nullptr) config_.trace->note_frequent(config_.qpn, kind, numbers);
  }
  void note_dropped(protocol::TraceDrop why, const roce::Headers& headers) const {
    note_frequent(trace::Kind::kDropped, {static_cast<uint64_t>(why), headers.opcode, headers.psn.value()});
  }
  // Returns whether to log that a message was dropped because of `why`. Used by services that send no NAKs.
  // Returns true only if the log has `level`, and only for the first such message until RESET, as a peer may
  // send any number.
  bool is_drop_to_be_said(protocol::TraceDrop why, LogLevel level) {
    if (log_level() < level) [[likely]]
      return false;
    const uint32_t bit = uint32_t{1} << static_cast<uint32_t>(why);
    const bool is_first = (drops_said_ & bit) == 0;
    drops_said_ |= bit;
    return is_first;
  }
  // Traces the route that was found.
  void note_route() const;

 private:
  void note_entered(ibv_qp_state from, ibv_qp_state to, protocol::TraceCause cause) const;
  void lose_completion(bool of_receives);
  // REQUIRES: counts_ is not null
  void count_completion(CountedRequest kind, ibv_wc_status status, uint32_t bytes) const;
  void count_send_completion(ibv_wc_opcode opcode, ibv_wc_status status, uint32_t bytes) const;
  void trace_packet(trace::Kind kind, const roce::Headers& headers, size_t bytes, uint32_t count) const;
  void trace_messages(trace::Kind kind, const roce::Headers& headers,
                      std::span<const uint8_t> messages) const;
  void trace_sent(const OutgoingPacket& packet, SendStatus status) const;
  void trace_sent(const PlainSend& message, SendStatus status) const;
  void trace_arrived(const IncomingPacket& incoming) const;
  void trace_new_requests();
  void trace_completion(uint64_t wr_id, ibv_wc_status status, uint32_t opcode, uint32_t bytes) const {
    details_->detail(config_.qpn, trace::Kind::kCompletion,
                     {uint64_t{status} | uint64_t{opcode} << 32, wr_id, bytes});
  }
  void complete_tagged(uint64_t wr_id, ibv_wc_status status, uint8_t flags, uint32_t bytes,
                       const TaggedMessage& message);
  void count_send(ibv_wc_opcode opcode, ibv_wc_status status);
  void fail_for_lost_completions() {
    completion_lost_ = false;
    fail(IBV_EVENT_QP_FATAL);
  }
  void say_failed(const queues::SendWqe& wqe, ibv_wc_status status) const;

  const QpConfig config_;
  QpAttributes attributes_;
  const Route* route_ = &no_route();
  bool peer_is_local_ = false;                      // as seen on the current route
  trace::Recorder* details_ = nullptr;              // null: packets are not traced
  std::unique_ptr<const CompletionCounts> counts_;  // null: no completion counter is attached
  uint32_t traced_posts_ = 0;                       // index in the send queue
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  std::atomic<bool> awaits_receive_{false};
  SpinLock send_lock_;
  SpinLock recv_lock_;
  queues::SendQueue send_queue_;
  Receives receives_;
  mutable memory::KeyFinder keys_{config_.keys};  // mutable: its cache does not change its results
  memory::BoundWindows bound_windows_;
  bool completion_lost_ = false;
  bool overrun_said_ = false;  // a lost completion was logged; once until RESET
  uint32_t drops_said_ = 0;    // drops logged since RESET: a bit for each protocol::TraceDrop
  std::string peer_words_;     // from hear_refusal()
};

}  // namespace verbena::transport
