// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <infiniband/verbs.h>

#include "adapter/queues/work_queue.h"
#include "adapter/transport/queue_pair.h"
#include "wire/roce/aeth.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// Texts about errors of a queue pair for VERBENA_LOG=error: the error and its likeliest cause. Slow, as only
// errors need them. Empty when out of memory.
//
// For the shard's lock holder.

// Why the queue pair refuses the packet's request, as far as it can be determined afterwards. For the log,
// and for a peer process of the same user on this host (kRefusalOpcode).
std::string why_refused(const QueuePair& qp, const roce::Packet& packet, roce::NakCode code,
                        const Misfit& misfit = {}) noexcept;

// A send or receive request of the queue pair has failed. `peer_words`: the peer's reason, if it sent one.
std::string what_failed(const QueuePair& qp, const queues::SendWqe& wqe, ibv_wc_status status,
                        const std::string& peer_words) noexcept;
std::string what_failed(const QueuePair& qp, const ibv_wc& receive, const Misfit& misfit = {}) noexcept;

// The queue pair drops a message of `source` at `from`; only the log reports it.
std::string what_dropped(const QueuePair& qp, const roce::Address& from, roce::Qpn source,
                         const std::string& why) noexcept;

// A completion queue of the queue pair is full, and a completion is lost.
std::string what_overran(const QueuePair& qp, const queues::CompletionQueue& cq, bool of_receives) noexcept;

}  // namespace verbena::transport
