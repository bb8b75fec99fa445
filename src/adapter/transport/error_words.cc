// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/error_words.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <string_view>

#include <unistd.h>

#include "adapter/memory/key_table.h"
#include "adapter/queues/status_words.h"
#include "adapter/transport/gather.h"
#include "base/format.h"
#include "wire/roce/prefix.h"

namespace verbena::transport {
namespace {

using queues::SendWqe;
using roce::NakCode;
using roce::Operation;

// Usual causes, by ibv_wc_status. Empty: the cause is looked up.
constexpr std::string_view kCauses[] = {
    "",  // success
    "the message is longer than the receive request, or than the path MTU of a datagram",
    "this operation is not one of the queue pair's service, or the request is not well formed",
    "",  // of end-to-end contexts
    "",  // local protection
    "",  // flushed
    "the window, its region, the rights or the protection domain do not fit each other",
    "the peer's answer fits no request of ours: its path MTU is another one, as a rule",
    "a receive request's memory does not allow what a RDMA WRITE with immediate data needs",
    "the peer's queue pair does not take such a request: its access flags, max_dest_rd_atomic, another path "
    "MTU, or a receive request that is too short. VERBENA_LOG=error there says which",
    "the peer's key is of no region, or its range, rights or protection domain do not allow it. "
    "VERBENA_LOG=error there says which",
    "the peer could not carry it out: the memory of its receive request, as a rule. VERBENA_LOG=error there "
    "says more",
    "",  // transport retries
    "",  // of messages without a receive request
};
static_assert(std::size(kCauses) == IBV_WC_RNR_RETRY_EXC_ERR + 1);

std::string_view name_of(ibv_wc_status status) {
  return status < std::size(queues::kCompletionStatuses) ? queues::kCompletionStatuses[status] : "error";
}

std::string_view usual_cause(ibv_wc_status status) {
  return status < std::size(kCauses) ? kCauses[status] : "";
}

struct OperationWords {
  ibv_wr_opcode opcode;
  std::string_view name;
};
constexpr OperationWords kOperations[] = {
    {IBV_WR_RDMA_WRITE, "RDMA WRITE"},
    {IBV_WR_RDMA_WRITE_WITH_IMM, "RDMA WRITE with immediate data"},
    {IBV_WR_SEND, "SEND"},
    {IBV_WR_SEND_WITH_IMM, "SEND with immediate data"},
    {IBV_WR_RDMA_READ, "RDMA READ"},
    {IBV_WR_ATOMIC_CMP_AND_SWP, "compare and swap"},
    {IBV_WR_ATOMIC_FETCH_AND_ADD, "fetch and add"},
    {IBV_WR_LOCAL_INV, "local invalidate"},
    {IBV_WR_BIND_MW, "memory window bind"},
    {IBV_WR_SEND_WITH_INV, "SEND with invalidate"},
    {IBV_WR_TSO, "segmented SEND"},
    {IBV_WR_ATOMIC_WRITE, "atomic WRITE"},
};

std::string_view name_of(uint32_t opcode) {
  const auto found =
      std::ranges::find(kOperations, opcode, [](const OperationWords& o) { return uint32_t{o.opcode}; });
  return found != std::end(kOperations) ? found->name : "request";
}

bool names_remote_memory(uint32_t opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM || opcode == IBV_WR_RDMA_READ;
}

std::string range_text(uint64_t address, uint64_t bytes) {
  return verbena::format("[{:#x}, {:#x})", address, address + bytes);
}

// The access right that a packet needs, and the name of its flag.
struct Wanted {
  memory::Access access;
  std::string_view flag;
};
Wanted wanted_by(Operation operation) {
  switch (operation) {
    case Operation::kReadRequest:
      return {IBV_ACCESS_REMOTE_READ, "IBV_ACCESS_REMOTE_READ"};
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return {IBV_ACCESS_REMOTE_ATOMIC, "IBV_ACCESS_REMOTE_ATOMIC"};
    case Operation::kFlush:
      return {0, "IBV_ACCESS_FLUSH_GLOBAL or _PERSISTENT"};
    default:
      return {IBV_ACCESS_REMOTE_WRITE, "IBV_ACCESS_REMOTE_WRITE"};
  }
}

bool has_remote_key(const roce::Headers& headers) {
  return headers.info().has(roce::kReth) || headers.info().has(roce::kAtomicEth);
}

std::string why_no_access(const QueuePair& qp, const roce::Headers& headers) {
  if (headers.info().has(roce::kIeth))
    return verbena::format("key {:#x} is not that of a memory window which it may invalidate",
                           headers.invalidate_rkey);
  if (!has_remote_key(headers)) return "the memory that the message goes to is no longer registered, or gone";
  const auto region = qp.config().keys->open(headers.rkey);
  if (!region)
    return verbena::format(
        "no region or memory window has key {:#x}: it was deregistered, or never registered here",
        headers.rkey);
  const Wanted wanted = wanted_by(headers.operation());
  const uint64_t bytes = headers.info().has(roce::kAtomicEth) ? sizeof(uint64_t) : headers.dma_length;
  if (region->pd != qp.config().pd)
    return verbena::format("key {:#x} is of another protection domain than the queue pair", headers.rkey);
  if (region->length == 0 && region->kind != memory::RegionKind::kMemory)
    return verbena::format("the memory window of key {:#x} is not bound", headers.rkey);
  if (((~region->access) & wanted.access) != 0)
    return verbena::format("key {:#x} was registered without {}", headers.rkey, wanted.flag);
  if (((region->qpn ^ qp.config().qpn.value()) & region->qpn_mask) != 0)
    return verbena::format("the memory window of key {:#x} is bound to another queue pair", headers.rkey);
  if (region->at(headers.address, bytes) == nullptr) {
    return verbena::format("{} is not within {}, which key {:#x} is for", range_text(headers.address, bytes),
                           range_text(region->iova, region->length), headers.rkey);
  }
  return verbena::format("the memory behind key {:#x} is no longer there", headers.rkey);
}

// Describes the sizes that differ; empty: none.
std::string misfit_text(const Misfit& misfit) {
  switch (misfit.kind) {
    case Misfit::Kind::kNone:
      return {};
    case Misfit::Kind::kPathMtu:
      return verbena::format("path MTU mismatch: local {}, packet has {}", misfit.room, misfit.bytes);
    case Misfit::Kind::kReceiveBuffer:
      return verbena::format("message of {} bytes, receive buffer of {}", misfit.bytes, misfit.room);
    case Misfit::Kind::kPartOfMessage:
      return verbena::format("message of {} bytes or more, receive buffer of {}", misfit.bytes, misfit.room);
  }
  return {};
}

std::string why_invalid(const QueuePair& qp, const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  const Operation operation = headers.operation();
  const bool is_send = operation <= Operation::kSendOnlyImmediate ||
                       operation == Operation::kSendLastInvalidate ||
                       operation == Operation::kSendOnlyInvalidate;
  if (is_send) return "the packets of its message do not follow each other";
  const Wanted wanted = wanted_by(operation);
  if ((qp.attributes().access & wanted.access) != wanted.access)
    return verbena::format("the queue pair's qp_access_flags do not have {}", wanted.flag);
  if (headers.info().has(roce::kAtomicEth) && (headers.address & 7) != 0)
    return verbena::format("the address {:#x} is not a multiple of eight", headers.address);
  if (wanted.access != IBV_ACCESS_REMOTE_WRITE || operation == Operation::kAtomicWrite) {
    return verbena::format("more READs and atomics at a time than the queue pair's max_dest_rd_atomic, {}",
                           qp.attributes().max_dest_rd_atomic);
  }
  return "its packets do not follow each other, or are not as long as the path MTU wants";
}

// Why a gather or scatter list cannot be used.
std::string why_no_local(const QueuePair& qp, const SendWqe& wqe, memory::Access wanted) {
  for (const ibv_sge& sge : wqe.sges()) {
    const auto region = qp.config().keys->open(sge.lkey);
    if (!region)
      return verbena::format(
          "no region has the local key {:#x}: it was deregistered, or never registered here", sge.lkey);
    if (region->pd != qp.config().pd)
      return verbena::format("the local key {:#x} is of another protection domain than the queue pair",
                             sge.lkey);
    if (!region->allows_local(wanted, qp.config().pd))
      return verbena::format("the local key {:#x} was registered without IBV_ACCESS_LOCAL_WRITE", sge.lkey);
    if (region->at(sge.addr, sge.length) == nullptr) {
      return verbena::format("{} is not within {}, which the local key {:#x} is for",
                             range_text(sge.addr, sge.length), range_text(region->iova, region->length),
                             sge.lkey);
    }
  }
  return "the memory that was registered is no longer there";
}

std::string peer_text(const QueuePair& qp) {
  const QpAttributes& attributes = qp.attributes();
  return verbena::format("QP {:#08x} at {}", attributes.destination.value(),
                         roce::text_of(attributes.path.destination));
}

std::string why_no_answer(const QueuePair& qp) {
  const QpAttributes& attributes = qp.attributes();
  Routes* const routes = qp.config().routes;
  const std::string obstacle =
      routes != nullptr ? routes->obstacle(attributes.path, attributes.destination) : std::string();
  const auto timeout = std::chrono::duration<double, std::milli>(roce::ack_timeout(attributes.timeout));
  return verbena::format(
      "{} has not answered {} tries of {:.0f} ms or more: {}", peer_text(qp), attributes.retry_count + 1,
      timeout.count(),
      !obstacle.empty()
          ? obstacle
          : "its process may have ended, its queue pair may not be in RTR or RTS, the QP number or "
            "GID may be another's, its rq_psn may not be our sq_psn, or a firewall drops UDP port 4791");
}

std::string why_not_received(const QueuePair& qp) {
  return verbena::format(
      "RNR retries exhausted (rnr_retry {}): peer {} had no receive posted; post receives there before "
      "sending, or set rnr_retry 7 (no limit)",
      qp.attributes().rnr_retry, peer_text(qp));
}

// Why the service cannot execute the request, or cannot use its address handle.
std::string why_no_operation(const QueuePair& qp, const SendWqe& wqe) {
  const bool is_datagram =
      qp.config().type == IBV_QPT_UD && (wqe.opcode == IBV_WR_SEND || wqe.opcode == IBV_WR_SEND_WITH_IMM);
  if (is_datagram) return "the address handle is of another protection domain than the queue pair";
  const char* const name = queues::send_opcode_name(wqe.opcode);
  return verbena::format("{} is not supported on {}", name != nullptr ? name : "the operation",
                         queues::name_of(qp.config().type));
}

std::string cause_of(const QueuePair& qp, const SendWqe& wqe, ibv_wc_status status) {
  const bool is_inline = wqe.is_inline();
  if (status == IBV_WC_LOC_PROT_ERR && !is_inline) {
    return why_no_local(qp, wqe, wqe.opcode == IBV_WR_RDMA_READ ? memory::Access{IBV_ACCESS_LOCAL_WRITE} : 0);
  }
  if (status == IBV_WC_LOC_QP_OP_ERR && wqe.is_refused()) return why_no_operation(qp, wqe);
  if (status == IBV_WC_LOC_LEN_ERR && qp.config().type == IBV_QPT_UD)
    return verbena::format("a datagram is one packet, of at most {} bytes here (the port's active_mtu)",
                           qp.attributes().path_mtu);
  if (status == IBV_WC_RETRY_EXC_ERR) return why_no_answer(qp);
  if (status == IBV_WC_RNR_RETRY_EXC_ERR) return why_not_received(qp);
  return std::string(usual_cause(status));
}

}  // namespace

std::string why_refused(const QueuePair& qp, const roce::Packet& packet, NakCode code,
                        const Misfit& misfit) noexcept try {
  std::string why = misfit_text(misfit);
  if (!why.empty()) {
    // The size is the reason.
  } else if (code == NakCode::kRemoteAccess) {
    why = why_no_access(qp, packet.headers);
  } else if (code == NakCode::kRemoteOperational) {
    why = "the memory of the receive request cannot be written to";
  } else {
    why = why_invalid(qp, packet);
  }
  return verbena::format("{} (process {}, {})", why, ::getpid(), program_invocation_short_name);
} catch (const std::bad_alloc&) {
  return {};
}

std::string what_failed(const QueuePair& qp, const SendWqe& wqe, ibv_wc_status status,
                        const std::string& peer_words) noexcept try {
  std::string text =
      verbena::format("QP {:#08x}: {} of {} bytes", qp.config().qpn.value(), name_of(wqe.opcode), wqe.length);
  if (names_remote_memory(wqe.opcode))
    text += verbena::format(", address {:#x}, key {:#x},", wqe.remote_address, wqe.rkey);
  text += verbena::format(" failed, {} ({}): ", name_of(status), static_cast<int>(status));
  const bool is_peers =
      status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR;
  if (is_peers && !peer_words.empty())
    return text + verbena::format("{} says: {}", peer_text(qp), peer_words);
  return text + cause_of(qp, wqe, status);
} catch (const std::bad_alloc&) {
  return {};
}

std::string what_failed(const QueuePair& qp, const ibv_wc& receive, const Misfit& misfit) noexcept try {
  std::string why = misfit_text(misfit);
  if (why.empty() && receive.status == IBV_WC_LOC_PROT_ERR)
    why = "its list's keys, ranges or rights do not allow the message to be written there";
  if (why.empty() && receive.status == IBV_WC_REM_INV_REQ_ERR)
    why = "its message was broken off, or wanted a key invalidated that it may not";
  if (why.empty()) why = usual_cause(receive.status);
  return verbena::format("QP {:#08x}: the receive request with wr_id {:#x} failed, {} ({}): {}",
                         qp.config().qpn.value(), receive.wr_id, name_of(receive.status),
                         static_cast<int>(receive.status), why);
} catch (const std::bad_alloc&) {
  return {};
}

std::string what_dropped(const QueuePair& qp, const roce::Address& from, roce::Qpn source,
                         const std::string& why) noexcept try {
  return verbena::format(
      "QP {:#08x}: a message of QP {:#08x} at {} is dropped, as {} wants, without a word to either program: "
      "{}; later ones are only counted",
      qp.config().qpn.value(), source.value(), roce::text_of(from), queues::name_of(qp.config().type), why);
} catch (const std::bad_alloc&) {
  return {};
}

std::string what_overran(const QueuePair& qp, const queues::CompletionQueue& cq, bool of_receives) noexcept
    try {
  return verbena::format(
      "QP {:#08x}: CQ overrun: a completion of its {} queue is lost, as the completion queue of {} entries "
      "is full; the queue pair enters ERR. Poll more often, or create a larger queue: one entry for each "
      "request that may be posted",
      qp.config().qpn.value(), of_receives ? "receive" : "send", cq.capacity());
} catch (const std::bad_alloc&) {
  return {};
}

}  // namespace verbena::transport
