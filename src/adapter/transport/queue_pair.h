// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include <infiniband/verbs.h>

#include "adapter/congestion/kind.h"
#include "adapter/memory/key_table.h"
#include "adapter/queues/completion_queue.h"
#include "adapter/queues/work_queue.h"
#include "adapter/transport/completion_counts.h"
#include "adapter/transport/counters.h"
#include "adapter/transport/gather.h"
#include "adapter/transport/incast_meter.h"
#include "adapter/transport/misfit.h"
#include "adapter/transport/octets.h"
#include "adapter/transport/packet_io.h"
#include "adapter/transport/path_numbers.h"
#include "adapter/transport/receives.h"
#include "adapter/transport/route.h"
#include "base/cache_line.h"
#include "base/intrusive_list.h"
#include "base/log.h"
#include "base/spin_lock.h"
#include "base/time.h"
#include "observe/trace/recorder.h"
#include "wire/roce/aeth.h"

namespace verbena::transport {

struct OwnerAnswer;
class QueueOwners;
struct TaggedMessage;

// Hears of asynchronous events of a QP (IBTA volume 1, 11.6.3). Called by the shard's lock holder.
class QpEventListener {
 public:
  virtual ~QpEventListener() = default;
  virtual void on_qp_event(ibv_event_type event) = 0;
};

// What modify_qp sets and packets obey.
struct QpAttributes {
  roce::Path path;
  roce::Qpn destination;
  uint32_t path_mtu = 1024;  // bytes
  uint32_t qkey = 0;
  roce::Psn receive_psn;
  roce::Psn send_psn;
  memory::Access access = 0;
  uint8_t max_rd_atomic = 0;
  uint8_t max_dest_rd_atomic = 0;
  uint8_t min_rnr_timer = 0;
  uint8_t timeout = 0;
  uint8_t retry_count = 0;
  uint8_t rnr_retry = 0;
  bool notify_drained = false;  // IBV_QP_EN_SQD_ASYNC_NOTIFY: the end of draining in SQD is an event
};

// For how long at most an XRC target asks for patience with the process that owns a queue, and is silent.
inline constexpr Duration kLongestPatience = std::chrono::seconds(4);

// What a QP is made of and with.
struct QpConfig {
  roce::Qpn qpn;
  ibv_qp_type type{};  // for messages
  memory::PdId pd = 0;
  bool signal_all = false;
  queues::CompletionQueue* send_cq = nullptr;
  queues::CompletionQueue* recv_cq = nullptr;
  queues::SharedReceiveQueue* srq = nullptr;  // in place of a receive queue of its own
  memory::KeyTable* keys = nullptr;
  // XRC targets: the shared receive queues there are, and the domain whose queues it may deliver to.
  const queues::SharedReceiveQueueTable* srqs = nullptr;
  uint64_t xrc_domain = 0;
  Routes* routes = nullptr;       // null: packets go nowhere, as without a wire
  QueueOwners* owners = nullptr;  // where queues of other processes are; null: the domain is in no other
  QpEventListener* listener = nullptr;
  QpCounters* counters = nullptr;
  QpMoreCounters* more_counters = nullptr;  // null: nobody looks
  PathNumbers* path_numbers = nullptr;      // null: nobody looks
  // Where a responder stores its protocol::ResponderProgress before each acknowledgement; null: nowhere.
  std::atomic<uint64_t>* progress = nullptr;
  // No ACK timeout is shorter, though a program may ask for as little as 8 us: threads share processors, and
  // what answers may not run for some milliseconds. Below that a busy machine's scheduling looks like loss.
  Duration least_ack_timeout = std::chrono::milliseconds(16);
  // How reliable services find out what a way that may lose packets carries.
  congestion::Kind congestion = congestion::Kind::kFixed;
  // Whether they find it out at all and send again just what is missing. Otherwise a fixed window is all they
  // know, and everything from a loss on is sent again, as between adapters.
  bool repairs = true;
  IncastMeter* incast = nullptr;     // null: nobody counts its senders
  trace::Recorder* trace = nullptr;  // null: nobody remembers what happens to it
};

enum class TransmitResult : uint8_t {
  kIdle,   // nothing to send until something happens
  kMore,   // the budget is used up, there is more
  kPaced,  // there is more, from deadline() on
  kBusy,   // its route is full
};

// Why a packet that reached its QP was not taken; kAccepted counts also what the protocol then answers with a
// NAK.
enum class Verdict : uint8_t { kAccepted, kNotReady, kWrongService, kBadPkey, kBadSource };

// A queue pair: the part that all transport services share. Pure: packets in, packets out, time passed in.
//
// Who may call: everything is for the shard's lock holder, but posting (send_queue, recv_queue under their
// locks, from any thread) and state(), which anyone may read.
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
  // For the shard's lock holder.
  memory::KeyFinder& keys() const { return keys_; }
  SpinLock& send_lock() { return send_lock_; }
  SpinLock& recv_lock() { return recv_lock_; }

  ibv_qp_state state() const { return state_.load(std::memory_order_acquire); }
  QpAttributes& attributes() { return attributes_; }
  const QpAttributes& attributes() const { return attributes_; }

  // What its packets leave by: found at the transition to RTR, and the same until RESET or reroute(). Of a
  // datagram QP, where each request has an address of its own, that of the latest.
  const Route& route() const { return *route_; }
  // There may be a better way to its peer now. It is looked for when nothing is under way that what goes by
  // the new one could overtake. REQUIRES: Shard::touched() follows
  virtual void reroute() {}

  // A packet of the connected peer has come by memory: its route is by memory, as ours is, until it is RESET.
  void note_local_peer() { peer_is_local_ = true; }
  bool peer_is_local() const { return peer_is_local_; }

  // Publishes receive requests that were filled in. True: the shard must be rung, as a request of the peer
  // waits for them, or nothing else will flush them. (Posting sends rings always.)
  //
  // A thread that changes the state does not wait for those that post: they may be in the middle of a batch
  // (ibv_wr_start), which only their own thread can end. So a request may be published by a thread that saw
  // the state before ERR. It publishes and then looks at the state; fail() and enter() store the state and
  // then look for requests. All four are sequentially consistent, so that one of the two sees the other:
  // either the flush finds the request, or the poster finds ERR and rings. With two plain stores, each held
  // back in its processor's store buffer, both could miss.
  bool publish_receives(uint32_t count) {
    recv_queue().publish_and_look(count);
    return state_.load(std::memory_order_seq_cst) == IBV_QPS_ERR ||
           awaits_receive_.load(std::memory_order_seq_cst);
  }
  // A request of the peer waits for a receive request, and a thread that posts one rings. The caller looks
  // for receive requests afterwards, as fail() does.
  void await_receive(bool waits) {
    if (awaits_receive_.load(std::memory_order_relaxed) != waits) awaits_receive_.store(waits);
  }

  // Enters a state that check_transition() allows, with attributes() already set. To RESET: forgets all
  // requests without completions. To ERR: flushes.
  void enter(ibv_qp_state next, protocol::TraceCause cause = protocol::TraceCause::kAsked);
  // Whether each request and packet is traced, too; else only what is rare.
  void trace_details(bool on);
  // A packet to it, before it is looked at; and one that it has not taken.
  void trace_received(const IncomingPacket& packet) {
    if (details_ != nullptr) [[unlikely]]
      trace_arrived(packet);
  }
  void trace_refusal(Verdict verdict, const roce::Headers& headers) const;
  // What has been posted since it was asked last.
  void trace_posted() {
    if (details_ != nullptr) [[unlikely]]
      trace_new_requests();
  }

  // The counters that its completions are added to, and from now on. REQUIRES: the shard's lock
  CompletionCounts completion_counts() const { return counts_ != nullptr ? *counts_ : CompletionCounts{}; }
  void set_completion_counts(const CompletionCounts& counts) {
    counts_ = std::make_unique<CompletionCounts>(counts);
  }

  virtual Verdict on_packet(const IncomingPacket& packet, TimePoint now) = 0;
  // The same for a packet that came by a way which loses nothing, if there is nothing about it or the QP that
  // would take a longer look. Nothing: there is, and on_packet() is to be called; as yet nobody can tell that
  // the packet has come.
  virtual std::optional<Verdict> on_plain_send(const PlainSend&, const roce::Path&, TimePoint) {
    return std::nullopt;
  }

  // Sends what may be sent now, at most `budget` packets. Acknowledgements that nothing urgent needs are left
  // out unless `with_acknowledgements`: they may wait for the application's next verb and travel with its
  // reply.
  virtual TransmitResult transmit(TimePoint now, uint32_t budget, bool with_acknowledgements) = 0;

  // Sends what has been posted, with an acknowledgement that is due, where that is quick. True: nothing is
  // left for transmit() to do.
  virtual bool send_at_once(TimePoint) { return false; }

  // Sends an acknowledgement that is due, if it may go ahead of what else there is to send.
  virtual void transmit_acknowledgement() {}

  // Whether transmit() would have something to send: urgent, or just an acknowledgement.
  virtual bool has_urgent() const = 0;
  virtual bool has_acknowledgement() const = 0;
  // Its next request is small, and earlier ones are on their way: sending may wait for more to be posted, as
  // the application, which waits for the earlier ones, will come back.
  virtual bool may_gather() const { return false; }
  // Received packets must say their traffic class and hop limit: they go into a GRH.
  virtual bool wants_ip_details() const { return false; }
  // Its peer may carry out READs and WRITEs in our memory by itself now, if our keys allow it.
  virtual bool takes_direct_access() const { return false; }
  // Packets are on their way and unanswered.
  virtual bool has_outstanding() const = 0;

  // To be called after on_packet(), transmit() and on_timer(), when the QP is of one piece again: if a
  // completion queue in error has lost what it had to say, nothing that it does can be relied on any more
  // (IBTA volume 1, 11.6.3.2: local work queue catastrophic error).
  void answer_lost_completions() {
    if (completion_lost_) fail_for_lost_completions();
  }
  bool has_lost_completions() const { return completion_lost_; }

  // When on_timer() wants to be called; kNever if not at all.
  virtual TimePoint deadline() const = 0;
  virtual void on_timer(TimePoint now) = 0;

  // XRC targets: what the owner of a queue says of requests that were passed on to it; that it has ended.
  virtual void on_owner_answer(const OwnerAnswer&) {}
  virtual void on_owner_gone(uint32_t, roce::NakCode) {}

  // Where the PSNs stand: what query_qp reports.
  virtual roce::Psn next_send_psn() const = 0;
  virtual roce::Psn next_receive_psn() const = 0;
  // The same for the status page (protocol::kQpReceivePsn).
  virtual uint64_t receive_progress() const { return next_receive_psn().value(); }

  // Completes everything posted with IBV_WC_WR_FLUSH_ERR. REQUIRES: the state is ERR (or SQE, for the send
  // queue only)
  void flush_send_queue();
  void flush_recv_queue();

  // The memory windows that are bound to it. They are to be unbound before the QP is destroyed.
  memory::BoundWindows& bound_windows() { return bound_windows_; }

  // For the shard: its lists of QPs that want to send, or owe an acknowledgement.
  ListHook ready_hook;
  ListHook acknowledgement_hook;
  std::atomic<bool> doorbell_rung{false};
  std::atomic<QueuePair*> doorbell_next{nullptr};
  // For the shard's timers: its place on the wheel, and when it is called; kNever while it has none.
  ListHook timer_hook;
  TimePoint timer_armed_for = kNever;

 protected:
  friend class CongestionNotices;
  friend class Requester;
  friend class Responder;
  friend class Inbound;

  bool has_to_flush() const { return !send_queue_.empty() || receives_.any_to_flush(); }
  bool send_queue_empty() const { return send_queue_.empty(); }

  const Route& route_for(const roce::Path& path, roce::Qpn destination) const {
    return config_.routes != nullptr ? config_.routes->find(path, destination) : no_route();
  }
  void find_route(const roce::Path& path, roce::Qpn destination) {
    route_ = &route_for(path, destination);
    peer_is_local_ = false;
  }
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
  // REQUIRES: no packet is to be traced
  TrainSent send_out(const PacketTrain& train) {
    const TrainSent sent = route_->sink->send_train(train);
    count(kSentOctets, uint64_t{sent.packets} * (least_octets(attributes_.path) + train.packet_payload));
    return sent;
  }
  // Whether each packet is to be traced.
  bool traces_packets() const { return details_ != nullptr; }
  // What belongs to no message: a word to a peer of ours, or to any peer.
  SendStatus send_word(uint8_t opcode, roce::Psn psn, ConstBytes payload = {});
  // Its headers say whose it is, as a capture wants to know; on the wire most words do not.
  SendStatus send_word(const Route& route, const roce::Path& path, roce::Headers headers, ConstBytes payload);
  // The peer, on this host, says why it will refuse our oldest request. Not trusted.
  void hear_refusal(ConstBytes words);
  // Whether who sends this is to be told of others who send to this process.
  bool has_news_of_incast(IncastShare& share, const roce::Packet& packet, TimePoint now) {
    return config_.incast != nullptr && !route_->traits.lossless &&
           share.on_packet(*config_.incast, packet.payload.size(), now);
  }

  // Whether a packet came from our peer's address to ours, as the kernel's rxe checks; also by our device, if
  // the addresses name one only with it (link-local ones). `incoming` without a device: it was not sent by
  // one, or nobody says.
  bool is_from_peer(const roce::Path& incoming) const {
    const roce::Path& ours = attributes_.path;
    if (incoming.source != ours.destination || incoming.destination != ours.source) return false;
    return ours.interface_index == incoming.interface_index || ours.interface_index == 0 ||
           incoming.interface_index == 0;
  }
  bool may(memory::Access access) const { return (attributes_.access & access) != 0; }
  // Whose keys its peer may use: in XRC those of the queue that is delivered to (IBTA volume 1, annex A14).
  RemoteUser remote_user() const {
    return {config_.srqs != nullptr ? receives_.pd() : config_.pd, config_.qpn};
  }
  // XRC: from now on the peer's packets are for the shared receive queue of this number. False: there is none
  // in our domain, or it is not the one that the message at hand began with.
  bool select_receives(uint32_t srq_number, bool in_message);
  // XRC: whether it is the number of another process's queue, which may be in our domain.
  bool is_elsewhere(uint32_t srq_number) const {
    return config_.owners != nullptr && !config_.srqs->is_own(srq_number);
  }

  virtual void on_enter(ibv_qp_state from, ibv_qp_state to) = 0;

  // To ERR because of what happened on the wire or in memory.
  void fail(std::optional<ibv_event_type> event = std::nullopt);

  // Completes and consumes the oldest request of the send queue.
  void complete_send(const queues::SendWqe& wqe, ibv_wc_status status);
  // Whether the program wants to hear nothing of it but if it fails, so that to be done with it is to count
  // it.
  bool ends_in_silence(const queues::SendWqe& wqe) const {
    return !config_.signal_all && (wqe.flags & (IBV_SEND_SIGNALED | queues::kTagMatchingRequest)) == 0 &&
           counts_ == nullptr;
  }
  // So many such have succeeded, the oldest of the send queue, of which so many were SENDs.
  void consume_in_silence(uint32_t requests, uint32_t sends) {
    count(kSends, sends);
    send_queue_.consume(requests);
  }
  void complete_rendezvous(const queues::SendWqe& wqe, ibv_wc_status status);
  // Completes the receive request at hand: `wc` says how. REQUIRES: receives().current() was not null
  void complete_recv(ibv_wc& wc, bool solicited, const Misfit& misfit = {});
  // The same for a SEND without anything beside its data.
  void complete_plain_receive(uint32_t bytes, bool solicited);
  // The same for several, whose requests are done with: receives().finish() has been called for each.
  void complete_plain_receives(std::span<const queues::CompletionQueue::Differing> received);
  // The same for a request that a tag matched: the message's data is in it, or on its way.
  void complete_match(const TaggedMessage& message, ibv_wc_status status, uint8_t flags, uint32_t bytes);
  // Tells of the match before the data is there; the request stays at hand.
  void announce_match(const TaggedMessage& message);
  void count(QpCounter counter, uint64_t amount = 1) {
    if (counter < kFirstMoreCounter) {
      transport::count(*config_.counters, counter, amount);
    } else if (config_.more_counters != nullptr) {
      transport::count(*config_.more_counters, counter - kFirstMoreCounter, amount);
    }
  }
  void count_on_path(PathNumber which, uint64_t amount = 1) {
    if (config_.path_numbers != nullptr) transport::count(*config_.path_numbers, which, amount);
  }
  void emit(ibv_event_type event) {
    note(trace::Kind::kAsyncEvent, {event});
    config_.listener->on_qp_event(event);
  }

  // For the trace: what is rare; and what a network can make frequent.
  void note(trace::Kind kind, const trace::Recorder::Numbers& numbers = {}) const {
    if (config_.trace != nullptr) config_.trace->note(config_.qpn, kind, numbers);
  }
  void note_frequent(trace::Kind kind, const trace::Recorder::Numbers& numbers = {}) const {
    if (config_.trace != nullptr) config_.trace->note_frequent(config_.qpn, kind, numbers);
  }
  void note_dropped(protocol::TraceDrop why, const roce::Headers& headers) const {
    note_frequent(trace::Kind::kDropped, {static_cast<uint64_t>(why), headers.opcode, headers.psn.value()});
  }
  // For services that tell nobody of what they drop: whether the log is to say so. Only of the first message
  // for each reason until RESET, as a peer may send any number.
  bool is_drop_to_be_said(protocol::TraceDrop why, LogLevel level) {
    if (log_level() < level) [[likely]]
      return false;
    const uint32_t bit = uint32_t{1} << static_cast<uint32_t>(why);
    const bool is_first = (drops_said_ & bit) == 0;
    drops_said_ |= bit;
    return is_first;
  }
  // What its packets go by, when that has been found.
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
  void trace_completion(uint64_t wr_id, ibv_wc_status status, uint32_t opcode, uint32_t bytes) const;
  void complete_tagged(uint64_t wr_id, ibv_wc_status status, uint8_t flags, uint32_t bytes,
                       const TaggedMessage& message);
  void count_send(ibv_wc_opcode opcode, ibv_wc_status status);
  void fail_for_lost_completions();
  void say_failed(const queues::SendWqe& wqe, ibv_wc_status status) const;

  const QpConfig config_;
  QpAttributes attributes_;
  const Route* route_ = &no_route();
  bool peer_is_local_ = false;                      // as far as was heard by this route
  trace::Recorder* details_ = nullptr;              // null: nobody wants each packet
  std::unique_ptr<const CompletionCounts> counts_;  // null: no completion counter is attached
  uint32_t traced_posts_ = 0;                       // of the send queue
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  std::atomic<bool> awaits_receive_{false};
  SpinLock send_lock_;
  SpinLock recv_lock_;
  queues::SendQueue send_queue_;
  Receives receives_;
  mutable memory::KeyFinder keys_{config_.keys};  // it remembers, and answers no differently for that
  memory::BoundWindows bound_windows_;
  bool completion_lost_ = false;
  bool overrun_said_ = false;  // in the log, once until RESET
  uint32_t drops_said_ = 0;    // likewise; a bit for each protocol::TraceDrop
  std::string peer_words_;     // of hear_refusal()
};

}  // namespace verbena::transport
