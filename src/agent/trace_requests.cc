// SPDX-License-Identifier: Apache-2.0
#include "agent/trace_requests.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "agent/cm/refusals.h"
#include "agent/read_only.h"
#include "agent/visible_processes.h"
#include "protocol/text.h"

namespace verbena::agent {

RequestResult<protocol::KeptTraceReply> TraceRequests::get_kept_trace(
    const Borrower& client, const protocol::KeptTraceRequest& request) {
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
  protocol::store_text(message.program, kept->program);
  reply.fds = {kept->file.get()};
  return reply;
}

RequestResult<protocol::KeptTraceReply> TraceRequests::get_connection_trace(
    const Borrower& client, const protocol::ConnectionTraceRequest& request) {
  const ConnectionTrace* trace = connections_.find(request.from);
  while (trace != nullptr && !sees(client, trace->process().uid)) {
    trace = connections_.find(trace->number() + 1);
  }
  if (trace == nullptr) return refuse(ENOENT, "no more traces of connections");
  Reply<protocol::KeptTraceReply> reply;
  reply.last_fd = reopen_read_only(trace->file());
  if (!reply.last_fd) return refuse(errno, "the trace cannot be opened (is /proc mounted?)");
  protocol::KeptTraceReply& message = reply.message;
  message.number = trace->number();
  message.process = trace->process().process;
  message.pid = trace->process().pid;
  message.uid = trace->process().uid;
  message.slot = place_of(*trace);
  protocol::store_text(message.program, trace->process().program);
  return reply;
}

RequestResult<> TraceRequests::start_trace(const Borrower& client,
                                           const protocol::StartTraceRequest& request) {
  std::optional<Borrower> process;
  for (auto slot = slots_.find(0); slot && !process; slot = slots_.find(slot->index + 1)) {
    const Borrower& borrower = slot->borrower;
    if (request.pid > 0 && borrower.pid == request.pid && sees(client, borrower.uid)) process = borrower;
  }
  if (!process) return refuse(ESRCH, "there is no such process of this user with RDMA devices");
  if (process->session == 0) return refuse(EAGAIN, "the process has not come back from a former agent yet");
  if (process->protocol_version < protocol::kFirstVersionWithTraces) {
    return refuse(EOPNOTSUPP, "the process's Verbena is of an older version: start the program again");
  }
  if (!is_wanted(process->session) && !tell_(process->session, true)) {
    return refuse(EAGAIN, "the process does not read what the agent tells it");
  }
  wanted_.emplace(client.session, process->session);
  return Reply<>();
}

bool TraceRequests::is_wanted(uint64_t process) const {
  return std::ranges::any_of(wanted_, [&](const auto& want) { return want.second == process; });
}

void TraceRequests::session_went(uint64_t session) {
  std::vector<uint64_t> no_more;
  for (auto at = wanted_.begin(); at != wanted_.end();) {
    const auto [client, process] = *at;
    if (client != session && process != session) {
      ++at;
      continue;
    }
    at = wanted_.erase(at);
    if (process != session) no_more.push_back(process);
  }
  for (const uint64_t process : no_more) {
    if (!is_wanted(process)) tell_(process, false);
  }
}

}  // namespace verbena::agent
