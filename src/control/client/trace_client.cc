// SPDX-License-Identifier: Apache-2.0
#include "control/client/trace_client.h"

#include <cerrno>
#include <cstddef>

#include "base/text.h"
#include "control/client/agent_session.h"
#include "control/protocol/messages.h"
#include "control/protocol/status_page.h"
#include "wire/roce/qpn.h"

namespace verbena::control {
namespace {

using protocol::MessageType;

tl::unexpected<AdminError> malformed() {
  return tl::unexpected(AdminError{EPROTO, "malformed reply from the agent"});
}

}  // namespace

AdminResult<std::unique_ptr<TraceClient>> TraceClient::connect(const ConnectOptions& options) {
  std::unique_ptr<TraceClient> client;
  NamespaceDialer dialer(options);
  auto greeted = dialer.open_and_greet(
      kCommandPatience, {}, [&](AgentConnection connection, TimePoint deadline) -> AdminResult<void> {
        auto answer = connection.say_hello(UniqueFd(), deadline);
        if (!answer) return tl::unexpected(std::move(answer.error()));
        client.reset(new TraceClient(std::move(connection), std::move(answer->fds[0])));
        return {};
      });
  if (!greeted) return tl::unexpected(std::move(greeted.error()));
  return client;
}

AdminResult<std::vector<TraceSource>> TraceClient::living() {
  std::vector<TraceSource> sources;
  protocol::SlotRequest request{};
  while (request.index < roce::Qpn::kSlots) {
    auto answer =
        connection_.call<protocol::SlotStatusReply>(MessageType::kGetSlotStatus, request, 1, call_deadline());
    if (!answer) {
      if (answer.error().code == ENOENT) break;  // no more
      return tl::unexpected(std::move(answer.error()));
    }
    const protocol::SlotStatusReply& message = answer->message;
    if (message.index < request.index) return malformed();
    sources.push_back({.pid = message.pid,
                       .uid = message.uid,
                       .slot = message.index,
                       .program = load_text(message.program),
                       .file = std::move(answer->fds[0]),
                       .offset = offsetof(protocol::StatusPage, traces)});
    request.index = message.index + 1;
  }
  const auto taken = take_all<protocol::ConnectionTraceRequest>(
      MessageType::kGetConnectionTrace,
      [&](const protocol::KeptTraceReply&, TraceSource source) { sources.push_back(std::move(source)); });
  if (!taken) return tl::unexpected(taken.error());
  return sources;
}

// Asks for one file after the other until the agent has no more. An agent that is too old (EOPNOTSUPP) has
// none.
template <class Request, class Take>
AdminResult<void> TraceClient::take_all(MessageType type, const Take& take) {
  Request request{};
  for (;;) {
    auto answer = connection_.call<protocol::KeptTraceReply>(type, request, 1, call_deadline());
    if (!answer) {
      const int code = answer.error().code;
      if (code == ENOENT || code == EOPNOTSUPP) return {};
      return tl::unexpected(std::move(answer.error()));
    }
    const protocol::KeptTraceReply& message = answer->message;
    if (message.number < request.from || message.number == UINT64_MAX) return malformed();
    take(message, TraceSource{.pid = message.pid,
                              .uid = message.uid,
                              .slot = message.slot,
                              .program = load_text(message.program),
                              .file = std::move(answer->fds[0]),
                              .offset = 0});
    request.from = message.number + 1;
  }
}

AdminResult<std::vector<TraceSource>> TraceClient::ended() {
  std::vector<TraceSource> sources;
  const auto taken = take_all<protocol::KeptTraceRequest>(
      MessageType::kGetKeptTrace, [&](const protocol::KeptTraceReply& message, TraceSource source) {
        source.end = TraceSource::End{.process = message.process,
                                      .time = TimePoint(Duration(message.ended_at)),
                                      .in_order = message.in_order != 0};
        sources.push_back(std::move(source));
      });
  if (!taken) return tl::unexpected(taken.error());
  return sources;
}

AdminResult<void> TraceClient::want_details(pid_t pid) {
  protocol::StartTraceRequest request{};
  request.pid = pid;
  auto answer = connection_.call<protocol::PlainReply>(MessageType::kStartTrace, request, 0, call_deadline());
  if (answer) return {};
  if (answer.error().code == EOPNOTSUPP && answer.error().text.empty()) {
    answer.error().text = "the agent is of an older version, which cannot ask programs for each packet";
  }
  return tl::unexpected(std::move(answer.error()));
}

}  // namespace verbena::control
