// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/send_request.h"

#include <array>
#include <cstring>

#include "adapter/memory/guarded.h"
#include "adapter/memory/region.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/objects.h"
#include "adapter/objects/queue_pairs.h"
#include "adapter/queues/status_words.h"
#include "adapter/transport/gather.h"
#include "adapter/transport/qp_state.h"
#include "adapter/transport/send_request.h"
#include "base/failed_call.h"
#include "base/probes.h"

namespace verbena::adapter {

namespace {

using queues::SendWqe;

// Copies the operands of a request from the C struct. There is one function for each enum Operand.
using Take = int (*)(SendWqe& wqe, const ibv_send_wr& wr);

int take_remote(SendWqe& wqe, const ibv_send_wr& wr) {
  wqe.remote_address = wr.wr.rdma.remote_addr;
  wqe.rkey = wr.wr.rdma.rkey;
  return 0;
}

int take_atomic(SendWqe& wqe, const ibv_send_wr& wr) {
  wqe.remote_address = wr.wr.atomic.remote_addr;
  wqe.rkey = wr.wr.atomic.rkey;
  wqe.compare_add = wr.wr.atomic.compare_add;
  wqe.swap = wr.wr.atomic.swap;
  return 0;
}

// The part of a key that programs choose.
constexpr uint32_t kTag = 0xff;

// Gives the window its new key, because nothing can fail after this. A later request of the list may use the
// key.
int take_window(SendWqe& wqe, const ibv_send_wr& wr) {
  ibv_mw* const window = wr.bind_mw.mw;
  if (window == nullptr) return because(EINVAL, "bind_mw.mw is null");
  fill_binding(wqe, *window, wr.bind_mw.rkey, wr.bind_mw.bind_info);
  if (window->type == IBV_MW_TYPE_2) window->rkey = (window->rkey & ~kTag) | (wr.bind_mw.rkey & kTag);
  return 0;
}

// Only ibv_wr_flush() of newer headers has parameters for a FLUSH.
int take_flush(SendWqe&, const ibv_send_wr&) {
  return because(EOPNOTSUPP, "a FLUSH is posted by ibv_wr_flush()");
}

constexpr std::array<Take, 6> kTake = {
    [](SendWqe&, const ibv_send_wr&) { return 0; },
    take_remote,
    take_atomic,
    [](SendWqe&, const ibv_send_wr&) { return 0; },  // the key is in the place of immediate data
    take_window,
    take_flush};
static_assert(static_cast<size_t>(Operand::kFlush) + 1 == kTake.size());

// Copies the part of the destination that the connection does not determine.
int take_destination(SendWqe& wqe, const ibv_send_wr& wr, const Qp& qp) {
  if (qp.init.qp_type == IBV_QPT_UD) {
    if (wr.wr.ud.ah == nullptr) [[unlikely]]
      return because(EINVAL, "wr.ud.ah is null");
    take_address(wqe, Ah::of(wr.wr.ud.ah), qp);
    wqe.remote_qpn = roce::Qpn(wr.wr.ud.remote_qpn);
    wqe.remote_qkey = wr.wr.ud.remote_qkey;
  } else if (qp.init.qp_type == IBV_QPT_XRC_SEND) {
    wqe.remote_srqn = wr.qp_type.xrc.remote_srqn;
  }
  return 0;
}

// Copies the application's data into the request. The buffer needs no key and may be changed after posting.
int fill_inline(SendWqe& wqe, std::span<const ibv_sge> list) {
  wqe.num_sge = 0;
  std::byte* to = wqe.inline_space();
  const bool copied = memory::guarded([&] {
    for (const ibv_sge& sge : list) {
      if (sge.length > 0) std::memcpy(to, reinterpret_cast<const void*>(sge.addr), sge.length);
      to += sge.length;
    }
  });
  return copied ? 0 : because(EFAULT, "the inline data is not in the program's memory");
}

// Checks the length and the inline flag against the purpose of the gather list.
int check_data(Data data, uint64_t length, const ibv_send_wr& wr, uint32_t max_inline) {
  const bool is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (data == Data::kSent && length <= (is_inline ? max_inline : transport::kMaxMessageBytes)) [[likely]]
    return 0;
  const bool may_be_inline = data == Data::kSent || data == Data::kWord;
  if (is_inline && !may_be_inline) return because(EINVAL, "this operation has no inline data");
  if (is_inline && length > max_inline)
    return because(EINVAL, "{} bytes inline, max_inline_data is {}", length, max_inline);
  switch (data) {
    case Data::kNone:
      return wr.num_sge == 0 ? 0 : because(EINVAL, "this operation has no data, num_sge is {}", wr.num_sge);
    case Data::kWord:
      return length == sizeof(uint64_t) ? 0
                                        : because(EINVAL, "an atomic WRITE has eight bytes, not {}", length);
    case Data::kOriginal:
      return length >= sizeof(uint64_t) && length <= transport::kMaxMessageBytes
                 ? 0
                 : because(EINVAL, "what an atomic operation finds needs eight bytes, not {}", length);
    default:
      return length <= transport::kMaxMessageBytes
                 ? 0
                 : because(EINVAL, "the message has {} bytes, at most {} are possible", length,
                           transport::kMaxMessageBytes);
  }
}

// Decides about a request that the service does not carry out. 0: it may be posted, and completes with an
// error.
[[gnu::cold, gnu::noinline]] int check_unsupported(uint32_t opcode, const ibv_send_wr& wr, const Qp& qp) {
  constexpr uint64_t kWord = sizeof(uint64_t) - 1;
  const uint8_t service = service_bit(qp.init.qp_type);
  const char* const name = queues::send_opcode_name(opcode);
  if (!completes_with_error(opcode, service)) {
    const int error = refusal_of(opcode, service);
    if (name == nullptr) return because(error, "opcode {} is none of enum ibv_wr_opcode", opcode);
    return because(error, "{} is not supported on {}", name, queues::name_of(qp.init.qp_type));
  }
  // librxe's post checks the alignment for every service.
  if (kSendRules[opcode].operand == Operand::kAtomic && (wr.wr.atomic.remote_addr & kWord) != 0) {
    return because(EINVAL, "{} is not supported on {}, and its remote_addr {:#x} is no multiple of 8", name,
                   queues::name_of(qp.init.qp_type), wr.wr.atomic.remote_addr);
  }
  return 0;
}

// rdma-core's rxe returns this for data that exceeds the QP's capacities.
constexpr int kTooMuch = ENOSPC;

Qp& of(ibv_qp_ex* qp) {
  return *static_cast<Qp*>(qp);
}

// Fails the batch. Its first error stays, with the reason.
template <class... Args>
[[gnu::cold]] void fail(Qp& qp, int error, fmt::format_string<Args...> words, const Args&... arguments) {
  if (qp.batch.error == 0) qp.batch.error = because(error, words, arguments...);
}

[[gnu::cold]] void fail_without_address(Qp& qp) {
  fail(qp, EINVAL, "a request has no address: {} follows it",
       qp.init.qp_type == IBV_QPT_UD ? "ibv_wr_set_ud_addr()" : "ibv_wr_set_xrc_srqn()");
}

// ---- the batch

void start(ibv_qp_ex* abi) {
  Qp& qp = of(abi);
  SendBatch& batch = qp.batch;
  if (batch.lock != nullptr) batch.lock->lock();
  batch.first = batch.ring->posted();
  batch.room = batch.ring->room();
  batch.filled = 0;
  batch.data = Data::kNone;
  batch.unaddressed = false;
  const ibv_qp_state state = qp.transport->state();
  batch.error = transport::accepts_sends(state)
                    ? 0
                    : because(EINVAL, "it is in {}; ibv_wr_start needs RTS", transport::name_of(state));
}

// Ends the batch, and posts its requests if `post` is set and there was no error.
int finish(Qp& qp, bool post) {
  SendBatch& batch = qp.batch;
  if (batch.error == SendBatch::kNotOpen)
    return because(EINVAL, "no batch is open: ibv_wr_start() begins one");
  if (batch.unaddressed) fail_without_address(qp);
  const int error = batch.error;
  const uint32_t posted = error == 0 && post ? batch.filled : 0;
  batch.error = SendBatch::kNotOpen;
  if (posted > 0) batch.ring->publish(posted);
  if (batch.lock != nullptr) batch.lock->unlock();
  if (posted > 0) qp.shard.ring(*qp.transport);
  return error;
}

int complete(ibv_qp_ex* abi) {
  Qp& qp = of(abi);
  const int error = finish(qp, true);
  if (error != 0) [[unlikely]]
    say_call_failed("ibv_wr_complete", concerning_qp(qp, error));
  return error;
}

void abort(ibv_qp_ex* abi) {
  finish(of(abi), false);
}

// ---- requests

// Begins a request. Returns nullptr when the batch has failed before, or fails here.
template <uint8_t kOpcode, bool kAddressed>
SendWqe* begin(Qp& qp) {
  SendBatch& batch = qp.batch;
  if (batch.error != 0) return nullptr;
  if (batch.filled == batch.room) {
    batch.room = batch.ring->room();  // requests may have been consumed meanwhile
    if (batch.filled == batch.room)
      batch.error = because(ENOMEM, "the queue is full: it has room for {} requests (max_send_wr)",
                            batch.ring->capacity());
  }
  if (kAddressed && batch.unaddressed) fail_without_address(qp);
  if (batch.error != 0) return nullptr;
  SendWqe* wqe = &batch.ring->at(batch.first + batch.filled++);
  batch.wqe = wqe;
  batch.data = kSendRules[kOpcode].data;
  if constexpr (kAddressed) batch.unaddressed = true;
  wqe->wr_id = qp.wr_id;
  wqe->opcode = kOpcode;
  wqe->flags = static_cast<uint8_t>(qp.wr_flags & queues::kSendFlags & ~unsigned{IBV_SEND_INLINE});
  wqe->length = 0;
  wqe->num_sge = 0;
  VERBENA_PROBE(post_send, qp.qp_base.qp_num, wqe->wr_id, wqe->opcode, wqe->length);
  return wqe;
}

template <bool kAddressed>
struct Make {
  static void send(ibv_qp_ex* abi) { begin<IBV_WR_SEND, kAddressed>(of(abi)); }

  static void send_immediate(ibv_qp_ex* abi, __be32 immediate) {
    if (SendWqe* wqe = begin<IBV_WR_SEND_WITH_IMM, kAddressed>(of(abi))) wqe->immediate = immediate;
  }

  static void send_invalidate(ibv_qp_ex* abi, uint32_t rkey) {
    if (SendWqe* wqe = begin<IBV_WR_SEND_WITH_INV, kAddressed>(of(abi))) wqe->immediate = rkey;
  }

  template <uint8_t kOpcode>
  static SendWqe* remote(ibv_qp_ex* abi, uint32_t rkey, uint64_t address) {
    SendWqe* wqe = begin<kOpcode, kAddressed>(of(abi));
    if (wqe == nullptr) return nullptr;
    wqe->rkey = rkey;
    wqe->remote_address = address;
    return wqe;
  }

  static void write(ibv_qp_ex* abi, uint32_t rkey, uint64_t address) {
    remote<IBV_WR_RDMA_WRITE>(abi, rkey, address);
  }

  static void write_immediate(ibv_qp_ex* abi, uint32_t rkey, uint64_t address, __be32 immediate) {
    if (SendWqe* wqe = remote<IBV_WR_RDMA_WRITE_WITH_IMM>(abi, rkey, address)) wqe->immediate = immediate;
  }

  static void read(ibv_qp_ex* abi, uint32_t rkey, uint64_t address) {
    remote<IBV_WR_RDMA_READ>(abi, rkey, address);
  }

  static void compare_swap(ibv_qp_ex* abi, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap) {
    SendWqe* wqe = remote<IBV_WR_ATOMIC_CMP_AND_SWP>(abi, rkey, address);
    if (wqe == nullptr) return;
    wqe->compare_add = compare;
    wqe->swap = swap;
  }

  static void fetch_add(ibv_qp_ex* abi, uint32_t rkey, uint64_t address, uint64_t add) {
    if (SendWqe* wqe = remote<IBV_WR_ATOMIC_FETCH_AND_ADD>(abi, rkey, address)) wqe->compare_add = add;
  }

  // The call brings the eight bytes, so they are sent inline.
  static void atomic_write(ibv_qp_ex* abi, uint32_t rkey, uint64_t address, const void* value) {
    SendWqe* wqe = remote<IBV_WR_ATOMIC_WRITE>(abi, rkey, address);
    if (wqe == nullptr) return;
    wqe->flags |= IBV_SEND_INLINE;
    wqe->length = sizeof(uint64_t);
    if (!memory::copy_guarded(wqe->inline_space(),
                              {static_cast<const std::byte*>(value), sizeof(uint64_t)})) {
      fail(of(abi), EFAULT, "value {} is not in the program's memory", value);
    }
    of(abi).batch.data = Data::kNone;
  }

  static void flush(ibv_qp_ex* abi, uint32_t rkey, uint64_t address, size_t length, uint8_t placement,
                    uint8_t selectivity) {
    SendWqe* wqe = begin<queues::kFlushOpcode, kAddressed>(of(abi));
    if (wqe == nullptr) return;
    // On the wire the length has 32 bits, and only these kinds exist.
    const bool known = placement != 0 &&
                       (placement & ~(memory::kPlacementGlobal | memory::kPlacementPersistent)) == 0 &&
                       selectivity <= memory::kSelectRegion;
    if (!known || length > UINT32_MAX)
      return fail(of(abi), EINVAL, "placement {:#x}, selectivity {:#x} or length {} is none of a FLUSH",
                  placement, selectivity, length);
    queues::set_flush_range(*wqe, {address, length, rkey, placement, selectivity});
  }

  static void local_invalidate(ibv_qp_ex* abi, uint32_t rkey) {
    SendWqe* wqe = begin<IBV_WR_LOCAL_INV, kAddressed>(of(abi));
    if (wqe == nullptr) return;
    wqe->immediate = rkey;
    of(abi).batch.unaddressed = false;  // it needs no address
  }

  static void bind_window(ibv_qp_ex* abi, ibv_mw* window, uint32_t rkey, const ibv_mw_bind_info* info) {
    SendWqe* wqe = begin<IBV_WR_BIND_MW, kAddressed>(of(abi));
    if (wqe == nullptr) return;
    if (window == nullptr || info == nullptr) return fail(of(abi), EINVAL, "mw or bind_info is null");
    fill_binding(*wqe, *window, rkey, *info);
    of(abi).batch.unaddressed = false;
  }
};

// ---- setters

void set_datagram_address(ibv_qp_ex* abi, ibv_ah* ah, uint32_t remote_qpn, uint32_t remote_qkey) {
  Qp& qp = of(abi);
  SendBatch& batch = qp.batch;
  if (batch.error != 0 || batch.filled == 0) return;
  if (ah == nullptr) return fail(qp, EINVAL, "ah is null");
  take_address(*batch.wqe, Ah::of(ah), qp);
  batch.wqe->remote_qpn = roce::Qpn(remote_qpn);
  batch.wqe->remote_qkey = remote_qkey;
  batch.unaddressed = false;
}

void set_xrc_address(ibv_qp_ex* abi, uint32_t remote_srqn) {
  SendBatch& batch = of(abi).batch;
  if (batch.error != 0 || batch.filled == 0) return;
  batch.wqe->remote_srqn = remote_srqn;
  batch.unaddressed = false;
}

// Checks that the latest request takes data of this kind and length, and notes the length.
bool accept_data(Qp& qp, uint64_t length) {
  SendBatch& batch = qp.batch;
  if (batch.error != 0) return false;
  if (batch.data == Data::kOriginal) {
    if (length < sizeof(uint64_t))
      return fail(qp, EINVAL, "the result of an atomic operation needs eight bytes, not {}", length), false;
    length = sizeof(uint64_t);
  }
  if (batch.data == Data::kNone) return fail(qp, EINVAL, "the operation takes no data"), false;
  if (length > transport::kMaxMessageBytes)
    return fail(qp, EINVAL, "the message has {} bytes, max_msg_sz is {}", length,
                transport::kMaxMessageBytes),
           false;
  batch.wqe->flags &= static_cast<uint8_t>(~unsigned{IBV_SEND_INLINE});  // of an earlier setter
  batch.wqe->length = static_cast<uint32_t>(length);
  return true;
}

void set_sge(ibv_qp_ex* abi, uint32_t lkey, uint64_t address, uint32_t length) {
  Qp& qp = of(abi);
  if (!accept_data(qp, length)) return;
  qp.batch.wqe->num_sge = 1;
  *qp.batch.wqe->sge_space() = {address, length, lkey};
}

void set_sge_list(ibv_qp_ex* abi, size_t count, const ibv_sge* list) {
  Qp& qp = of(abi);
  const uint32_t max_sge = qp.init.cap.max_send_sge;
  if (count > max_sge) return fail(qp, kTooMuch, "num_sge {} exceeds max_send_sge {}", count, max_sge);
  if (!accept_data(qp, transport::total_length({list, count}))) return;
  qp.batch.wqe->num_sge = static_cast<uint16_t>(count);
  queues::copy_list({list, count}, qp.batch.wqe->sge_space());
}

void set_inline_data_list(ibv_qp_ex* abi, size_t count, const ibv_data_buf* list) {
  Qp& qp = of(abi);
  if (qp.batch.data != Data::kSent) fail(qp, EINVAL, "the operation has no inline data");
  const uint32_t room = qp.init.cap.max_inline_data;
  uint64_t length = 0;
  for (size_t i = 0; i < count; ++i) {
    if (list[i].length > room - length)
      return fail(qp, kTooMuch, "more inline data than max_inline_data {}", room);
    length += list[i].length;
  }
  if (!accept_data(qp, length)) return;
  qp.batch.wqe->flags |= IBV_SEND_INLINE;
  std::byte* to = qp.batch.wqe->inline_space();
  const bool copied = memory::guarded([&] {
    for (size_t i = 0; i < count; ++i) {
      if (list[i].length > 0) std::memcpy(to, list[i].addr, list[i].length);
      to += list[i].length;
    }
  });
  if (!copied) fail(qp, EFAULT, "the inline data is not in the program's memory");
}

void set_inline_data(ibv_qp_ex* abi, void* from, size_t length) {
  Qp& qp = of(abi);
  SendBatch& batch = qp.batch;
  if (batch.error != 0) return;
  if (batch.data != Data::kSent) return fail(qp, EINVAL, "the operation has no inline data");
  const uint32_t room = qp.init.cap.max_inline_data;
  if (length > room) return fail(qp, kTooMuch, "{} bytes inline exceed max_inline_data {}", length, room);
  SendWqe& wqe = *batch.wqe;
  wqe.flags |= IBV_SEND_INLINE;
  wqe.length = static_cast<uint32_t>(length);
  if (!memory::copy_guarded(wqe.inline_space(), {static_cast<const std::byte*>(from), length})) {
    fail(qp, EFAULT, "the inline data is not in the program's memory");
  }
}

// ---- operations that a QP was not created for

template <class... Arguments>
void refuse(ibv_qp_ex* abi, Arguments...) {
  fail(of(abi), EINVAL, "the operation was not among send_ops_flags when the queue pair was created");
}

template <class... Arguments>
void choose(void (*&slot)(ibv_qp_ex*, Arguments...), bool wanted,
            void (*function)(ibv_qp_ex*, Arguments...)) {
  slot = wanted ? function : &refuse<Arguments...>;
}

template <bool kAddressed>
void fill_requests(ExtendedQp& qp, uint64_t operations) {
  using M = Make<kAddressed>;
  const auto wanted = [&](ibv_qp_create_send_ops_flags flag) { return (operations & flag) != 0; };
  choose(qp.wr_send, wanted(IBV_QP_EX_WITH_SEND), &M::send);
  choose(qp.wr_send_imm, wanted(IBV_QP_EX_WITH_SEND_WITH_IMM), &M::send_immediate);
  choose(qp.wr_send_inv, wanted(IBV_QP_EX_WITH_SEND_WITH_INV), &M::send_invalidate);
  choose(qp.wr_rdma_write, wanted(IBV_QP_EX_WITH_RDMA_WRITE), &M::write);
  choose(qp.wr_rdma_write_imm, wanted(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM), &M::write_immediate);
  choose(qp.wr_rdma_read, wanted(IBV_QP_EX_WITH_RDMA_READ), &M::read);
  choose(qp.wr_atomic_cmp_swp, wanted(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP), &M::compare_swap);
  choose(qp.wr_atomic_fetch_add, wanted(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD), &M::fetch_add);
  choose(qp.wr_atomic_write, wanted(IBV_QP_EX_WITH_ATOMIC_WRITE), &M::atomic_write);
  choose(qp.wr_flush, (operations & queues::kFlushOperation) != 0, &M::flush);
  choose(qp.wr_local_inv, wanted(IBV_QP_EX_WITH_LOCAL_INV), &M::local_invalidate);
  choose(qp.wr_bind_mw, wanted(IBV_QP_EX_WITH_BIND_MW), &M::bind_window);
  qp.wr_send_tso = &refuse<void*, uint16_t, uint16_t>;
}

}  // namespace

void take_address(SendWqe& wqe, const Ah& ah, const Qp& qp) {
  wqe.path = ah.path;
  if (ah.domain->id != qp.transport->config().pd) [[unlikely]]
    wqe.flags |= queues::kRefusedRequest;
}

void fill_binding(SendWqe& wqe, const ibv_mw& window, uint32_t new_key, const ibv_mw_bind_info& info) {
  wqe.set_binding({.window_key = window.rkey,
                   .new_key = new_key,
                   .region_key = info.mr != nullptr ? info.mr->lkey : 0,
                   .address = info.addr,
                   .length = info.length,
                   .access = info.mw_access_flags});
}

int fill(SendWqe& wqe, const ibv_send_wr& wr, const Qp& qp) {
  const auto opcode = static_cast<uint32_t>(wr.opcode);
  const bool is_executed = opcode < kSendOpcodes && (qp.send_opcodes >> opcode & 1) != 0;
  if (!is_executed) [[unlikely]] {
    if (const int error = check_unsupported(opcode, wr, qp); error != 0) return error;
  }
  const SendRule& rule = kSendRules[opcode];
  const ibv_qp_cap& cap = qp.init.cap;
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > cap.max_send_sge) [[unlikely]]
    return because(EINVAL, "num_sge {} is not within 0 to max_send_sge {}", wr.num_sge, cap.max_send_sge);
  const std::span<const ibv_sge> list(wr.sg_list, static_cast<size_t>(wr.num_sge));
  const uint64_t length = list.size() == 1 ? list[0].length : transport::total_length(list);
  if (const int error = check_data(rule.data, length, wr, cap.max_inline_data); error != 0) [[unlikely]]
    return error;
  VERBENA_PROBE(post_send, qp.qp_base.qp_num, wr.wr_id, wr.opcode, length);

  wqe.wr_id = wr.wr_id;
  wqe.opcode = static_cast<uint8_t>(opcode);
  wqe.flags = static_cast<uint8_t>(wr.send_flags & queues::kSendFlags);
  wqe.length = rule.data == Data::kOriginal ? sizeof(uint64_t) : static_cast<uint32_t>(length);
  wqe.immediate = wr.imm_data;
  wqe.num_sge = static_cast<uint16_t>(wr.num_sge);
  if (rule.operand != Operand::kNone) {
    if (const int error = kTake[static_cast<size_t>(rule.operand)](wqe, wr); error != 0) return error;
  }
  if (!is_executed) [[unlikely]] {
    wqe.flags |= queues::kRefusedRequest;  // no address handle: it shares the remote address's place
  } else if (const int error = take_destination(wqe, wr, qp); error != 0) {
    return error;
  }
  if (wqe.is_inline()) return fill_inline(wqe, list);
  queues::copy_list(list, wqe.sge_space());
  return 0;
}

void fill_send_operations(Qp& qp, uint64_t operations) {
  qp.batch.ring = &qp.transport->send_queue();
  qp.batch.lock = qp.one_thread ? nullptr : &qp.transport->send_lock();
  const ibv_qp_type type = qp.init.qp_type;
  if (type == IBV_QPT_UD || type == IBV_QPT_XRC_SEND) {
    fill_requests<true>(qp, operations);
  } else {
    fill_requests<false>(qp, operations);
  }
  choose(qp.wr_set_ud_addr, type == IBV_QPT_UD, &set_datagram_address);
  choose(qp.wr_set_xrc_srqn, type == IBV_QPT_XRC_SEND, &set_xrc_address);
  qp.wr_set_sge = set_sge;
  qp.wr_set_sge_list = set_sge_list;
  qp.wr_set_inline_data = set_inline_data;
  qp.wr_set_inline_data_list = set_inline_data_list;
  qp.wr_start = start;
  qp.wr_complete = complete;
  qp.wr_abort = abort;
}

}  // namespace verbena::adapter
