// SPDX-License-Identifier: Apache-2.0
#include "agent/status/requests.h"

#include "agent/sessions/client_events.h"
#include "base/sealed_file.h"
#include "base/text.h"
#include "observe/capture/ring_file.h"

namespace verbena::agent {

namespace {

using protocol::CaptureNewsReply;

constexpr const char* kNoList = "the list of identifiers cannot be made";
// Number of identifiers listed per piece of work in a user's turn.
constexpr size_t kListedAtOnce = 64;

// A list of identifiers for kGetCmIds, while it is being made.
class CmIdFile {
 public:
  CmIdFile(const CmService& service, std::optional<uid_t> user) : listing_(service, user) {}

  // Creates the file with its maximum size counted against the user, because a user's programs may start many
  // lists at once.
  Result<void> make(HeldFiles& files, const Lessee& client) {
    const size_t most = listing_.most() * sizeof(protocol::CmIdRecord);
    const auto make = [&]() -> Result<UniqueFd> {
      auto made = make_private_file("verbena-cm-ids", 0);
      if (!made) return made;
      file_ = std::move(*made);
      UniqueFd copy(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
      if (!copy) return fail(errno);
      return copy;
    };
    auto leased = files.lease(client.uid, most, make, client.session);
    if (!leased) return fail(leased.error().code);
    theirs_ = std::move(*leased);
    return {};
  }
  // Writes some records. Returns whether the list is complete.
  Result<bool> go_on() {
    const auto records = listing_.next(kListedAtOnce);
    const ConstBytes bytes = std::as_bytes(std::span(records));
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), end_);
    if (written != static_cast<ssize_t>(bytes.size())) return fail(written < 0 ? errno : ENOSPC);
    end_ += written;
    if (!listing_.is_done()) return false;
    if (const auto sealed = seal_size(file_.get(), F_SEAL_WRITE); !sealed) return fail(sealed.error().code);
    return true;
  }
  Reply<protocol::CmIdsReply> take() {
    Reply<protocol::CmIdsReply> reply;
    reply.message.count = static_cast<uint32_t>(listing_.listed());
    const size_t there_are = listing_.there_are();
    reply.message.left_out = static_cast<uint32_t>(there_are - std::min(there_are, listing_.listed()));
    reply.last_fd = std::move(theirs_);
    return reply;
  }

 private:
  CmIdListing listing_;
  UniqueFd file_;
  UniqueFd theirs_;
  off_t end_ = 0;
};

// Maximum number of unfetched news, each with a ring, beside the leased slots.
constexpr size_t kMaxNews = 4096;
// From this number of unfetched news on, slots that have come and gone in the meantime are dropped. A ring
// takes two megabytes, and a process can take and return slots without end.
constexpr size_t kMuchNews = 256;

// Maximum number of processes that one session may trace.
constexpr size_t kMaxOfSession = 16;

// Returns the second number of the first pair that begins with `begins_with`.
std::optional<uint64_t> first_of(const std::set<std::pair<uint64_t, uint64_t>>& pairs, uint64_t begins_with) {
  const auto found = pairs.lower_bound({begins_with, 0});
  return found != pairs.end() && found->first == begins_with ? std::optional(found->second) : std::nullopt;
}

}  // namespace

RequestResult<protocol::StatusReply> StatusRequests::get_status(const Lessee&,
                                                                const protocol::GetStatusRequest&) {
  Reply<protocol::StatusReply> reply;
  protocol::StatusReply& status = reply.message;
  status.agent_pid = static_cast<uint32_t>(::getpid());
  status.agent_uid = ::geteuid();
  store_text(status.agent_version, VERBENA_VERSION);
  store_text(status.no_wire_reason, of_.wire.no_wire_reason());
  status.protocol_version = protocol::kProtocolVersion;
  status.refused = of_.refused.count;
  status.refused_pid = of_.refused.last_pid;
  status.refused_version = of_.refused.last_version;
  reply.fds = {of_.links.file()};
  return reply;
}

RequestResult<protocol::SlotStatusReply> StatusRequests::get_slot_status(
    const Lessee& client, const protocol::SlotRequest& request) {
  const auto slot = of_.slots.find(request.index, seen_by(client));
  if (!slot) return refuse(ENOENT, "no more slots are leased");
  Reply<protocol::SlotStatusReply> reply;
  const auto page = of_.slots.read_only_page(slot->index);
  if (!page) return refuse(page.error().code, "the status page cannot be opened (is /proc mounted?)");
  reply.fds = {*page};
  protocol::SlotStatusReply& status = reply.message;
  status.index = slot->index;
  status.pid = slot->lessee.pid;
  status.uid = slot->lessee.uid;
  status.wire = wire_of(*slot);
  store_text(status.program, slot->lessee.program);
  status.protocol_version = slot->lessee.protocol_version;
  return reply;
}

RequestResult<protocol::DeviceCountersReply> StatusRequests::get_device_counters(
    const Lessee&, const protocol::DeviceRequest& request) {
  const DeviceCounters counters = of_.counters.of(request.device_index);
  Reply<protocol::DeviceCountersReply> reply;
  reply.message.link_downed = counters.link_downed;
  std::ranges::copy(counters.qps, reply.message.qps);
  return reply;
}

RequestResult<protocol::CmStatusReply> StatusRequests::get_cm_status(const Lessee&,
                                                                     const protocol::GetCmStatusRequest&) {
  Reply<protocol::CmStatusReply> reply;
  reply.message.status = status_of(of_.connection_management);
  return reply;
}

SlicedResult<protocol::CmIdsReply> StatusRequests::get_cm_ids(const Lessee& client,
                                                              const protocol::GetCmIdsRequest&) {
  using CmIdsResult = RequestResult<protocol::CmIdsReply>;
  const auto refuse_with = [](int error, const char* text) {
    return [error, text] { return std::optional<CmIdsResult>(refuse(error, text)); };
  };
  if (of_.files.holds(client.session)) {
    return refuse_with(EBUSY, "the program still has the list of identifiers that it asked for before");
  }
  auto list = std::make_shared<CmIdFile>(of_.connection_management, seen_by(client));
  if (const auto made = list->make(of_.files, client); !made) {
    const int error = made.error().code;
    if (error != EDQUOT) return refuse_with(error, kNoList);
    return refuse_with(EMFILE, "programs of this user hold too many lists and messages of the agent's");
  }
  return [list]() -> std::optional<CmIdsResult> {
    const auto is_done = list->go_on();
    if (!is_done) return refuse(is_done.error().code, kNoList);
    if (!*is_done) return std::nullopt;
    return list->take();
  };
}

RequestResult<> CaptureRequests::start_capture(const Lessee& client,
                                               const protocol::StartCaptureRequest& request) {
  if (client.uid != 0 && client.uid != ::geteuid()) {
    return refuse(EPERM, "only root may capture what root's agent serves");
  }
  if (capturer_) {
    return refuse(EBUSY,
                  verbena::format("process {} is capturing; there is one capture at a time", capturer_->pid));
  }
  capturer_ = client;
  snap_bytes_ = request.snap_bytes;
  for (auto slot = slots_.find(0); slot; slot = slots_.find(slot->index + 1)) begin(*slot);
  return Reply<>();
}

RequestResult<CaptureNewsReply> CaptureRequests::get_capture_news(const Lessee& client,
                                                                  const protocol::GetCaptureNewsRequest&) {
  if (!capturer_ || capturer_->session != client.session) {
    return refuse(EINVAL, "this session does not capture");
  }
  Reply<CaptureNewsReply> reply;
  given_ = News();
  if (news_.empty()) return reply;
  given_ = std::move(news_.front());
  news_.pop_front();
  reply.message = given_.message;
  if (given_.ring) reply.fds = {given_.ring.get(), given_.page.get()};
  return reply;
}

bool CaptureRequests::wants(const LeasedSlot& slot) const {
  // Leased by a former agent, and its process has not reconnected yet. slot_changed() is called when it does.
  if (slot.lessee.session == 0) return false;
  return capturer_->uid == 0 || capturer_->uid == slot.lessee.uid;
}

void CaptureRequests::slot_changed(uint32_t slot) {
  if (!capturer_) return;
  const auto leased = slots_.find(slot);
  const bool is_leased = leased && leased->index == slot;
  const auto known = captured_.find(slot);
  if (known != captured_.end()) {
    if (is_leased && known->second == leased->lessee.session) return;
    end(slot);
  }
  if (is_leased) begin(*leased);
}

void CaptureRequests::begin(const LeasedSlot& slot) {
  if (!wants(slot) || news_.size() >= kMaxNews) return;
  News news;
  news.message.slot = slot.index;
  news.message.pid = slot.lessee.pid;
  news.message.uid = slot.lessee.uid;
  store_text(news.message.program, slot.lessee.program);
  const auto handed = hand_ring(slot, news);
  news.message.kind = handed ? CaptureNewsReply::kBegun : CaptureNewsReply::kRefused;
  news.message.error = handed ? 0 : handed.error().code;
  if (handed) captured_[slot.index] = slot.lessee.session;
  news_.push_back(std::move(news));
}

Result<void> CaptureRequests::hand_ring(const LeasedSlot& slot, News& news) {
  if (slot.lessee.protocol_version < protocol::kFirstVersionWithCaptures) return fail(EOPNOTSUPP);
  news.page = ClientFile(reopen_read_only(slot.page), slot.lessee.uid, closer_);
  if (!news.page) return fail(errno);
  auto ring = capture::make_ring_file(snap_bytes_);
  if (!ring) return fail(ring.error().code);
  UniqueFd theirs(::fcntl(ring->get(), F_DUPFD_CLOEXEC, 0));
  if (!theirs) return fail(errno);
  control::SlotCapture capture{slot.index, std::move(theirs)};
  if (!tell<&ClientEvents::tell_capture>(agent_, slot.lessee.session, std::move(capture)))
    return fail(EAGAIN);
  news.ring = ClientFile(std::move(*ring), slot.lessee.uid, closer_);
  return {};
}

void CaptureRequests::end(uint32_t slot) {
  captured_.erase(slot);
  if (news_.size() >= kMuchNews) {
    const auto unseen = std::find_if(news_.rbegin(), news_.rend(), [&](const News& each) {
      return each.message.slot == slot && each.message.kind == CaptureNewsReply::kBegun;
    });
    if (unseen != news_.rend()) {
      news_.erase(std::next(unseen).base());
      return;
    }
  }
  News news;
  news.message.kind = CaptureNewsReply::kEnded;
  news.message.slot = slot;
  news_.push_back(std::move(news));
}

void CaptureRequests::session_went(uint64_t session) {
  if (!capturer_ || capturer_->session != session) return;
  capturer_.reset();
  for (const auto& [slot, owner] : std::exchange(captured_, {}))
    tell<&ClientEvents::tell_capture>(agent_, owner, control::SlotCapture{slot, {}});
  news_.clear();
  given_ = News();
}

RequestResult<protocol::KeptTraceReply> TraceRequests::get_kept_trace(
    const Lessee& client, const protocol::KeptTraceRequest& request) {
  const TimePoint now = MonotonicClock::now();
  const KeptTraces::Kept* kept = kept_.find(request.from, now);
  while (kept != nullptr && !sees(client, kept->uid)) kept = kept_.find(kept->number + 1, now);
  if (kept == nullptr) return refuse(ENOENT, "no more traces are kept");
  Reply<protocol::KeptTraceReply> reply;
  protocol::KeptTraceReply& message = reply.message;
  message.number = kept->number;
  message.process = kept->process;
  message.ended_at = kept->ended.time_since_epoch().count();
  message.pid = kept->pid;
  message.uid = kept->uid;
  message.slot = kept->slot;
  message.in_order = kept->in_order ? 1 : 0;
  store_text(message.program, kept->program);
  // A copy, because a process that has a file can make reads of it wait.
  auto leased = files_.lease(client.uid, kept->bytes, [&]() -> Result<UniqueFd> {
    auto copy = copy_rings(kept->file.get(), 0);
    if (!copy) return fail(copy.error().code);
    return std::move(copy->file);
  });
  if (!leased) {
    const int error = leased.error().code;
    if (error == EDQUOT) return refuse(EMFILE, "programs of this user hold too many traces of the agent's");
    return refuse(error, "the trace cannot be opened (is /proc mounted?)");
  }
  reply.last_fd = std::move(*leased);
  return reply;
}

RequestResult<protocol::KeptTraceReply> TraceRequests::get_connection_trace(
    const Lessee& client, const protocol::ConnectionTraceRequest& request) {
  const ConnectionTrace* const trace = connections_.find(request.from, seen_by(client));
  if (trace == nullptr) return refuse(ENOENT, "no more traces of connections");
  Reply<protocol::KeptTraceReply> reply;
  auto leased = connections_.lease(*trace, client.uid);
  if (!leased) {
    const int error = leased.error().code;
    if (error == EDQUOT) return refuse(EMFILE, "programs of this user have too many traces open");
    return refuse(error, "the trace cannot be opened (is /proc mounted?)");
  }
  reply.last_fd = std::move(*leased);
  protocol::KeptTraceReply& message = reply.message;
  message.number = trace->number();
  message.process = trace->process().process;
  message.pid = trace->process().pid;
  message.uid = trace->process().uid;
  message.slot = place_of(*trace);
  store_text(message.program, trace->process().program);
  return reply;
}

RequestResult<> TraceRequests::start_trace(const Lessee& client, const protocol::StartTraceRequest& request) {
  const auto user = seen_by(client);
  std::optional<Lessee> process;
  for (auto slot = slots_.find(0, user); slot && !process; slot = slots_.find(slot->index + 1, user)) {
    if (request.pid > 0 && slot->lessee.pid == request.pid) process = slot->lessee;
  }
  if (!process) return refuse(ESRCH, "there is no such process of this user with RDMA devices");
  if (process->session == 0) return refuse(EAGAIN, "the process has not come back from a former agent yet");
  if (process->protocol_version < protocol::kFirstVersionWithTraces) {
    return refuse(EOPNOTSUPP, "the process's Verbena is of an older version: start the program again");
  }
  if (wanted_by(client.session) >= kMaxOfSession) {
    return refuse(ENOSPC, "one connection to the agent has as many processes traced as it may");
  }
  if (!is_wanted(process->session) && !tell<&ClientEvents::tell_trace>(agent_, process->session, true)) {
    return refuse(EAGAIN, "the process does not read what the agent tells it");
  }
  wanted_.emplace(client.session, process->session);
  wanting_.emplace(process->session, client.session);
  return Reply<>();
}

bool TraceRequests::is_wanted(uint64_t process) const {
  const auto found = wanting_.lower_bound({process, 0});
  return found != wanting_.end() && found->first == process;
}

size_t TraceRequests::wanted_by(uint64_t client) const {
  return static_cast<size_t>(
      std::distance(wanted_.lower_bound({client, 0}), wanted_.lower_bound({client + 1, 0})));
}

void TraceRequests::session_went(uint64_t session) {
  while (const auto process = first_of(wanted_, session)) {
    wanted_.erase({session, *process});
    wanting_.erase({*process, session});
    if (*process != session && !is_wanted(*process)) tell<&ClientEvents::tell_trace>(agent_, *process, false);
  }
  while (const auto client = first_of(wanting_, session)) {
    wanting_.erase({session, *client});
    wanted_.erase({*client, session});
  }
}

}  // namespace verbena::agent
