// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "agent/agent_host.h"
#include "agent/cm/connection_trace.h"
#include "agent/cm/service.h"
#include "agent/links/link_publisher.h"
#include "agent/sessions/client_files.h"
#include "agent/sessions/served_users.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/slot_leases.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "agent/status/counter_publisher.h"
#include "agent/status/kept_traces.h"
#include "base/unique_fd.h"
#include "control/model/slot_messages.h"
#include "control/protocol/connection_messages.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Carries out the requests of `verbena status`, which any client may make. A client sees only slots and
// connection identifiers of its own user; root and the agent's user see all. Every client sees the counters
// of devices and of the connection manager, which are sums over all users.
class StatusRequests {
 public:
  struct Subjects {
    const LinkPublisher& links;
    const Wire& wire;
    const SlotLeases& slots;
    CounterPublisher& counters;
    const RefusedPrograms& refused;
    CmService& connection_management;
    HeldFiles& files;
  };
  explicit StatusRequests(Subjects subjects) : of_(subjects) {}

  RequestResult<protocol::StatusReply> get_status(const Lessee& client,
                                                  const protocol::GetStatusRequest& request);
  RequestResult<protocol::SlotStatusReply> get_slot_status(const Lessee& client,
                                                           const protocol::SlotRequest& request);
  RequestResult<protocol::DeviceCountersReply> get_device_counters(const Lessee& client,
                                                                   const protocol::DeviceRequest& request);
  RequestResult<protocol::CmStatusReply> get_cm_status(const Lessee& client,
                                                       const protocol::GetCmStatusRequest& request);
  // Returns a file that lists connection identifiers (rdma_cm_id). EBUSY while the file of the session's
  // former list is still open in a process. EMFILE if the user's programs hold too many files (HeldFiles).
  SlicedResult<protocol::CmIdsReply> get_cm_ids(const Lessee& client,
                                                const protocol::GetCmIdsRequest& request);

 private:
  const Subjects of_;
};

// Carries out the requests of `verbena capture`, which records shared-memory traffic. Only root and the
// agent's own user may capture, one session at a time; the capture ends with that session. Each leased slot,
// also one leased later, gets a ring: the slot's process writes its traffic there, and the capturing session
// reads it. A session of root captures processes of all users, another session only those of its own user.
//
// The process gets the ring before the reply that gives it the slot, so that no traffic is missed. The agent
// keeps the ring's descriptor until the capturing session fetches it.
class CaptureRequests {
 public:
  CaptureRequests(const SlotLeases& slots, ForeignCloser& closer, AgentHost& agent)
      : slots_(slots), closer_(closer), agent_(agent) {}

  RequestResult<> start_capture(const Lessee& client, const protocol::StartCaptureRequest& request);
  // Returns the next slot whose capture has begun, failed or ended, or an empty reply. EINVAL if the client's
  // session does not capture.
  RequestResult<protocol::CaptureNewsReply> get_capture_news(const Lessee& client,
                                                             const protocol::GetCaptureNewsRequest& request);

  // Ends the capture of the slot's former holder and starts that of the new one. Called when a slot is
  // leased, reclaimed or taken back.
  void slot_changed(uint32_t slot);
  // Ends the capture if the session is the capturing one.
  void session_went(uint64_t session);

 private:
  // A reply to get_capture_news() that the capturing session has not fetched yet.
  struct News {
    protocol::CaptureNewsReply message{};
    ClientFile ring;  // the slot's process also has the ring and the page
    ClientFile page;
  };

  bool wants(const LeasedSlot& slot) const;
  void begin(const LeasedSlot& slot);
  Result<void> hand_ring(const LeasedSlot& slot, News& news);
  void end(uint32_t slot);

  const SlotLeases& slots_;
  ForeignCloser& closer_;
  AgentHost& agent_;
  std::optional<Lessee> capturer_;
  uint32_t snap_bytes_ = 0;
  std::map<uint32_t, uint64_t> captured_;  // by slot: the session of the slot's process
  std::deque<News> news_;
  News given_;  // the latest news fetched: keeps its descriptors open until the reply is sent
};

// Carries out the requests of `verbena trace`. Returns the traces of ended processes, and the connection
// traces of running processes. Queue pair traces of running processes are in their status pages. Makes a
// running process trace each request and packet, until the requesting session ends. A user may trace only its
// own processes; root and the agent's user may trace all.
class TraceRequests {
 public:
  TraceRequests(const SlotLeases& slots, KeptTraces& kept, ConnectionTraces& connections, HeldFiles& files,
                AgentHost& agent)
      : slots_(slots), kept_(kept), connections_(connections), files_(files), agent_(agent) {}

  RequestResult<protocol::KeptTraceReply> get_kept_trace(const Lessee& client,
                                                         const protocol::KeptTraceRequest& request);
  RequestResult<protocol::KeptTraceReply> get_connection_trace(
      const Lessee& client, const protocol::ConnectionTraceRequest& request);
  RequestResult<> start_trace(const Lessee& client, const protocol::StartTraceRequest& request);

  // Drops this session's requests to trace other sessions, and their requests to trace this one. A process
  // that no other session traces is told to stop tracing.
  void session_went(uint64_t session);

 private:
  bool is_wanted(uint64_t process) const;
  size_t wanted_by(uint64_t client) const;

  const SlotLeases& slots_;
  KeptTraces& kept_;
  ConnectionTraces& connections_;
  HeldFiles& files_;
  AgentHost& agent_;
  std::set<std::pair<uint64_t, uint64_t>> wanted_;   // (requesting, traced) sessions
  std::set<std::pair<uint64_t, uint64_t>> wanting_;  // (traced, requesting) sessions
};

}  // namespace verbena::agent
