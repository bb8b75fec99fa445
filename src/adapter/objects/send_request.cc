// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/send_request.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "adapter/memory/guarded.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/send_rules.h"
#include "adapter/queues/status_words.h"
#include "adapter/transport/gather.h"
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
  if (list.size() == 1) [[likely]] {  // avoids the call of copy()
    *wqe.sge_space() = list[0];
  } else {
    std::copy(list.begin(), list.end(), wqe.sge_space());
  }
  return 0;
}

}  // namespace verbena::adapter
