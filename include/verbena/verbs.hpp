// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __cplusplus < 202002L
#error "Verbena's C++ API needs C++20: compile with -std=c++20"
#endif

#include <verbena/result.hpp>
#include <verbena/verbs/completion.hpp>
#include <verbena/verbs/device.hpp>
#include <verbena/verbs/endpoint.hpp>
#include <verbena/verbs/memory.hpp>
#include <verbena/verbs/object.hpp>
#include <verbena/verbs/queue_pair.hpp>
#include <verbena/verbs/work.hpp>

// Verbs without the mistakes: objects that end themselves in the right order, memory that carries its keys,
// requests that are checked when the program is compiled, and errors that say what was tried.
//
//   context ctx = open().value();
//   pd domain = ctx.make_pd().value();
//   cq queue = ctx.make_cq(64).value();
//   qp pair = domain.make_qp(rc, {.send_cq = queue}).value();
//   region buffer = domain.allocate(4096, access::remote_write).value();
//
// Header-only, for C++20, over any libibverbs. The data path has no allocation, no virtual call, no lock of
// its own and no exception.
