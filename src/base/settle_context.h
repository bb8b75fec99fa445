// SPDX-License-Identifier: Apache-2.0
#pragma once

struct ibv_context;

// Processes everything that has arrived for the queue pairs of the context, so that on return the completions
// are in the CQs. A hardware adapter does so on its own. librdmacm calls this function before it returns
// DISCONNECTED: messages sent before the disconnection must not complete after that event.
//
// Defined by libibverbs. The function's address is null in programs without Verbena's libibverbs.
extern "C" [[gnu::weak]] void verbena_settle_context(ibv_context* context) noexcept;
