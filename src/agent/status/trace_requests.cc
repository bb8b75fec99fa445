// SPDX-License-Identifier: Apache-2.0
#include "agent/status/trace_requests.h"

#include <cerrno>
#include <iterator>
#include <optional>
#include <utility>

#include "agent/cm/refusals.h"
#include "agent/sessions/visible_processes.h"
#include "base/text.h"

namespace verbena::agent {
namespace {

// Maximum number of processes that one session may trace.
constexpr size_t kMaxOfSession = 16;

// Returns the second number of the first pair that begins with `begins_with`.
std::optional<uint64_t> first_of(const std::set<std::pair<uint64_t, uint64_t>>& pairs, uint64_t begins_with) {
  const auto found = pairs.lower_bound({begins_with, 0});
  return found != pairs.end() && found->first == begins_with ? std::optional(found->second) : std::nullopt;
}

}  // namespace

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
  // The program may keep the file open long after the trace is dropped here.
  auto leased = files_.lease(client.uid, kept->file.get(), kept->bytes);
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
  auto leased = connections_.lease(*trace);
  if (!leased) {
    const int error = leased.error().code;
    if (error == EDQUOT)
      return refuse(EMFILE, "programs have too many traces of this user's connections open");
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
  if (!is_wanted(process->session) && !tell_(process->session, true)) {
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
    if (*process != session && !is_wanted(*process)) tell_(*process, false);
  }
  while (const auto client = first_of(wanting_, session)) {
    wanting_.erase({session, *client});
    wanted_.erase({*client, session});
  }
}

}  // namespace verbena::agent
