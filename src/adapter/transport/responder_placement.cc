// SPDX-License-Identifier: Apache-2.0
// ATOMIC WRITE and FLUSH (IBTA volume 1 release 1.5, annex A19): executed in order like an atomic, and
// answered by a READ response without payload, which is kept for duplicates.
#include "adapter/memory/ordered_copy.h"
#include "adapter/memory/placement.h"
#include "adapter/transport/gather.h"
#include "adapter/transport/responder.h"

namespace verbena::transport {

using roce::NakCode;

void Responder::answer_empty() {
  message_ended();
  ResponderResources::Resource resource;
  resource.valid = true;
  resource.kind = ResponderResources::Kind::kEmpty;
  resource.first = resource.last = expected_;
  resource.msn = msn_;
  replies_.add(resource);
  ++expected_;
}

void Responder::execute_atomic_write(const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  constexpr uint32_t kBytes = sizeof(uint64_t);
  if (inbound_.in_message() || !takes_reads() || !qp_.may(IBV_ACCESS_REMOTE_WRITE) ||
      packet.payload.size() != kBytes || headers.dma_length != kBytes || headers.address % kBytes != 0 ||
      !replies_.has_room()) {
    return refuse(NakCode::kInvalidRequest);
  }
  std::byte* at = remote_memory(qp_.keys(), qp_.remote_user(), headers.rkey, headers.address, kBytes,
                                IBV_ACCESS_REMOTE_WRITE);
  if (at == nullptr) return refuse(NakCode::kRemoteAccess);
  // A region may start at any address, whatever addresses its peers use: the processor needs alignment here
  // too.
  if (reinterpret_cast<uintptr_t>(at) % kBytes != 0) return refuse(NakCode::kInvalidRequest);
  if (!memory::copy_in_order_guarded(at, packet.payload)) return refuse(NakCode::kRemoteAccess);
  answer_empty();
}

void Responder::execute_flush(const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  const memory::Access wanted = memory::flush_access(headers.flush_type);
  const bool known = wanted != 0 &&
                     headers.flush_type <= (memory::kPlacementGlobal | memory::kPlacementPersistent) &&
                     headers.flush_selectivity <= memory::kSelectRegion;
  if (!known || inbound_.in_message() || !takes_reads() || (qp_.attributes().access & wanted) != wanted ||
      !replies_.has_room()) {
    return refuse(NakCode::kInvalidRequest);
  }
  const RemoteUser user = qp_.remote_user();
  const auto region = qp_.config().keys->open(headers.rkey);
  const bool allowed = region.has_value() && region->allows_remote(wanted, user.pd, user.qpn.value());
  // For a whole region the range has no meaning (annex A19.3.1).
  const bool inside = headers.flush_selectivity == memory::kSelectRegion ||
                      (allowed && region->at(headers.address, headers.dma_length) != nullptr);
  if (!allowed || !inside) return refuse(NakCode::kRemoteAccess);
  memory::make_visible();
  answer_empty();
}

}  // namespace verbena::transport
