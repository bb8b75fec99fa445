// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <verbena/result.hpp>
#include <verbena/verbs/completion.hpp>
#include <verbena/verbs/device.hpp>
#include <verbena/verbs/endpoint.hpp>
#include <verbena/verbs/memory.hpp>
#include <verbena/verbs/object.hpp>
#include <verbena/verbs/work.hpp>

// Queue pairs and shared receive queues.
namespace verbena {

// ---- shared receive queues

struct srq_options {
  std::uint32_t max_wr = 128;
  std::uint32_t max_sge = 1;
  // Only for XRC, else nullptr: the domain, and the queue that takes the completions.
  const xrc_domain* domain = nullptr;
  const cq* xrc_cq = nullptr;
};

// Shares XRC receive queues between processes: see context::make_xrc_domain().
class xrc_domain : public object<ibv_xrcd> {
 public:
  using object::object;
  // Makes the queue pair for the receiving end of an XRC connection. It takes messages for all shared receive
  // queues of the domain. Its peer is a queue pair with transport::xrc_send.
  result<qp> make_receiver(std::uint8_t port = 1) const;
};

inline result<xrc_domain> context::make_xrc_domain(int file) const {
  ibv_xrcd_init_attr wanted{};
  wanted.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  wanted.fd = file;
  wanted.oflags = O_CREAT;
  ibv_xrcd* const made = ibv_open_xrcd(get(), &wanted);
  if (made == nullptr) return failure("make an XRC domain on", errno);
  return xrc_domain(detail::own(made, ibv_close_xrcd, handle()));
}

// A queue of receives for many queue pairs.
class srq : public object<ibv_srq> {
 public:
  using object::object;

  // Posts receives as a chain. If one fails, those before error::position() were posted.
  template <class... Requests>
  requires(sizeof...(Requests) != 0 &&
           (... && detail::is_recv<Requests>)) result<void> post(const Requests&... requests)
  const { return detail::post<ibv_recv_wr, detail::post_srq_recv>(get(), requests...); }
  // Posts receives of one kind as chains of at most 16, as qp::post_all() does.
  template <class Request>
  requires(detail::is_recv<Request>) result<void> post_all(std::span<Request> requests)
  const { return detail::post_all<ibv_recv_wr, detail::post_srq_recv>(get(), requests); }
  // Asks for one event IBV_EVENT_SRQ_LIMIT_REACHED when fewer than `limit` receives are left.
  result<void> set_limit(std::uint32_t limit) const {
    ibv_srq_attr wanted{};
    wanted.srq_limit = limit;
    if (const int code = ibv_modify_srq(get(), &wanted, IBV_SRQ_LIMIT); code != 0)
      return error("set the limit of a shared receive queue", code);
    return {};
  }
  // Returns the number by which senders name this queue (send_request::to_srq()). For XRC.
  result<std::uint32_t> number() const {
    std::uint32_t number = 0;
    if (const int code = ibv_get_srq_num(get(), &number); code != 0)
      return error("query a shared receive queue", code);
    return number;
  }
};

inline result<srq> pd::make_srq(const srq_options& options) const {
  ibv_srq_init_attr_ex wanted{};
  wanted.attr.max_wr = options.max_wr;
  wanted.attr.max_sge = options.max_sge;
  wanted.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  wanted.srq_type = IBV_SRQT_BASIC;
  wanted.pd = get();
  if (options.domain != nullptr && options.xrc_cq != nullptr) {
    wanted.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    wanted.srq_type = IBV_SRQT_XRC;
    wanted.xrcd = options.domain->get();
    wanted.cq = options.xrc_cq->get();
  }
  ibv_srq* const made = ibv_create_srq_ex(get()->context, &wanted);
  if (made == nullptr) return error("make a shared receive queue", errno);
  auto domain = options.domain != nullptr ? options.domain->handle() : nullptr;
  auto queue = options.xrc_cq != nullptr ? options.xrc_cq->handle() : nullptr;
  return srq(detail::own(made, ibv_destroy_srq, handle(), std::move(domain), std::move(queue)));
}

// ---- queue pairs

// The transport of a queue pair.
enum class transport : std::uint8_t {
  rc = IBV_QPT_RC,              // reliable connection: everything arrives once, in order
  uc = IBV_QPT_UC,              // unreliable connection: SEND and WRITE that may be lost
  ud = IBV_QPT_UD,              // datagrams to any peer, of at most one packet
  xrc_send = IBV_QPT_XRC_SEND,  // XRC: sends to shared receive queues of the peer's domain
  raw_packet = IBV_QPT_RAW_PACKET,
};
inline constexpr transport rc = transport::rc;
inline constexpr transport uc = transport::uc;
inline constexpr transport ud = transport::ud;

// Refers to a completion queue, which is a cq or an extended_cq. Used in qp_options, where the program writes
// the queue itself, as in {.send_cq = queue}.
class cq_reference {
 public:
  cq_reference() = default;
  cq_reference(const cq& queue) : queue_(queue.get()), kept_(queue.handle()) {}
  cq_reference(const extended_cq& queue) : queue_(queue.plain()), kept_(queue.handle()) {}
  ibv_cq* get() const { return queue_; }
  const std::shared_ptr<void>& handle() const { return kept_; }

 private:
  ibv_cq* queue_ = nullptr;
  std::shared_ptr<void> kept_;
};

struct qp_options {
  cq_reference send_cq{};
  cq_reference recv_cq{};             // default: send_cq
  const verbena::srq* srq = nullptr;  // receives come from this queue instead of the queue pair's own
  std::uint32_t max_send_wr = 64;
  std::uint32_t max_recv_wr = 64;
  std::uint32_t max_send_sge = 1;
  std::uint32_t max_recv_sge = 1;
  std::uint32_t max_inline = 0;  // bytes; the adapter may allow more
  bool signal_all = false;       // each send request has a completion
  std::uint8_t port = 1;
};

// How a queue pair is connected. The defaults suit nearly everybody.
struct connect_options {
  access rights = access::remote_read | access::remote_write | access::remote_atomic;
  std::uint8_t max_reads = 16;       // this end's READs and atomics under way; the peer must allow them
  std::uint8_t max_peer_reads = 16;  // the peer's READs and atomics under way
  std::uint8_t min_rnr_timer = 12;   // 0.64 ms, IBTA table 46: the peer repeats a SEND that finds no receive
  std::uint8_t timeout = 17;         // 4.096 us * 2^timeout until a repetition, 0.54 s; 0: none
  std::uint8_t retries = 7;
  std::uint8_t rnr_retries = 7;  // 7: without end
  std::uint8_t traffic_class = 0;
  std::uint8_t service_level = 0;
  std::optional<std::uint8_t> gid_index{};  // this end's address; default: an address of the peer's kind
};

// A queue pair. At a time, one thread may post sends and one thread may post receives.
class qp : public object<ibv_qp> {
 public:
  qp(std::shared_ptr<ibv_qp> handle, std::uint32_t max_inline, std::uint8_t port)
      : object(std::move(handle)), max_inline_(max_inline), psn_(draw_psn()), port_(port) {}

  std::uint32_t number() const { return get()->qp_num; }
  // Maximum number of bytes of an inlined() request.
  std::uint32_t max_inline() const { return max_inline_; }

  // Posts sends or receives as a chain, which rings the adapter's doorbell once. If a request fails, those
  // before error::position() were posted. Fails with ENOMEM if the queue is full.
  template <class... Requests>
  requires(sizeof...(Requests) != 0 &&
           (... && detail::is_send<Requests>)) result<void> post(const Requests&... requests)
  const { return detail::post<ibv_send_wr, detail::post_send>(get(), requests...); }
  template <class... Requests>
  requires(sizeof...(Requests) != 0 &&
           (... && detail::is_recv<Requests>)) result<void> post(const Requests&... requests)
  const { return detail::post<ibv_recv_wr, detail::post_recv>(get(), requests...); }
  // Posts any number of sends or receives of one kind, as chains of at most 16. Each chain rings the doorbell
  // once. If a request fails, those before error::position() were posted.
  template <class Request>
  requires(detail::is_send<Request>) result<void> post_all(std::span<Request> requests)
  const { return detail::post_all<ibv_send_wr, detail::post_send>(get(), requests); }
  template <class Request>
  requires(detail::is_recv<Request>) result<void> post_all(std::span<Request> requests)
  const { return detail::post_all<ibv_recv_wr, detail::post_recv>(get(), requests); }

  // ---- connecting

  // Returns this end's address, for the peer. `peer`: an address of the peer, if it is known. With `peer`, an
  // address of the same IP version is preferred.
  result<endpoint> local_endpoint(const ibv_gid* peer = nullptr) const {
    ibv_port_attr port{};
    if (const int code = ibv_query_port(get()->context, port_, &port); code != 0)
      return detail::failure(get()->context, "query a port of", code);
    const auto gid = detail::choose_gid(get()->context, port_, peer);
    if (!gid) return gid.error();
    return endpoint(gid->gid, number(), psn_, port.lid, port.active_mtu);
  }
  // Connects to the peer: takes the queue pair to INIT, RTR and RTS. The peer must do the same before the
  // retries of the first request end. Receives may be posted before and after. Fails with EINVAL if `peer` is
  // not the address of a queue pair.
  result<void> connect(const endpoint& peer, const connect_options& options = {}) const {
    if (!peer.is_valid())
      return error("connect to a queue pair", EINVAL, {}, "the peer's endpoint is malformed");
    if (auto ready = initialize(options.rights); !ready) return ready;
    if (auto ready = receive_from(peer, options); !ready) return ready;
    return send_to(options);
  }
  // Take the single steps of connect(). After initialize(), receives can be posted. After receive_from(), the
  // queue pair takes requests of the peer. After send_to(), sends can be posted.
  result<void> initialize(access rights) const {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_INIT;
    wanted.port_num = port_;
    wanted.qp_access_flags = bits(rights);
    return modify(wanted, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  }
  result<void> receive_from(const endpoint& peer, const connect_options& options) const {
    const ibv_gid there = peer.gid();
    const auto own = local_endpoint(&there);
    if (!own) return own.error();
    std::uint8_t gid_index = 0;
    if (options.gid_index) {
      gid_index = *options.gid_index;
    } else {
      const auto gid = detail::choose_gid(get()->context, port_, &there);
      if (!gid) return gid.error();
      gid_index = static_cast<std::uint8_t>(gid->gid_index);
    }
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_RTR;
    wanted.path_mtu = std::clamp(std::min(peer.mtu(), own->mtu()), IBV_MTU_256, IBV_MTU_4096);
    wanted.dest_qp_num = peer.qp_num();
    wanted.rq_psn = peer.psn();
    wanted.max_dest_rd_atomic = options.max_peer_reads;
    wanted.min_rnr_timer = options.min_rnr_timer;
    wanted.ah_attr.grh.dgid = there;
    wanted.ah_attr.grh.sgid_index = gid_index;
    wanted.ah_attr.grh.hop_limit = 64;
    wanted.ah_attr.grh.traffic_class = options.traffic_class;
    wanted.ah_attr.is_global = 1;
    wanted.ah_attr.dlid = peer.lid();
    wanted.ah_attr.sl = options.service_level;
    wanted.ah_attr.port_num = port_;
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (is_reliable()) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return modify(wanted, mask);
  }
  result<void> send_to(const connect_options& options) const {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_RTS;
    wanted.sq_psn = psn_;
    wanted.timeout = options.timeout;
    wanted.retry_cnt = options.retries;
    wanted.rnr_retry = options.rnr_retries;
    wanted.max_rd_atomic = options.max_reads;
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (is_reliable()) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return modify(wanted, mask);
  }
  // For UD: makes the queue pair ready to send and receive datagrams. Senders must use this Q_Key to reach
  // it.
  result<void> activate(std::uint32_t qkey) const {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_INIT;
    wanted.port_num = port_;
    wanted.qkey = qkey;
    if (auto done = modify(wanted, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY); !done)
      return done;
    wanted.qp_state = IBV_QPS_RTR;
    if (auto done = modify(wanted, IBV_QP_STATE); !done) return done;
    wanted.qp_state = IBV_QPS_RTS;
    wanted.sq_psn = psn_;
    return modify(wanted, IBV_QP_STATE | IBV_QP_SQ_PSN);
  }
  // For UD: joins and leaves a multicast group.
  result<void> join(const ibv_gid& group) const {
    return attach(ibv_attach_mcast, "join a multicast group", group);
  }
  result<void> leave(const ibv_gid& group) const {
    return attach(ibv_detach_mcast, "leave a multicast group", group);
  }

  // ---- ending

  // Ends all requests: each completes with an error (IBV_WC_WR_FLUSH_ERR), unless it has completed before.
  // Their memory is the program's again after these completions.
  result<void> to_error() const { return to(IBV_QPS_ERR); }
  // Forgets all requests without completions. The queue pair may be connected again.
  result<void> reset() const { return to(IBV_QPS_RESET); }
  result<ibv_qp_state> state() const {
    ibv_qp_attr found{};
    ibv_qp_init_attr unused{};
    if (const int code = ibv_query_qp(get(), &found, IBV_QP_STATE, &unused); code != 0)
      return error("query a queue pair", code);
    return found.qp_state;
  }
  // Changes attributes for which there is no other function (ibv_modify_qp(3)). `mask`: flags of
  // ibv_qp_attr_mask.
  result<void> modify(ibv_qp_attr& wanted, int mask) const {
    const int code = ibv_modify_qp(get(), &wanted, mask);
    if (code == 0) return {};
    return error("modify a queue pair", code, {},
                 code == ETIMEDOUT ? "the peer's address does not answer: is its host up?" : nullptr);
  }

 private:
  static std::uint32_t draw_psn() { return std::random_device()() & 0xffffff; }
  bool is_reliable() const { return get()->qp_type != IBV_QPT_UC; }
  result<void> to(ibv_qp_state state) const {
    ibv_qp_attr wanted{};
    wanted.qp_state = state;
    return modify(wanted, IBV_QP_STATE);
  }
  result<void> attach(int (*call)(ibv_qp*, const ibv_gid*, std::uint16_t), const char* tried,
                      const ibv_gid& group) const {
    if (const int code = call(get(), &group, 0); code != 0) return error(tried, code);
    return {};
  }

  std::uint32_t max_inline_;
  std::uint32_t psn_;
  std::uint8_t port_;
};

inline result<qp> pd::make_qp(transport kind, const qp_options& options) const {
  const cq_reference& recv_cq = options.recv_cq.get() != nullptr ? options.recv_cq : options.send_cq;
  ibv_qp_init_attr wanted{};
  wanted.send_cq = options.send_cq.get();
  wanted.recv_cq = recv_cq.get();
  wanted.srq = options.srq != nullptr ? options.srq->get() : nullptr;
  const bool receives = kind != transport::xrc_send;
  wanted.cap = {options.max_send_wr, receives ? options.max_recv_wr : 0, options.max_send_sge,
                receives ? options.max_recv_sge : 0, options.max_inline};
  wanted.qp_type = static_cast<ibv_qp_type>(kind);
  wanted.sq_sig_all = options.signal_all ? 1 : 0;
  ibv_qp* const made = ibv_create_qp(get(), &wanted);
  if (made == nullptr) return error("make a queue pair", errno);
  auto kept = options.srq != nullptr ? options.srq->handle() : nullptr;
  return qp(detail::own(made, ibv_destroy_qp, handle(), options.send_cq.handle(), recv_cq.handle(),
                        std::move(kept)),
            wanted.cap.max_inline_data, options.port);
}

inline result<qp> xrc_domain::make_receiver(std::uint8_t port) const {
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_type = IBV_QPT_XRC_RECV;
  wanted.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  wanted.xrcd = get();
  ibv_qp* const made = ibv_create_qp_ex(get()->context, &wanted);
  if (made == nullptr) return error("make an XRC queue pair", errno);
  return qp(detail::own(made, ibv_destroy_qp, handle()), 0, port);
}

}  // namespace verbena
