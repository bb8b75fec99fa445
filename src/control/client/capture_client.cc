// SPDX-License-Identifier: Apache-2.0
#include "control/client/capture_client.h"

#include <cerrno>

#include "base/text.h"
#include "control/client/agent_session.h"
#include "control/model/link.h"

namespace verbena::control {
namespace {

using protocol::CaptureNewsReply;
using protocol::MessageType;

tl::unexpected<AdminError> too_old() {
  return tl::unexpected(AdminError{EOPNOTSUPP, "the agent is of an older version, which captures nothing"});
}

}  // namespace

AdminResult<std::unique_ptr<CaptureClient>> CaptureClient::connect(const ConnectOptions& options) {
  std::unique_ptr<CaptureClient> client;
  NamespaceDialer dialer(options);
  auto greeted = dialer.open_and_greet(
      kCommandPatience, {}, [&](AgentConnection connection, TimePoint deadline) -> AdminResult<void> {
        auto answer = connection.say_hello(UniqueFd(), deadline);
        if (!answer) return tl::unexpected(std::move(answer.error()));
        client.reset(new CaptureClient(std::move(connection), std::move(answer->fds[0])));
        return {};
      });
  if (!greeted) return tl::unexpected(std::move(greeted.error()));
  return client;
}

AdminResult<void> CaptureClient::start(uint32_t snap_bytes) {
  if (connection_.version() < protocol::kFirstVersionWithCaptures) return too_old();
  protocol::StartCaptureRequest request{};
  request.snap_bytes = snap_bytes;
  auto answer =
      connection_.call<protocol::PlainReply>(MessageType::kStartCapture, request, 0, call_deadline());
  if (!answer) return tl::unexpected(std::move(answer.error()));
  return {};
}

AdminResult<CaptureNews> CaptureClient::next() {
  auto answer = connection_.call<CaptureNewsReply>(MessageType::kGetCaptureNews,
                                                   protocol::GetCaptureNewsRequest{}, 0, call_deadline());
  if (!answer) return tl::unexpected(std::move(answer.error()));
  const CaptureNewsReply& message = answer->message;
  CaptureNews news;
  news.kind = static_cast<CaptureNewsReply::Kind>(message.kind);
  news.slot = message.slot;
  news.pid = message.pid;
  news.uid = message.uid;
  news.program = load_text(message.program);
  news.error = message.error;
  if (news.kind == CaptureNewsReply::kBegun) {
    if (answer->fds.size() < 2) return tl::unexpected(AdminError{EPROTO, "malformed reply from the agent"});
    news.ring = std::move(answer->fds[0]);
    news.status_page = std::move(answer->fds[1]);
  }
  return news;
}

AdminResult<std::vector<Link>> CaptureClient::links() {
  auto answer = connection_.call<protocol::PlainReply>(MessageType::kGetLinks, protocol::GetLinksRequest{}, 1,
                                                       call_deadline());
  if (!answer) return tl::unexpected(std::move(answer.error()));
  auto snapshot = read_link_file(answer->fds[0].get());
  if (!snapshot) return tl::unexpected(AdminError{snapshot.error().code, "the agent's link table is broken"});
  return std::move(snapshot->links);
}

}  // namespace verbena::control
