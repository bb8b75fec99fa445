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
#include "agent/sessions/held_files.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/protocol/connection_messages.h"
#include "control/protocol/trace_ring.h"
#include "management/cm/observer.h"
#include "observe/trace/connection_note.h"
#include "observe/trace/recorder.h"

namespace verbena::agent {

class ConnectionTraces;

// The process that is traced.
struct TracedProcess {
  uint64_t process = 0;  // process_number()
  pid_t pid = 0;
  uid_t uid = 0;
  std::string program;
};

// Records the connection events of one client for `verbena trace`: calls of its program, messages to and from
// its peers, and events sent to it (protocol::TraceKind). The ring is in a memfd, which readers get
// read-only. Nothing is recorded if there is no memory, or if its user's traces have used their share. A
// trace lasts as long as any identifier of the client. For the agent's thread.
class ConnectionTrace {
 public:
  // REQUIRES: traces outlives this object
  ConnectionTrace(ConnectionTraces& traces, TracedProcess process);
  ~ConnectionTrace();
  ConnectionTrace(const ConnectionTrace&) = delete;
  ConnectionTrace& operator=(const ConnectionTrace&) = delete;

  uint64_t number() const { return number_; }
  const TracedProcess& process() const { return process_; }
  // Returns the file, with TraceRings at offset 0; -1: nothing was recorded.
  int file() const { return file_.get(); }
  // The program has ended and had no identifiers left.
  bool ended_in_order = false;

  // @param qpn 0 if unknown yet
  // @param to the address in the call, or nullptr
  void called(const CmIdentifier& id, protocol::TraceCall call, uint32_t qpn, const protocol::CmAddress* to);
  void refused(const CmIdentifier& id, protocol::TraceCall call, int error);
  void sent(CmIdentifier& id, const cm::ConnectionInfo& connection, const cm::Passage& passage);
  void received(CmIdentifier& id, const cm::ConnectionInfo& connection, const cm::Passage& passage);
  // Records an event that was sent for the identifier.
  void told(const CmIdentifier& id, const protocol::CmEvent& event);

 private:
  friend class ConnectionTraces;
  class Rings;

  void passed(trace::Kind kind, CmIdentifier& id, const cm::ConnectionInfo& connection,
              const cm::Passage& passage);
  void note(trace::Kind kind, uint32_t qpn, const trace::ConnectionNote& note, bool may_be_frequent = false);
  Result<void> make_file();
  // Whether there is memory for the next event.
  bool has_room();

  ConnectionTraces& traces_;
  const TracedProcess process_;
  const uint64_t number_;
  UniqueFd file_;
  std::unique_ptr<Rings> rings_;
  std::optional<trace::Recorder> recorder_;
  bool has_failed_ = false;
  size_t pages_ = 0;  // in use, and counted for the user
};

// Returns the number that a trace has in place of a slot, among the traces of its process.
inline uint32_t place_of(const ConnectionTrace& trace) {
  return 0x80000000u | static_cast<uint32_t>(trace.number());
}

// The traces of all clients by number. A trace outlives its client if the client has left many identifiers.
// Its memory counts until no reader has the file open any more.
class ConnectionTraces {
 public:
  using OnEnd = std::function<void(const ConnectionTrace&)>;
  // Traces that readers have open, where the agent may open so many descriptors: each costs one.
  static constexpr Quota::Size readers_with(size_t descriptors) {
    return Quota::Size::of(std::min<size_t>(1024, descriptors / 64));
  }
  // REQUIRES: the loop outlives this
  ConnectionTraces(EventLoop& loop, uid_t own, Quota::Size readers, OnEnd on_end)
      : on_end_(std::move(on_end)), pages_(kPages, own), readers_(loop, own, readers) {}

  // Opens the trace's file for a reader. EDQUOT: readers have too many traces of that user open.
  Result<UniqueFd> lease(const ConnectionTrace& trace);

  // Returns the first trace with this or a higher number that has events, of one user or any; nullptr: none.
  const ConnectionTrace* find(uint64_t from, std::optional<uid_t> user) const;
  // Maximum size of all traces together: 32 MiB. Nearly all processes need one page.
  static constexpr size_t kPageBytes = 4096;
  static constexpr Quota::Size kPages = Quota::Size::of(8192);
  size_t pages_of(uid_t user);

 private:
  friend class ConnectionTrace;

  // Adds a trace that has a file now.
  void show(ConnectionTrace& trace);
  void end(ConnectionTrace& trace);
  // No reader has it open any more.
  void closed(uint64_t trace);

  using Traces = std::map<uint64_t, ConnectionTrace*>;

  const OnEnd on_end_;
  Quota pages_;
  uint64_t last_ = 0;
  Traces traces_;
  std::map<uid_t, Traces> of_user_;  // no empty maps
  // By number, those that a reader has open: what counts for the user on their behalf, once they have ended.
  struct Read {
    uid_t uid = 0;
    size_t pages = 0;
  };
  std::map<uint64_t, Read> read_;
  HeldFiles readers_;
};

}  // namespace verbena::agent
