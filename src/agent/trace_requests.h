// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>

#include "agent/kept_traces.h"
#include "agent/session_reply.h"
#include "agent/slot_lending.h"
#include "protocol/messages.h"

namespace verbena::agent {

// What `verbena trace` asks: the traces of processes that have ended (of those that run it reads the status
// pages), and that a process that runs writes each request and packet, as long as the session that asks for
// it lasts. Users may ask for their own processes, root and our own user for all.
class TraceRequests {
 public:
  // Tells a session. False: it does not hear of this.
  using Tell = std::function<bool(uint64_t session, bool on)>;
  TraceRequests(const SlotLending& slots, KeptTraces& kept, Tell tell)
      : slots_(slots), kept_(kept), tell_(std::move(tell)) {}

  RequestResult<protocol::KeptTraceReply> get_kept_trace(const Borrower& client,
                                                         const protocol::KeptTraceRequest& request);
  RequestResult<> start_trace(const Borrower& client, const protocol::StartTraceRequest& request);

  // A session is gone: what it wanted, and what was wanted of it.
  void session_went(uint64_t session);

 private:
  bool is_wanted(uint64_t process) const;

  const SlotLending& slots_;
  KeptTraces& kept_;
  const Tell tell_;
  std::set<std::pair<uint64_t, uint64_t>> wanted_;  // who wants it, of whom: sessions
};

}  // namespace verbena::agent
