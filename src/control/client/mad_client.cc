// SPDX-License-Identifier: Apache-2.0
#include "control/client/mad_client.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/plain_calls.h"
#include "control/client/agent_session.h"
#include "control/protocol/messages.h"
#include "wire/roce/mad.h"

namespace verbena::control {
namespace {

using protocol::MessageType;
using protocol::UserMad;

using roce::kGsiQkey, roce::kGsiQpn;

// How long to wait beyond the agent's last try, whose failure the agent reports itself. Ends the wait for a
// silent agent.
constexpr Duration kGrace = std::chrono::seconds(2);

AdminError system_error() {
  return {errno, std::strerror(errno)};
}

}  // namespace

AdminResult<std::unique_ptr<MadClient>> MadClient::connect(uint32_t device_index,
                                                           const ConnectOptions& options) {
  std::unique_ptr<MadClient> client;
  NamespaceDialer dialer(options);
  auto greeted = dialer.open_and_greet(
      kCommandPatience, {}, [&](AgentConnection connection, TimePoint deadline) -> AdminResult<void> {
        auto answer = connection.say_hello(UniqueFd(), deadline);
        if (!answer) return tl::unexpected(std::move(answer.error()));
        client.reset(new MadClient(std::move(connection), std::move(answer->fds[0])));
        return {};
      });
  if (!greeted) return tl::unexpected(std::move(greeted.error()));
  if (auto opened = client->open(device_index); !opened) return tl::unexpected(std::move(opened.error()));
  return client;
}

AdminResult<void> MadClient::open(uint32_t device_index) {
  protocol::DeviceRequest request{};
  request.device_index = device_index;
  auto answer =
      connection_.call<protocol::PlainReply>(MessageType::kMadOpenPort, request, 1, call_deadline());
  if (!answer) return tl::unexpected(std::move(answer.error()));
  port_ = std::move(answer->fds[0]);
  struct stat status {};
  if (::fstat(port_.get(), &status) != 0) return tl::unexpected(system_error());
  port_number_ = status.st_ino;
  return {};
}

AdminResult<uint32_t> MadClient::agent_for(uint8_t management_class, uint32_t oui) {
  if (const auto known = agents_.find(management_class); known != agents_.end()) return known->second;
  protocol::MadRegisterRequest request{};
  request.port = port_number_;
  request.oui = oui;
  request.management_class = management_class;
  request.class_version = 1;
  request.queue_pair = kGsiQpn;
  auto answer =
      connection_.call<protocol::MadRegisterReply>(MessageType::kMadRegister, request, 0, call_deadline());
  if (!answer) return tl::unexpected(std::move(answer.error()));
  return agents_[management_class] = answer->message.agent;
}

AdminResult<MadClient::Mad> MadClient::ask(const roce::Address& destination, const Mad& request, uint32_t oui,
                                           Duration timeout, uint32_t retries) {
  const auto agent = agent_for(static_cast<uint8_t>(request[roce::kClassAt]), oui);
  if (!agent) return tl::unexpected(agent.error());
  struct {
    UserMad user{};
    Mad mad{};
  } message;
  message.user.agent = *agent;
  message.user.timeout_ms =
      static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
  message.user.retries = retries;
  message.user.length = sizeof message;
  message.user.queue_pair_be = byteswap(kGsiQpn);
  message.user.qkey_be = byteswap(kGsiQkey);
  message.user.grh_present = 1;
  std::ranges::copy(destination.bytes, message.user.gid);
  message.mad = request;
  if (::send(port_.get(), &message, sizeof message, MSG_NOSIGNAL) < 0) return tl::unexpected(system_error());

  const TimePoint end = MonotonicClock::now() + timeout * (retries + 1) + kGrace;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - MonotonicClock::now());
    pollfd entry{port_.get(), POLLIN, 0};
    const int ready = left.count() <= 0 ? 0 : plain_poll(&entry, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return tl::unexpected(AdminError{ETIMEDOUT, "the agent does not answer"});
    message.user = {};
    const ssize_t count = ::recv(port_.get(), &message, sizeof message, MSG_DONTWAIT);
    if (count <= 0) return tl::unexpected(AdminError{ECONNRESET, "the agent has ended"});
    if (message.user.agent != *agent) continue;  // late, for an earlier request
    if (message.user.status != 0) {
      return tl::unexpected(AdminError{static_cast<int>(message.user.status), "no answer"});
    }
    if (count == sizeof message) return message.mad;
  }
}

}  // namespace verbena::control
