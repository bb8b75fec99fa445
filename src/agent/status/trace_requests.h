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

// Carries out the requests of `verbena trace`. Returns the traces of ended processes, and the connection
// traces of running processes. Queue pair traces of running processes are in their status pages. Makes a
// running process trace each request and packet, until the requesting session ends. A user may trace only its
// own processes; root and the agent's user may trace all.
class TraceRequests {
 public:
  // Tells a session's process to start or stop tracing each request and packet. Returns false if the session
  // does not exist or cannot get the message.
  using Tell = std::function<bool(uint64_t session, bool on)>;
  TraceRequests(const SlotLeases& slots, KeptTraces& kept, ConnectionTraces& connections, HeldFiles& files,
                Tell tell)
      : slots_(slots), kept_(kept), connections_(connections), files_(files), tell_(std::move(tell)) {}

  RequestResult<protocol::KeptTraceReply> get_kept_trace(const Lessee& client,
                                                         const protocol::KeptTraceRequest& request);
  RequestResult<protocol::KeptTraceReply> get_connection_trace(
      const Lessee& client, const protocol::ConnectionTraceRequest& request);
  RequestResult<> start_trace(const Lessee& client, const protocol::StartTraceRequest& request);

  // Drops requests by this session and requests to trace it. A process that no other session traces is told
  // to stop tracing.
  void session_went(uint64_t session);

 private:
  bool is_wanted(uint64_t process) const;
  size_t wanted_by(uint64_t client) const;

  const SlotLeases& slots_;
  KeptTraces& kept_;
  ConnectionTraces& connections_;
  HeldFiles& files_;
  const Tell tell_;
  std::set<std::pair<uint64_t, uint64_t>> wanted_;   // (requesting, traced) sessions
  std::set<std::pair<uint64_t, uint64_t>> wanting_;  // (traced, requesting) sessions
};

}  // namespace verbena::agent
