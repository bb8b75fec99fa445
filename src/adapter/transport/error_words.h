// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <infiniband/verbs.h>

#include "adapter/queues/work_queue.h"
#include "adapter/transport/queue_pair.h"
#include "wire/roce/aeth.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// What VERBENA_LOG=error says of a queue pair: what has happened, and the likeliest cause. Of errors only, so
// none of it is quick. Without memory for the words they are left out.
//
// For the shard's lock holder.

// Why the queue pair refuses the packet's request, as far as can be seen now, after it has been refused. For
// the log, and for a peer on this host (kRefusalOpcode).
std::string why_refused(const QueuePair& qp, const roce::Packet& packet, roce::NakCode code,
                        const Misfit& misfit = {}) noexcept;

// A request of ours, or one to receive with, has ended with an error. `peer_words`: what the peer has said of
// it, if anything.
std::string what_failed(const QueuePair& qp, const queues::SendWqe& wqe, ibv_wc_status status,
                        const std::string& peer_words) noexcept;
std::string what_failed(const QueuePair& qp, const ibv_wc& receive, const Misfit& misfit = {}) noexcept;

// The queue pair drops a message of `source` at `from`, and tells nobody but the log.
std::string what_dropped(const QueuePair& qp, const roce::Address& from, roce::Qpn source,
                         const std::string& why) noexcept;

// A completion of the queue pair found its completion queue full.
std::string what_overran(const QueuePair& qp, const queues::CompletionQueue& cq, bool of_receives) noexcept;

}  // namespace verbena::transport
