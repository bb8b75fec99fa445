// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <infiniband/verbs.h>

#include "adapter/queues/work_queue.h"
#include "adapter/transport/queue_pair.h"
#include "wire/roce/aeth.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// Texts about errors of a queue pair for VERBENA_LOG=error: the error and its likeliest cause. Only errors
// need them, so building them may be slow. They are empty if memory has run out.
//
// Threads: the caller holds the shard's lock.

// Returns why the queue pair refuses the packet's request. The reason is looked for after the refusal, so it
// may be inexact. The text goes to the log. It also goes to the peer if that is a process of the same user on
// this host (kRefusalOpcode).
std::string why_refused(const QueuePair& qp, const roce::Packet& packet, roce::NakCode code,
                        const Misfit& misfit = {}) noexcept;

// Describes a send or receive request of the queue pair that has failed. `peer_words` is the reason that the
// peer has sent, or empty.
std::string what_failed(const QueuePair& qp, const queues::SendWqe& wqe, ibv_wc_status status,
                        const std::string& peer_words) noexcept;
std::string what_failed(const QueuePair& qp, const ibv_wc& receive, const Misfit& misfit = {}) noexcept;

// Describes a message that the queue pair drops because of `why`. QP `source` at address `from` has sent it.
// UC and UD send no NAKs, so only the log reports the drop.
std::string what_dropped(const QueuePair& qp, const roce::Address& from, roce::Qpn source,
                         const std::string& why) noexcept;

// Describes a lost completion: `cq`, a completion queue of the queue pair, is full. `of_receives` tells
// whether the completion is of a receive request; if not, it is of a send request.
std::string what_overran(const QueuePair& qp, const queues::CompletionQueue& cq, bool of_receives) noexcept;

}  // namespace verbena::transport
