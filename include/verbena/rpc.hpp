// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __cplusplus < 202002L
#error "Verbena's C++ API needs C++20: compile with -std=c++20"
#endif

// Remote procedure calls over RDMA:
//
//   rpc::service kv;
//   kv.on<"get">([&](std::string_view key) { return rpc::reply(store.at(key)); });
//   rpc::server server(io, "[::]:7471", kv);
//
//   rpc::client client = co_await rpc::connect(io, "storage1:7471");
//   std::string value = co_await client.call<"get">(key, {.deadline = 1ms});
//
// Arguments and results are bytes; serialisation is the program's choice. Small ones travel in SENDs, several
// in one message if calls are made in one turn of the loop. Large ones go by rendezvous: the receiver fetches
// them by RDMA READ. A call is run at most once, unless it is declared idempotent (call_options). Calls never
// fall back to TCP.
#include <verbena/rpc/client.hpp>
#include <verbena/rpc/server.hpp>
#include <verbena/rpc/service.hpp>
