// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <sys/types.h>

#include "agent/cm/identifier.h"
#include "agent/event_loop.h"
#include "agent/sessions/client_files.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/protocol/connection_messages.h"
#include "control/protocol/trace_ring.h"
#include "management/cm/events.h"
#include "observe/trace/connection_note.h"
#include "observe/trace/recorder.h"

namespace verbena::agent {

class ConnectionTraces;

// Identifies the process whose connection events are traced.
struct TracedProcess {
  uint64_t process = 0;  // process_number()
  pid_t pid = 0;
  uid_t uid = 0;
  std::string program;
};

// Records the connection events of one client for `verbena trace`: calls of its program, messages to and from
// its peers, and events sent to it (protocol::TraceKind). The events are in the agent's own memory, and
// readers get copies. If readers shared a file with the agent, they could make each access of the agent to
// its pages wait (madvise(2), MADV_COLLAPSE). An event is lost if the traces of the client's user have used
// their share. A trace lasts until its client's last identifier is gone. For the agent's thread.
class ConnectionTrace {
 public:
  // REQUIRES: traces outlives this object
  ConnectionTrace(ConnectionTraces& traces, TracedProcess process);
  ~ConnectionTrace();

  uint64_t number() const { return number_; }
  const TracedProcess& process() const { return process_; }
  bool has_events() const { return recorder_.has_value(); }
  // Returns a new memfd with a copy of the TraceRings, sealed against writing. ENODATA if nothing was
  // recorded; otherwise the kernel's errno.
  Result<UniqueFd> copy() const;
  // True once the program has ended without leaving identifiers. Set by CmClient::go().
  bool ended_in_order = false;

  // Records a call of the program.
  // @param qpn local QPN, or 0 if it is unknown yet
  // @param to the address in the call, or nullptr
  void called(const CmIdentifier& id, protocol::TraceCall call, uint32_t qpn, const protocol::CmAddress* to);
  // Records that the agent has refused a call with this errno.
  void refused(const CmIdentifier& id, protocol::TraceCall call, int error);
  // Records a message to or from the peer. `kind` is kCmSent or kCmReceived.
  void passed(trace::Kind kind, CmIdentifier& id, const cm::ConnectionInfo& connection,
              const cm::Passage& passage);
  // Records an event about the identifier that was sent to the program.
  void told(const CmIdentifier& id, const protocol::CmEvent& event);

 private:
  friend class ConnectionTraces;
  class Rings;

  void note(trace::Kind kind, uint32_t qpn, const trace::ConnectionNote& note, bool may_be_frequent = false);
  // Returns whether the next event fits into the trace's memory. Takes more pages from the user's share if
  // needed.
  bool has_room();

  ConnectionTraces& traces_;
  const TracedProcess process_;
  const uint64_t number_;
  std::unique_ptr<Rings> rings_;
  std::optional<trace::Recorder> recorder_;
  bool has_failed_ = false;
  size_t pages_ = 0;  // memory pages that count for the user
};

// Returns a number that identifies the trace in messages and lists. The trace of a process's QPs has its slot
// index in the same field. Bit 31 is set here, which no slot index has.
inline uint32_t place_of(const ConnectionTrace& trace) {
  return 0x80000000u | static_cast<uint32_t>(trace.number());
}

// Indexes the traces of all clients by number. A trace's memory counts for its user until the trace has
// ended.
class ConnectionTraces {
 public:
  // Called when a trace that has recorded events ends.
  using OnEnd = std::function<void(const ConnectionTrace&)>;
  // Returns the quota for the copies that readers have open, in blocks (HeldFiles). It is a 64th of
  // `descriptors`, the number of descriptors that the agent may open, but at most 1,024. Each copy takes one
  // descriptor and at least one block.
  static constexpr Quota::Size readers_with(size_t descriptors) {
    return Quota::Size::of(std::min<size_t>(1024, descriptors / 64));
  }
  // `own`: the agent's own user. REQUIRES: the loop and the closer outlive this object
  ConnectionTraces(EventLoop& loop, ForeignCloser& closer, uid_t own, Quota::Size readers, OnEnd on_end)
      : on_end_(std::move(on_end)), pages_(kPages, own), readers_(loop, closer, own, readers) {}

  // Returns a copy of the trace for a reader of `user`. EDQUOT if programs of that user have too many open.
  Result<UniqueFd> lease(const ConnectionTrace& trace, uid_t user);
  HeldFiles& readers() { return readers_; }

  // Returns the first trace numbered `from` or higher that has events, of `user` or (nullopt) of any user.
  // Returns nullptr if there is none.
  const ConnectionTrace* find(uint64_t from, std::optional<uid_t> user) const;
  // Maximum size of all traces together: kPages pages, 32 MiB. Nearly all processes need one page.
  static constexpr size_t kPageBytes = 4096;
  static constexpr Quota::Size kPages = Quota::Size::of(8192);
  size_t pages_of(uid_t user) const { return pages_.of(user); }

 private:
  friend class ConnectionTrace;

  // Makes find() return the trace. Called with its first event.
  void show(ConnectionTrace& trace);
  void end(ConnectionTrace& trace);

  using Traces = std::map<uint64_t, ConnectionTrace*>;

  const OnEnd on_end_;
  Quota pages_;
  uint64_t last_ = 0;
  Traces traces_;
  std::map<uid_t, Traces> of_user_;  // no empty maps
  HeldFiles readers_;
};

}  // namespace verbena::agent
