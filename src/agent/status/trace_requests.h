// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>

#include "agent/cm/connection_trace.h"
#include "agent/sessions/held_files.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/slot_leases.h"
#include "agent/status/kept_traces.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Carries out what `verbena trace` asks: gives the traces of processes that have ended, and those of
// connections of processes that run (their queue pairs' are in the status pages). Has a running process write
// each request and packet as long as the session lasts that asks for it. Users may ask for their own
// processes, root and our own user for all.
class TraceRequests {
 public:
  // Tells a session. False: it does not hear of this.
  using Tell = std::function<bool(uint64_t session, bool on)>;
  TraceRequests(const SlotLeases& slots, KeptTraces& kept, ConnectionTraces& connections, HeldFiles& files,
                Tell tell)
      : slots_(slots), kept_(kept), connections_(connections), files_(files), tell_(std::move(tell)) {}

  RequestResult<protocol::KeptTraceReply> get_kept_trace(const Borrower& client,
                                                         const protocol::KeptTraceRequest& request);
  RequestResult<protocol::KeptTraceReply> get_connection_trace(
      const Borrower& client, const protocol::ConnectionTraceRequest& request);
  RequestResult<> start_trace(const Borrower& client, const protocol::StartTraceRequest& request);

  // A session is gone: what it wanted, and what was wanted of it.
  void session_went(uint64_t session);

 private:
  bool is_wanted(uint64_t process) const;
  size_t wanted_by(uint64_t client) const;

  const SlotLeases& slots_;
  KeptTraces& kept_;
  ConnectionTraces& connections_;
  HeldFiles& files_;
  const Tell tell_;
  std::set<std::pair<uint64_t, uint64_t>> wanted_;   // who wants it, of whom: sessions
  std::set<std::pair<uint64_t, uint64_t>> wanting_;  // the same the other way round
};

}  // namespace verbena::agent
