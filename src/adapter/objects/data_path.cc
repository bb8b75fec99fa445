// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/data_path.h"

#include <cerrno>

#include "adapter/objects/objects.h"
#include "adapter/objects/queue_pairs.h"
#include "adapter/objects/send_request.h"
#include "adapter/transport/qp_state.h"
#include "base/probes.h"

namespace verbena::adapter {

namespace {

using queues::Completion;

Cq& object(ibv_cq_ex* cq) {
  return Cq::of(ibv_cq_ex_to_cq(cq));
}

const Completion& entry(ibv_cq_ex* cq) {
  return *object(cq).current;
}

void show(Cq& cq, const Completion& entry) {
  cq.current = &entry;
  cq.wr_id = entry.wr_id;
  cq.status = static_cast<ibv_wc_status>(entry.status);
}

// Begins extended polling, entry by entry: see ibv_create_cq_ex(3). Entries are read in place.
int start_poll(ibv_cq_ex* abi, ibv_poll_cq_attr* attr) {
  if (attr != nullptr && attr->comp_mask != 0) return EINVAL;
  Cq& cq = object(abi);
  const Completion* first = cq.queue->begin_batch();
  if (first == nullptr) {
    cq.drive();
    first = cq.queue->begin_batch();
    if (first == nullptr) return cq.queue->in_error() && cq.queue->empty() ? EIO : ENOENT;
  }
  show(cq, *first);
  return 0;
}

int next_poll(ibv_cq_ex* abi) {
  Cq& cq = object(abi);
  const Completion* next = cq.queue->next_in_batch();
  if (next == nullptr) return ENOENT;
  show(cq, *next);
  return 0;
}

void end_poll(ibv_cq_ex* abi) {
  object(abi).queue->end_batch();
}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) {
  return static_cast<ibv_wc_opcode>(entry(cq).read_opcode());
}

// Reads a field of the entry.
template <auto field, class Value>
Value read(ibv_cq_ex* cq) {
  return entry(cq).*field;
}

// Reads 0: a RoCE port has no LIDs.
template <class Value>
Value read_nothing(ibv_cq_ex*) {
  return 0;
}

void read_tm_info(ibv_cq_ex* cq, ibv_wc_tm_info* info) {
  info->tag = entry(cq).tag;
  info->priv = entry(cq).tag_private;
}

using queues::SendWqe;

// Holds a queue's lock while posting to it. Takes no lock for a QP that a thread domain restricts to one
// thread.
class PostingLock {
 public:
  PostingLock(SpinLock& lock, bool one_thread) : lock_(one_thread ? nullptr : &lock) {
    if (lock_ != nullptr) lock_->lock();
  }
  ~PostingLock() {
    if (lock_ != nullptr) lock_->unlock();
  }
  PostingLock(const PostingLock&) = delete;
  PostingLock& operator=(const PostingLock&) = delete;

 private:
  SpinLock* const lock_;
};

// The errno value for a ring without room. EINVAL if the QP was created for no requests of this kind, since
// waiting would not help.
template <class Wqe>
int why_full(const queues::WorkQueue<Wqe>& ring, const char* capacity) {
  if (ring.capacity() == 0) return because(EINVAL, "{} was 0 when the queue pair was created", capacity);
  return because(ENOMEM,
                 "the queue is full: it has room for {} requests ({}), which "
                 "are free again when completions of them, or of later ones, have been polled",
                 ring.capacity(), capacity);
}

// Logs a post that has failed. Kept out of the hot path.
[[gnu::cold, gnu::noinline]] int refused(const Qp& qp, const char* call, int error) {
  say_call_failed(call, concerning_qp(qp, error));
  return error;
}

[[gnu::cold, gnu::noinline]] int not_ready_to_send(const Qp& qp) {
  if (qp.init.qp_type == IBV_QPT_XRC_RECV) return because(EINVAL, "an XRC target sends nothing");
  if (qp.send_opcodes == 0)
    return because(EINVAL, "its send queue serves its shared receive queue's tag matching, and no program");
  return because(EINVAL, "it is in {}; ibv_post_send needs RTS", transport::name_of(qp.transport->state()));
}

// With a shared receive queue a QP has no receive queue of its own (IBTA volume 1, 10.2.9.1); in XRC it never
// has one.
[[gnu::cold, gnu::noinline]] int not_ready_to_receive(const Qp& qp) {
  if (qp.init.qp_type == IBV_QPT_XRC_SEND) return because(EINVAL, "an XRC initiator receives nothing");
  if (qp.init.qp_type == IBV_QPT_XRC_RECV)
    return because(EINVAL, "it delivers to the SRQs of its XRC domain: use ibv_post_srq_recv()");
  if (qp.srq != nullptr) return because(EINVAL, "it uses an SRQ: use ibv_post_srq_recv()");
  return because(EINVAL, "it is in {}; ibv_post_recv needs INIT, RTR or RTS",
                 transport::name_of(qp.transport->state()));
}

int post_srq_recv(ibv_srq* abi, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  queues::SharedReceiveQueue& queue = *Srq::of(abi).queue;
  const std::lock_guard guard(queue.lock());
  const Posted posted = fill_receives(queue.ring(), queue.sges(), wr);
  queue.ring().publish(posted.count);
  if (posted.error == 0) return 0;
  if (bad_wr != nullptr) *bad_wr = posted.failed;
  if (posted.error == ENOMEM)
    because(ENOMEM, "the queue is full: it has room for {} requests", queue.capacity());
  say_call_failed("ibv_post_srq_recv", posted.error);
  return posted.error;
}

// The QP's state may change during the call. Requests published after that are found when the doorbell is
// handled, and are flushed if necessary.
int post_send(ibv_qp* abi, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp& qp = Qp::of(abi);
  transport::QueuePair& transport = *qp.transport;
  int error = 0;
  uint32_t filled = 0;
  {
    const PostingLock guard(transport.send_lock(), qp.one_thread);
    // An XRC target and a QP with tag matching have no send opcodes.
    if (!transport::accepts_sends(transport.state()) || qp.send_opcodes == 0) [[unlikely]]
      error = not_ready_to_send(qp);
    for (; wr != nullptr && error == 0; wr = wr->next, ++filled) {
      SendWqe* wqe = transport.send_queue().reserve(filled);
      error = wqe != nullptr ? fill(*wqe, *wr, qp) : ENOMEM;
      if (error != 0) [[unlikely]]
        break;
    }
    transport.send_queue().publish(filled);
  }
  if (filled > 0) [[likely]]
    qp.shard.ring(transport);
  if (error == 0) [[likely]]
    return 0;
  if (error == ENOMEM) error = why_full(transport.send_queue(), "max_send_wr");
  if (bad_wr != nullptr) *bad_wr = wr;
  return refused(qp, "ibv_post_send", error);
}

bool has_receive_queue(const Qp& qp) {
  return qp.init.srq == nullptr && qp.init.qp_type != IBV_QPT_XRC_SEND && qp.init.qp_type != IBV_QPT_XRC_RECV;
}

int post_recv(ibv_qp* abi, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  VERBENA_PROBE(post_recv, abi->qp_num, wr);
  Qp& qp = Qp::of(abi);
  transport::QueuePair& transport = *qp.transport;
  if (!transport::accepts_receives(transport.state()) || !has_receive_queue(qp)) [[unlikely]] {
    if (bad_wr != nullptr) *bad_wr = wr;
    return refused(qp, "ibv_post_recv", not_ready_to_receive(qp));
  }
  Posted posted;
  bool must_ring = false;
  {
    const PostingLock guard(transport.recv_lock(), qp.one_thread);
    posted = fill_receives(transport.recv_queue(), qp.init.cap.max_recv_sge, wr);
    if (posted.count > 0) must_ring = transport.publish_receives(posted.count);
  }
  if (must_ring) [[unlikely]]
    qp.shard.ring(transport);
  if (posted.count > 0 && qp.raw != nullptr) [[unlikely]]
    qp.raw->after_receives(qp);
  if (posted.error == 0) [[likely]]
    return 0;
  if (posted.error == ENOMEM) posted.error = why_full(transport.recv_queue(), "max_recv_wr");
  if (bad_wr != nullptr) *bad_wr = posted.failed;
  return refused(qp, "ibv_post_recv", posted.error);
}

// Binds a window of type 1 by posting a BIND_MW request (ibv_bind_mw(3)). On success the window has its new
// R_Key at once, before the request completes.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  const ibv_mw_bind_info& info = bind->bind_info;
  if ((info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0) {
    const int error = because(EINVAL, "a memory window of type 1 cannot have IBV_ACCESS_ZERO_BASED");
    say_call_failed("ibv_bind_mw", error);
    return error;
  }
  if (info.mr != nullptr && Mr::of(info.mr).registration->kind == Registration::Kind::kNull)
    return EOPNOTSUPP;  // ibv_alloc_null_mr(3)
  ibv_send_wr request{};
  request.wr_id = bind->wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind->send_flags;
  request.bind_mw = {mw, ibv_inc_rkey(mw->rkey), info};
  ibv_send_wr* bad = nullptr;
  const int error = qp->context->ops.post_send(qp, &request, &bad);
  // The key changes at once: the application may send it to its peer right behind the binding.
  if (error == 0) mw->rkey = request.bind_mw.rkey;
  return error;
}

int poll_cq(ibv_cq* abi, int count, ibv_wc* wc) {
  Cq& cq = Cq::of(abi);
  const int found = cq.queue->poll(count, wc);
  if (found != 0) return found;
  cq.drive();
  return cq.queue->poll(count, wc);
}

int req_notify_cq(ibv_cq* abi, int solicited_only) {
  Cq& cq = Cq::of(abi);
  using Event = queues::CompletionQueue::Event;
  const Event event = cq.queue->arm(solicited_only != 0);
  if (event == Event::kNow && cq.comp_channel != nullptr) cq.comp_channel->events->post(cq);
  if (event == Event::kHeld) cq.hold_event();
  cq.shards.for_each(cq.owner.home(), [](engine::Shard& shard) { shard.expect_sleep(); });
  return 0;
}

}  // namespace

// Functions for fields that were not requested stay null, as in rdma-core's providers.
void fill_extended_polling(ibv_cq_ex& cq, uint64_t fields) {
  const auto fill = [fields](auto& function, uint64_t field, auto with) {
    if ((fields & field) != 0) function = with;
  };
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read<&Completion::vendor_err, uint32_t>;
  cq.read_wc_flags = read<&Completion::wc_flags, unsigned>;
  fill(cq.read_byte_len, IBV_WC_EX_WITH_BYTE_LEN, read<&Completion::byte_len, uint32_t>);
  fill(cq.read_imm_data, IBV_WC_EX_WITH_IMM, read<&Completion::imm_data, __be32>);
  fill(cq.read_qp_num, IBV_WC_EX_WITH_QP_NUM, read<&Completion::qp_num, uint32_t>);
  fill(cq.read_src_qp, IBV_WC_EX_WITH_SRC_QP, read<&Completion::src_qp, uint32_t>);
  fill(cq.read_slid, IBV_WC_EX_WITH_SLID, read_nothing<uint32_t>);
  fill(cq.read_sl, IBV_WC_EX_WITH_SL, read<&Completion::sl, uint8_t>);
  fill(cq.read_dlid_path_bits, IBV_WC_EX_WITH_DLID_PATH_BITS, read_nothing<uint8_t>);
  fill(cq.read_completion_ts, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, read<&Completion::timestamp, uint64_t>);
  fill(cq.read_completion_wallclock_ns, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
       read<&Completion::wallclock, uint64_t>);
  fill(cq.read_cvlan, IBV_WC_EX_WITH_CVLAN, read<&Completion::cvlan, uint16_t>);
  fill(cq.read_flow_tag, IBV_WC_EX_WITH_FLOW_TAG, read<&Completion::flow_tag, uint32_t>);
  fill(cq.read_tm_info, IBV_WC_EX_WITH_TM_INFO, read_tm_info);
}

void fill_data_path(ibv_context_ops& ops) {
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  ops.post_srq_recv = post_srq_recv;
  ops.bind_mw = bind_mw;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
}

}  // namespace verbena::adapter
