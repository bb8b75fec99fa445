// SPDX-License-Identifier: Apache-2.0
#pragma once

struct ibv_context;

// Processes everything that has arrived for the queue pairs of the context: on return the completions are in
// their CQs. A hardware adapter does so on its own. librdmacm calls it before it returns DISCONNECTED, so
// that messages sent before the disconnection do not complete after it.
//
// Defined by libibverbs. Absent in programs without it.
extern "C" [[gnu::weak]] void verbena_settle_context(ibv_context* context) noexcept;
