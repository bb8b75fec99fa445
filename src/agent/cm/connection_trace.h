// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <sys/types.h>

#include "agent/cm/identifier.h"
#include "base/unique_fd.h"
#include "cm/observer.h"
#include "protocol/connection_messages.h"
#include "protocol/trace_ring.h"
#include "trace/connection_note.h"
#include "trace/recorder.h"

namespace verbena::agent {

class ConnectionTraces;

// The process that a trace is about.
struct TracedProcess {
  uint64_t process = 0;  // process_number()
  pid_t pid = 0;
  uid_t uid = 0;
  std::string program;
};

// Records what happens to the connections of one client, for `verbena trace`: calls of its program, messages
// to and from its peers, events for it (protocol::TraceKind). The ring lies in a file in memory, which
// readers get for reading only. Without memory nothing is recorded. A trace lasts as long as an identifier of
// the client. For the agent's thread.
class ConnectionTrace {
 public:
  // REQUIRES: traces outlives this
  ConnectionTrace(ConnectionTraces& traces, TracedProcess process);
  ~ConnectionTrace();
  ConnectionTrace(const ConnectionTrace&) = delete;
  ConnectionTrace& operator=(const ConnectionTrace&) = delete;

  uint64_t number() const { return number_; }
  const TracedProcess& process() const { return process_; }
  // Where TraceRings lie, from the file's beginning; -1: nothing has been recorded.
  int file() const { return file_.get(); }
  // The program has gone, and had no identifiers any more.
  bool ended_in_order = false;

  // @param qpn 0: not known yet
  // @param to the address that the call gives, if it gives one
  void called(const CmIdentifier& id, protocol::TraceCall call, uint32_t qpn, const protocol::CmAddress* to);
  void refused(const CmIdentifier& id, protocol::TraceCall call, int error);
  void sent(CmIdentifier& id, const cm::ConnectionInfo& connection, const cm::Passage& passage);
  void received(CmIdentifier& id, const cm::ConnectionInfo& connection, const cm::Passage& passage);
  // An event of the identifier.
  void told(const CmIdentifier& id, const protocol::CmEvent& event);

 private:
  class Rings;

  void passed(trace::Kind kind, CmIdentifier& id, const cm::ConnectionInfo& connection,
              const cm::Passage& passage);
  void note(trace::Kind kind, uint32_t qpn, const trace::ConnectionNote& note, bool may_be_frequent = false);

  ConnectionTraces& traces_;
  const TracedProcess process_;
  const uint64_t number_;
  UniqueFd file_;
  std::unique_ptr<Rings> rings_;
  std::optional<trace::Recorder> recorder_;
  bool has_failed_ = false;
};

// Stands for a slot's number where the traces of a process are told from each other.
inline uint32_t place_of(const ConnectionTrace& trace) {
  return 0x80000000u | static_cast<uint32_t>(trace.number());
}

// The traces of all clients, by number. A client's trace outlives it if it has left many identifiers.
class ConnectionTraces {
 public:
  using OnEnd = std::function<void(const ConnectionTrace&)>;
  explicit ConnectionTraces(OnEnd on_end) : on_end_(std::move(on_end)) {}

  // The first from this number on that says something; null: none.
  const ConnectionTrace* find(uint64_t from) const;

 private:
  friend class ConnectionTrace;

  uint64_t add(ConnectionTrace& trace);
  void end(ConnectionTrace& trace);

  const OnEnd on_end_;
  uint64_t last_ = 0;
  std::map<uint64_t, ConnectionTrace*> traces_;
};

}  // namespace verbena::agent
