// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <verbena/async/loop.hpp>
#include <verbena/cm/adapter.hpp>
#include <verbena/cm/credits.hpp>
#include <verbena/cm/identifier.hpp>
#include <verbena/cm/lease.hpp>
#include <verbena/cm/receive_pool.hpp>
#include <verbena/cm/receive_shares.hpp>
#include <verbena/cm/route_search.hpp>
#include <verbena/result.hpp>

namespace verbena {

struct connection_options {
  std::uint32_t message_size = 8192;  // bytes of the longest message that this end receives
  std::uint32_t receives = 32;        // messages that this end has room for before the program takes them
  std::uint32_t sends = 64;           // operations that are under way at once; further ones wait
  // If not 0, the connections of a listener share one receive queue. Each has two receives that no other
  // connection can use, and an equal part of this many further receives. In all, a connection has at most
  // `receives`, and one more for updates of credits.
  std::uint32_t shared_receives = 0;
  std::uint32_t max_sharers = 10'000;           // connections that share a queue; further ones are refused
  duration deadline = std::chrono::seconds(5);  // for connecting
  // The maximum number of handshakes that a listener has under way. For a further one, it refuses the oldest.
  // While the loop is busy, up to 1024 connection requests can wait for it. The default is larger, so that
  // such a burst alone makes the listener refuse nobody.
  std::uint32_t max_handshakes = 4096;
};

namespace detail {

class connection_state;

// A request for the send queue, from the call to its completion. The object does not move, because its
// address is the wr_id of the work request. It holds the buffer until the completion, even if nobody awaits
// the operation any more.
class operation final : public completion_target {
 public:
  explicit operation(connection_state& owner) : owner_(owner) {}
  void on_completion(const ibv_wc& done) override;

  connection_state& owner_;
  ibv_send_wr request{};
  ibv_sge piece{};
  buffer held;
  const char* tried = "";
  bool is_send = false;    // a SEND, which needs a credit
  bool is_update = false;  // a SEND that only returns credits, and that nobody awaits
  bool is_done = false;
  bool is_abandoned = false;
  std::optional<error> failure;
  waiter waiting;
  timer deadline;
};

// A connection: its queue pair, its own receives or its share of shared receives, and the operations under
// way.
//
// Lifetime: references are counted. The program's handle, each buffer that the program has, and each request
// that the adapter has count as one. When the handle ends, the connection disconnects. When the last
// reference ends, the object is destroyed.
class connection_state final : public cm_handler {
 public:
  enum class phase : std::uint8_t { opening, open, closing, closed };

  connection_state(loop& io, const connection_options& options) : io_(io), options_(options) {
    service().live.push_back(*this);
  }
  ~connection_state() override {
    end_queue_pair();  // the adapter is done with the buffers
    for (receive_slot& each : slots_) adapter_->buffers().give_back(each.memory());
    if (pool_ != nullptr) {
      for (const auto& [slot, memory] : received_) post_shared(*slot);
      pool_->leave(share_);
    }
    if (queue_ != nullptr) queue_->give_room(room_needed());
  }

  // Ends all requests, and frees their buffers. A request may hold a buffer of another connection. So all
  // connections do this before the first is destroyed.
  void let_go() override {
    add_reference();
    phase_ = phase::closed;
    end_queue_pair();
    for (operation& each : operations_) each.held = {};
  }

  void add_reference() { ++references_; }
  void drop_reference() {
    if (--references_ == 0) destroy(this);
  }

  // ---- opening

  // Begins to connect to the address.
  void connect(const sockaddr* address) {
    id_ = cm_identifier(service(), *this);
    begin_opening();
    if (rdma_resolve_addr(id_.get(), nullptr, const_cast<sockaddr*>(address),
                          milliseconds(options_.deadline)) != 0)
      fail(error("resolve an address", errno));
  }
  // Accepts a connection request as soon as the hardware address of its sender is known. Calls `on_open` when
  // the handshake has ended or failed.
  void accept(rdma_cm_id* request, const cm_event& event, std::function<void(connection_state&)> on_open) {
    id_ = cm_identifier(request, *this);
    on_open_ = std::move(on_open);
    begin_opening();
    meet(event);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    int mask = 0;
    // If this fails, rdma_accept() fails for the same reason.
    if (find_route_search() == nullptr || rdma_init_qp_attr(id_.get(), &attributes, &mask) != 0)
      return answer();
    route_.start(io_, id_->verbs, attributes.ah_attr, [this](bool is_known) {
      if (!is_opening()) return;
      add_reference();
      if (is_known) {
        answer();
      } else {
        refuse("the peer's hardware address is unknown");
      }
      drop_reference();
    });
  }

  // Refuses the connection request, and ends the connection. Always returns false, for callers that return
  // it.
  bool refuse(const char* why) {
    rdma_reject(id_.get(), nullptr, 0);
    return fail(error("accept a connection", ECONNREFUSED, {}, why)), false;
  }
  bool is_opening() const { return phase_ == phase::opening; }
  bool is_open() const { return phase_ == phase::open; }
  const std::optional<error>& failure() const { return failure_; }
  list<waiter> opening, receiving, draining;  // coroutines that wait for this connection

  void on_event(const cm_event& event) override {
    switch (event.type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (rdma_resolve_route(id_.get(), milliseconds(options_.deadline)) != 0)
          fail(error("resolve a route", errno, {},
                     errno == ENODEV ? "no RDMA device is at the interface that leads there" : nullptr));
        return;
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return request_connection();
      case RDMA_CM_EVENT_ESTABLISHED:
        if (!is_opening()) return;
        if (!on_open_) meet(event);
        return opened();
      case RDMA_CM_EVENT_DISCONNECTED:
        if (is_opening()) return fail(error("connect", ECONNRESET, {}, "the peer has disconnected"));
        return disconnect();
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return;
      case RDMA_CM_EVENT_REJECTED:
        return fail(error("connect", ECONNREFUSED, {}, "nothing listens there, or it refused"));
      default:
        return fail(error("connect", event.status < 0 ? -event.status : ECONNABORTED, {},
                          rdma_event_str(event.type)));
    }
  }

  // ---- operations

  buffer_pool& buffers() { return adapter_->buffers(); }
  const pd& domain() const { return adapter_->domain(); }
  std::uint32_t peer_message_size() const { return credits_.peer().message_size; }
  // Returns the address to which packets for the peer go, as bytes: the LID and, if there is one, the GID.
  // Returns an empty string if there is no queue pair. A peer can lie about other addresses, but it gets
  // packets only at this one.
  std::string peer_host() const {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr unused{};
    if (!has_queue_pair() || ibv_query_qp(id_->qp, &attributes, IBV_QP_AV, &unused) != 0) return {};
    const ibv_ah_attr& there = attributes.ah_attr;
    std::string bytes(reinterpret_cast<const char*>(&there.dlid), sizeof there.dlid);
    if (there.is_global != 0)
      bytes.append(reinterpret_cast<const char*>(there.grh.dgid.raw), sizeof there.grh.dgid.raw);
    return bytes;
  }

  // Returns an operation for the caller to fill in. Then submit() begins it as soon as there is room, or
  // end() ends it at once. `tried`: a string literal, the beginning of an error's sentence.
  operation& make_operation(const char* tried) {
    if (free_.empty()) {
      operations_.emplace_back(*this);
      free_.push_back(&operations_.back());
    }
    operation& taken = *free_.back();
    free_.pop_back();
    taken.tried = tried;
    return taken;
  }
  void submit(operation& one) {
    if (!is_open()) return end(one, failure_ ? *failure_ : error(one.tried, ENOTCONN));
    waiting_.push_back(&one);
    flush();
  }
  // Ends an operation, with success if there is no failure. Wakes the coroutine that awaits it.
  void end(operation& one, std::optional<error> failure) {
    one.deadline.stop();
    one.failure = std::move(failure);
    one.is_done = true;
    if (one.is_abandoned || one.is_update) return recycle(one);
    if (one.waiting.is_suspended()) io_.wake(one.waiting);
  }
  // Notes that the program does not await the operation any more.
  void abandon(operation& one) {
    one.waiting.forget();
    one.is_abandoned = true;
    if (one.is_done) recycle(one);
  }
  // Lets the operation fail at this time, unless it has ended before. Its failure also ends the connection,
  // because the adapter may still use the operation's buffer.
  void limit(operation& one, time_point when) {
    if (one.is_done) return;
    one.deadline.start(io_.timers(), when, [this, &one] {
      const bool was_posted = std::erase(waiting_, &one) == 0;
      fail(error(one.tried, ETIMEDOUT, {}, "the deadline has passed, and the connection has ended with it"));
      if (!was_posted) end(one, failure_);
    });
  }

  // ---- receiving

  // Returns the next message, or an empty buffer if there is none now.
  buffer take_message() {
    if (received_.empty()) return {};
    const auto [slot, memory] = received_.front();
    received_.pop_front();
    add_reference();
    return {memory, *slot};
  }
  bool has_message() const { return !received_.empty(); }
  // Whether no further message will come.
  bool is_at_end() const { return received_.empty() && is_ending() && are_receives_over(); }
  // Posts the receive of a message again, because the program has released the message.
  void give_back(receive_slot& slot) {
    post_receive(slot);
    return_credits();
    drop_reference();
  }

  // ---- ending

  bool is_idle() const { return waiting_.empty() && posted_sends_ == 0; }
  bool is_drained() const { return posted_sends_ == 0 && are_receives_over(); }
  void disconnect() {
    if (is_ending()) return;
    const bool was_open = phase_ == phase::open;
    phase_ = phase::closing;
    add_reference();
    // rdma_disconnect() ends the requests, too.
    if (id_.get() != nullptr && (!was_open || rdma_disconnect(id_.get()) != 0)) id_.end_requests();
    while (!waiting_.empty()) {
      operation& one = *waiting_.front();
      waiting_.pop_front();
      end(one, failure_ ? *failure_ : error(one.tried, ENOTCONN));
    }
    io_.wake_all(opening);
    if (pool_ != nullptr && has_queue_pair()) await_last_receive(io_.now() + kLastReceive, kFirstLook);
    look_whether_drained();
    drop_reference();
  }
  void fail(const error& reason) {
    if (is_ending()) return;
    if (!failure_) failure_ = reason;
    const auto on_open = std::exchange(on_open_, nullptr);
    add_reference();
    disconnect();
    if (on_open) on_open(*this);
    drop_reference();
  }

  // ---- completions

  void on_sent(operation& one, const ibv_wc& done) {
    --posted_sends_;
    ++room_;
    if (done.status == IBV_WC_SUCCESS) {
      end(one, std::nullopt);
      flush();
      return_credits();  // there may have been no room for that before
    } else if (done.status == IBV_WC_WR_FLUSH_ERR) {
      disconnect();  // by the peer, whose event may come after this
      end(one, failure_ ? *failure_ : error(one.tried, ENOTCONN, {}, "the connection has ended"));
    } else {
      const error reason(one.tried, done.status, done.qp_num, done.vendor_err);
      fail(reason);
      end(one, reason);
    }
    look_whether_drained();
    drop_reference();
  }
  void on_received(receive_slot& slot, const ibv_wc& done) {
    const bool is_own = pool_ == nullptr;
    if (is_own) {
      --posted_receives_;
    } else {
      add_reference();
    }
    if (done.status != IBV_WC_SUCCESS) {
      if (done.status != IBV_WC_WR_FLUSH_ERR)
        fail(error("receive", done.status, done.qp_num, done.vendor_err));
      if (!is_own) post_shared(slot);
    } else {
      take_in(slot, done);
    }
    look_whether_drained();
    drop_reference();
  }

 private:
  friend class cm_service;
  // Is not inlined: otherwise the compiler sees the deletion, and warns of later uses of the object in the
  // callers. These uses are safe, because the callers hold a reference.
  [[gnu::noinline]] static void destroy(connection_state* last) { delete last; }

  // How often an ending connection checks whether its queue pair still holds a shared receive
  // (last_receives): the first pause between two checks, and the longest. After kLastReceive the connection
  // stops checking: after an error of the device, IBV_EVENT_QP_LAST_WQE_REACHED does not come.
  static constexpr duration kFirstLook = std::chrono::microseconds(20);
  static constexpr duration kLongestLook = std::chrono::milliseconds(2);
  static constexpr duration kLastReceive = std::chrono::seconds(1);

  cm_service& service() { return io_.service<cm_service>(); }
  std::uint32_t room_needed() const { return options_.sends + slot_count(); }
  // Returns the maximum number of receives of this connection: one more than the program asks for, because an
  // update of credits needs one. At least 3: see credits::are_due().
  std::uint32_t slot_count() const { return std::max(options_.receives, 2U) + 1; }
  std::uint32_t share() const { return pool_ != nullptr ? share_.size() : slot_count(); }
  hello own_hello() const { return {share(), options_.message_size, slot_count()}; }
  std::uint32_t buffer_size() const { return std::max<std::uint32_t>(options_.message_size, 1); }
  bool is_ending() const { return phase_ == phase::closing || phase_ == phase::closed; }
  bool has_queue_pair() const { return id_.get() != nullptr && id_->qp != nullptr; }
  bool are_receives_over() const {
    return posted_receives_ == 0 && (pool_ == nullptr || is_last_receive_over_ || !has_queue_pair());
  }

  void begin_opening() {
    add_reference();  // of the handshake, until it has ended
    is_shaking_hands_ = true;
    deadline_.start(io_.timers(), io_.now() + options_.deadline, [this] {
      fail(error(
          "connect", ETIMEDOUT, {},
          "the peer does not answer: is its address right, or is it busy? See connection_options::deadline"));
    });
  }
  void meet(const cm_event& event) { credits_.meet(hello::decoded(event.private_data())); }
  static rdma_conn_param parameters_with(const std::array<std::uint32_t, 4>& words) {
    rdma_conn_param parameters{};
    parameters.private_data = words.data();
    parameters.private_data_len = static_cast<std::uint8_t>(sizeof words);
    parameters.responder_resources = parameters.initiator_depth = 16;
    parameters.retry_count = parameters.rnr_retry_count = 7;
    return parameters;
  }
  void request_connection() {
    if (!prepare()) return;
    const auto words = own_hello().encoded();
    rdma_conn_param parameters = parameters_with(words);
    if (rdma_connect(id_.get(), &parameters) != 0) fail(error("connect", errno));
  }
  // Accepts the connection request of id_.
  void answer() {
    if (!prepare()) return;
    const auto words = own_hello().encoded();
    rdma_conn_param parameters = parameters_with(words);
    if (rdma_accept(id_.get(), &parameters) != 0) fail(error("accept a connection", errno));
  }
  // Makes the queue pair and posts the receives. Returns false if that fails.
  bool prepare() try {
    adapter_ = &service().adapter_of(id_->verbs);
    if (on_open_ && options_.shared_receives != 0 && !join_pool()) return false;
    queue_ = &adapter_->queue_for(room_needed());
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = queue_->queue().get();
    wanted.srq = pool_ != nullptr ? pool_->queue() : nullptr;
    wanted.cap = {options_.sends, pool_ != nullptr ? 0 : slot_count(), 1, 1, 0};
    wanted.qp_type = IBV_QPT_RC;
    if (rdma_create_qp(id_.get(), domain().get(), &wanted) != 0) {
      fail(error("make a queue pair", errno));
      return false;
    }
    room_ = options_.sends;
    credits_.begin(share());
    if (pool_ != nullptr) {
      pool_->add(*id_->qp, *this);
      last_receives::instance().add(id_->qp);
    } else {
      post_own_receives();
    }
    return true;
  } catch (const exception& thrown) {
    fail(thrown.error());
    return false;
  } catch (const std::system_error& thrown) {  // the loop cannot watch a further completion queue
    fail(error("prepare a connection", thrown.code().value()));
    return false;
  } catch (const std::exception&) {
    fail(error("prepare a connection", ENOMEM));
    return false;
  }
  // Takes a share of the adapter's shared receives. Refuses the connection if there are too many connections.
  // Also refuses a peer that knows no credits: such a peer could take the receives of other connections.
  bool join_pool() {
    if (!credits_.are_counted()) return refuse("the peer knows no credits");
    receive_pool& pool =
        adapter_->shared_receives(buffer_size(), options_.max_sharers, options_.shared_receives);
    if (!pool.join(share_, slot_count())) return refuse("connection_options::max_sharers are there");
    pool_ = &pool;
    return true;
  }
  void post_own_receives() {
    for (std::uint32_t i = 0; i < slot_count(); ++i)
      slots_.emplace_back(*this, buffers().take(buffer_size()));
    for (receive_slot& each : slots_) post_own(each);
  }
  void end_queue_pair() {
    if (pool_ != nullptr && has_queue_pair()) {
      pool_->remove(*id_->qp);
      last_receives::instance().remove(id_->qp);
    }
    id_ = cm_identifier();
  }
  void opened() {
    phase_ = phase::open;
    deadline_.stop();
    const auto on_open = std::exchange(on_open_, nullptr);
    if (on_open) on_open(*this);
    io_.wake_all(opening);
    end_handshake();
  }
  void end_handshake() {
    if (std::exchange(is_shaking_hands_, false)) drop_reference();
  }

  // Posts the waiting operations for which the send queue has room and the peer has given credits, as one
  // chain.
  void flush() {
    ibv_send_wr* first = nullptr;
    ibv_send_wr* last = nullptr;
    while (!waiting_.empty() && room_ > 0 && may_send(*waiting_.front())) {
      operation& one = *waiting_.front();
      waiting_.pop_front();
      fill(one);
      --room_;
      ++posted_sends_;
      add_reference();
      (last != nullptr ? last->next : first) = &one.request;
      last = &one.request;
    }
    if (first == nullptr) return;
    ibv_send_wr* bad = nullptr;
    const int code = ibv_post_send(id_->qp, first, &bad);
    for (ibv_send_wr* rest = code != 0 ? bad : nullptr; rest != nullptr;) {
      ibv_wc failed{};
      failed.wr_id = rest->wr_id;
      rest = rest->next;  // recycle() clears the request
      failed.status = IBV_WC_WR_FLUSH_ERR;
      if (!failure_) failure_ = error("post a work request", code);
      reinterpret_cast<completion_target*>(failed.wr_id)->on_completion(failed);
    }
  }
  bool may_send(const operation& one) const { return !one.is_send || credits_.may_send(one.is_update); }
  void fill(operation& one) {
    one.request.wr_id = one.id();
    one.request.next = nullptr;
    one.request.send_flags = IBV_SEND_SIGNALED;
    one.request.sg_list = one.piece.length != 0 ? &one.piece : nullptr;
    one.request.num_sge = one.piece.length != 0 ? 1 : 0;
    if (!one.is_send) return;
    one.request.opcode = credits_.are_counted() ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    if (credits_.are_counted()) one.request.imm_data = htobe32(credits_.spend(one.is_update));
  }
  // Sends an update of credits (cm/credits.hpp) if the peer may be waiting for credits, and no other message
  // has brought them to it.
  void return_credits() {
    if (!is_open() || room_ == 0 || !credits_.are_due(share())) return;
    operation& one = make_operation("SEND of credits");
    one.is_send = one.is_update = true;
    waiting_.push_front(&one);
    flush();
  }

  // Posts a receive again, and counts the credits that the peer gets for it.
  void post_receive(receive_slot& slot) {
    if (pool_ != nullptr) {
      if (post_shared(slot) && !is_ending()) add_credits();
    } else if (!is_ending() && has_queue_pair() && post_own(slot)) {
      credits_.add_freed(1);
    }
  }
  bool post_own(receive_slot& slot) {
    ibv_sge piece = slot.memory().get();
    ibv_recv_wr request{slot.id(), nullptr, &piece, 1};
    ibv_recv_wr* bad = nullptr;
    if (const int code = ibv_post_recv(id_->qp, &request, &bad); code != 0)
      return fail(error("post a receive", code)), false;
    ++posted_receives_;
    add_reference();
    return true;
  }
  // Posts a shared receive again, also after the connection's end, because other connections use it. Returns
  // false if that fails.
  bool post_shared(receive_slot& slot) try {
    pool_->post(slot);
    return true;
  } catch (const exception& thrown) {
    return fail(thrown.error()), false;
  }
  void add_credits() try { credits_.add_freed(pool_->on_freed(share_)); } catch (const exception& thrown) {
    fail(thrown.error());
  }
  // Takes the message of a completed receive, and keeps it for the program. Fails the connection if the
  // completion is not of a SEND: a WRITE with immediate data completes a receive, too, but its data is not in
  // the receive's buffer.
  void take_in(receive_slot& slot, const ibv_wc& done) {
    if (done.opcode != IBV_WC_RECV || done.byte_len > slot.memory().size()) {
      fail(error("receive", EPROTO, {}, "the peer has sent what is no message"));
      return post_receive(slot);
    }
    const std::uint32_t word = (done.wc_flags & IBV_WC_WITH_IMM) != 0 ? be32toh(done.imm_data) : 0;
    if (!credits_.take_in(word)) fail(error("receive", EPROTO, {}, "the peer does not keep to its credits"));
    if (credits::is_update(word)) {
      post_receive(slot);
    } else {
      received_.push_back({&slot, slot.memory().first(done.byte_len)});
      if (!receiving.empty()) io_.wake(receiving.front());
    }
    flush();
    return_credits();
  }
  // Looks again and again until the queue pair holds no shared receive any more. Until then the connection
  // keeps a reference to itself.
  void await_last_receive(time_point give_up, duration pause) {
    add_reference();
    last_look_.start(io_.timers(), io_.now() + pause, [this, give_up, pause] {
      if (last_receives::instance().has_ended(id_->qp) || io_.now() >= give_up) {
        queue_->drain();  // the completions that precede the event
        is_last_receive_over_ = true;
        look_whether_drained();
      } else {
        await_last_receive(give_up, std::min(2 * pause, kLongestLook));
      }
      drop_reference();
    });
  }

  void recycle(operation& one) {
    one.held = {};
    one.request = {};
    one.piece = {};
    one.failure.reset();
    one.is_send = one.is_update = one.is_done = one.is_abandoned = false;
    free_.push_back(&one);
  }
  void look_whether_drained() {
    if (is_idle()) io_.wake_all(draining);
    if (phase_ != phase::closing || !is_drained()) return;
    phase_ = phase::closed;
    io_.wake_all(receiving);
    io_.wake_all(draining);
    deadline_.stop();
    end_handshake();
  }

  loop& io_;
  const connection_options options_;
  cm_identifier id_;
  adapter* adapter_ = nullptr;
  cq_source* queue_ = nullptr;
  phase phase_ = phase::opening;
  std::optional<error> failure_;
  std::function<void(connection_state&)> on_open_;
  timer deadline_;
  route_search route_;  // to the sender of a request
  bool is_shaking_hands_ = false;
  std::size_t references_ = 0;

  credits credits_;
  std::uint32_t room_ = 0;  // in the send queue
  std::uint32_t posted_sends_ = 0, posted_receives_ = 0;
  std::deque<operation> operations_;
  std::vector<operation*> free_;
  std::deque<operation*> waiting_;  // for room or credits
  std::deque<receive_slot> slots_;  // its own receives
  receive_pool* pool_ = nullptr;    // or those that it shares
  receive_shares::share share_;
  timer last_look_;
  bool is_last_receive_over_ = false;
  std::deque<std::pair<receive_slot*, slice>> received_;
};

inline void operation::on_completion(const ibv_wc& done) {
  owner_.on_sent(*this, done);
}
inline void receive_slot::on_completion(const ibv_wc& done) {
  if (pool_ != nullptr) owner_ = pool_->owner_of(done.qp_num);
  if (owner_ != nullptr) {
    owner_->on_received(*this, done);
  } else {
    pool_->post(*this);
  }
}
inline void receive_slot::give_back(const slice&) {
  owner_->give_back(*this);
}

}  // namespace detail
}  // namespace verbena
