// SPDX-License-Identifier: Apache-2.0
#pragma once

struct ibv_context;

// Completes what has arrived for the queue pairs of the context: the completions are in their queues when it
// returns. An adapter does so without being asked. librdmacm calls it before it returns DISCONNECTED:
// messages that the peer sent before it ended the connection must not come later.
//
// Defined by libibverbs. Absent in programs without it.
extern "C" [[gnu::weak]] void verbena_settle_context(ibv_context* context) noexcept;
