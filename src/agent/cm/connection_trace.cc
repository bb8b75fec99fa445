// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/connection_trace.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sealed_file.h"

namespace verbena::agent {
namespace {

// Number of an identifier's messages that are always recorded. A normal connection has six.
constexpr uint8_t kAlwaysTraced = 64;

trace::ConnectionNote note_of(const CmIdentifier& id) {
  trace::ConnectionNote note;
  note.id = id.listed_number;
  if (has_known_family(id.destination)) {
    note.peer = gid_of(id.destination);
    note.port = port_of(id.destination);
  }
  return note;
}

// Returns the size of the used part of the rings, which have this many events.
size_t bytes_with(uint64_t events) {
  const uint64_t entries = std::min<uint64_t>(events, protocol::kTraceEntries);
  return offsetof(protocol::TraceRings, events) + offsetof(protocol::TraceRing, entries) +
         entries * sizeof(protocol::TraceEntry);
}

}  // namespace

// A mapping and not an object of the allocator: it takes memory only where it is written.
class ConnectionTrace::Rings {
 public:
  Rings()
      : memory_(::mmap(nullptr, sizeof(protocol::TraceRings), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Rings() {
    if (is_mapped()) ::munmap(memory_, sizeof(protocol::TraceRings));
  }
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;

  bool is_mapped() const { return memory_ != MAP_FAILED; }
  protocol::TraceRings& rings() const { return *static_cast<protocol::TraceRings*>(memory_); }
  uint64_t written() const { return rings().events.written.load(std::memory_order_relaxed); }

 private:
  void* const memory_;
};

ConnectionTrace::ConnectionTrace(ConnectionTraces& traces, TracedProcess process)
    : traces_(traces), process_(std::move(process)), number_(++traces.last_) {}

ConnectionTrace::~ConnectionTrace() {
  traces_.end(*this);
}

void ConnectionTrace::called(const CmIdentifier& id, protocol::TraceCall call, uint32_t qpn,
                             const protocol::CmAddress* to) {
  trace::ConnectionNote called = note_of(id);
  called.what = static_cast<uint8_t>(call);
  if (to != nullptr && has_known_family(*to)) {
    called.peer = gid_of(*to);
    called.port = port_of(*to);
  }
  note(trace::Kind::kCmCall, qpn, called);
}

void ConnectionTrace::refused(const CmIdentifier& id, protocol::TraceCall call, int error) {
  trace::ConnectionNote refused = note_of(id);
  refused.what = static_cast<uint8_t>(call);
  refused.status = error;
  note(trace::Kind::kCmCall, 0, refused);
}

// Records a message. A peer can repeat its messages without end, and so cause repetitions from here. Beyond
// kAlwaysTraced they do not push out other events.
void ConnectionTrace::passed(trace::Kind kind, CmIdentifier& id, const cm::ConnectionInfo& connection,
                             const cm::Passage& passage) {
  trace::ConnectionNote passed = note_of(id);
  passed.peer = connection.path.destination;
  passed.what = static_cast<uint8_t>(passage.type);
  passed.remote_qpn = connection.remote_qpn;
  passed.repetitions = passage.repetitions;
  passed.status = passage.reason;
  if (id.traced_messages < kAlwaysTraced) ++id.traced_messages;
  note(kind, connection.local_qpn, passed, id.traced_messages == kAlwaysTraced);
}

void ConnectionTrace::told(const CmIdentifier& id, const protocol::CmEvent& event) {
  trace::ConnectionNote told = note_of(id);
  told.what = static_cast<uint8_t>(event.type);
  told.remote_qpn = event.connection.remote_qpn;
  told.status = event.status;
  note(trace::Kind::kCmEvent, event.connection.local_qpn, told);
}

void ConnectionTrace::note(trace::Kind kind, uint32_t qpn, const trace::ConnectionNote& note,
                           bool may_be_frequent) {
  if (has_failed_) return;
  if (!recorder_) {
    rings_ = std::make_unique<Rings>();
    if (!rings_->is_mapped()) {
      log_warning("pid {}: its connections are not traced: errno {}", process_.pid, errno);
      has_failed_ = true;
      return;
    }
    recorder_.emplace(rings_->rings());
    traces_.show(*this);
  }
  if (!has_room()) return;
  const roce::Qpn local(qpn & 0xffffff);
  if (may_be_frequent) return recorder_->note_frequent(local, kind, trace::packed(note));
  recorder_->note(local, kind, trace::packed(note));
}

Result<UniqueFd> ConnectionTrace::copy() const {
  if (!recorder_) return fail(ENODATA);
  auto file = make_private_file("verbena-cm-trace", sizeof(protocol::TraceRings));
  if (!file) return file;
  const size_t used = bytes_with(rings_->written());
  if (::pwrite(file->get(), &rings_->rings(), used, 0) != static_cast<ssize_t>(used)) return fail(ENOMEM);
  if (const auto sealed = seal_size(file->get(), F_SEAL_WRITE); !sealed) return fail(sealed.error().code);
  return file;
}

// Counts pages for the next event.
bool ConnectionTrace::has_room() {
  // One entry for the event, and one for the number of its kind that were left out before it.
  const size_t end = bytes_with(rings_->written() + 2);
  const size_t wanted = (end + ConnectionTraces::kPageBytes - 1) / ConnectionTraces::kPageBytes;
  if (wanted <= pages_) return true;
  if (!traces_.pages_.allows(process_.uid, wanted - pages_)) return false;
  traces_.pages_.take(process_.uid, wanted - pages_);
  pages_ = wanted;
  return true;
}

const ConnectionTrace* ConnectionTraces::find(uint64_t from, std::optional<uid_t> user) const {
  const Traces* traces = &traces_;
  if (user) {
    const auto of_user = of_user_.find(*user);
    if (of_user == of_user_.end()) return nullptr;
    traces = &of_user->second;
  }
  const auto found = traces->lower_bound(from);
  return found != traces->end() ? found->second : nullptr;
}

void ConnectionTraces::show(ConnectionTrace& trace) {
  traces_[trace.number()] = &trace;
  of_user_[trace.process().uid][trace.number()] = &trace;
}

void ConnectionTraces::end(ConnectionTrace& trace) {
  if (traces_.erase(trace.number()) != 0) {
    const auto of_user = of_user_.find(trace.process().uid);
    of_user->second.erase(trace.number());
    if (of_user->second.empty()) of_user_.erase(of_user);
  }
  pages_.give_back(trace.process().uid, trace.pages_);
  if (on_end_ && trace.has_events()) on_end_(trace);
}

Result<UniqueFd> ConnectionTraces::lease(const ConnectionTrace& trace, uid_t user) {
  return readers_.lease(user, trace.pages_ * kPageBytes, [&] { return trace.copy(); });
}

}  // namespace verbena::agent
