// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/connection_trace.h"

#include <sys/mman.h>

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

}  // namespace

class ConnectionTrace::Rings {
 public:
  explicit Rings(int file)
      : memory_(::mmap(nullptr, sizeof(protocol::TraceRings), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)) {}
  ~Rings() {
    if (is_mapped()) ::munmap(memory_, sizeof(protocol::TraceRings));
  }
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;

  bool is_mapped() const { return memory_ != MAP_FAILED; }
  protocol::TraceRings& rings() { return *static_cast<protocol::TraceRings*>(memory_); }

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
    if (const auto made = make_file(); !made) {
      log_warning("pid {}: its connections are not traced: errno {}", process_.pid, made.error().code);
      has_failed_ = true;
      file_.reset();
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

// A reader may be hostile: it can neither shorten the file that is mapped here nor write it.
Result<void> ConnectionTrace::make_file() {
  auto file = make_private_file("verbena-cm-trace", sizeof(protocol::TraceRings));
  if (!file) return fail(file.error().code);
  file_ = std::move(*file);
  rings_ = std::make_unique<Rings>(file_.get());
  if (!rings_->is_mapped()) return fail(errno);
  return seal_to_its_mappings(file_.get());
}

// Reserves pages for the next event. Unwritten parts of the file are holes.
bool ConnectionTrace::has_room() {
  const uint64_t written = rings_->rings().events.written.load(std::memory_order_relaxed);
  // One entry for the event, and one for the number of its kind that were left out before it.
  const uint64_t entries = std::min<uint64_t>(written + 2, protocol::kTraceEntries);
  const size_t end = offsetof(protocol::TraceRings, events) + offsetof(protocol::TraceRing, entries) +
                     entries * sizeof(protocol::TraceEntry);
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
  const auto read = read_.find(trace.number());
  if (read != read_.end()) {
    read->second.pages = trace.pages_;
  } else {
    pages_.give_back(trace.process().uid, trace.pages_);
  }
  if (on_end_ && trace.file() >= 0) on_end_(trace);
}

Result<UniqueFd> ConnectionTraces::lease(const ConnectionTrace& trace) {
  const uid_t user = trace.process().uid;
  auto leased = readers_.lease(user, trace.file(), 1, 0, [this, number = trace.number()] { closed(number); });
  if (leased) read_.try_emplace(trace.number(), Read{user, 0});
  return leased;
}

void ConnectionTraces::closed(uint64_t trace) {
  const auto read = read_.find(trace);
  if (read == read_.end()) return;
  pages_.give_back(read->second.uid, read->second.pages);
  read_.erase(read);
}

size_t ConnectionTraces::pages_of(uid_t user) {
  readers_.held_by(user);  // looks who has closed what
  return pages_.of(user);
}

}  // namespace verbena::agent
