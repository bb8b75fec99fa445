// SPDX-License-Identifier: Apache-2.0
#include "control/client/command_client.h"

#include <linux/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/plain_calls.h"
#include "base/text.h"
#include "wire/roce/mad.h"

namespace verbena::control {

AdminResult<CommandClient> CommandClient::connect(const ConnectOptions& options) {
  AdminResult<CommandClient> client = refuse(ECONNREFUSED, {});
  NamespaceDialer dialer(options);
  auto greeted = dialer.open_and_greet(
      kCommandPatience, {}, [&](AgentConnection connection, TimePoint deadline) -> AdminResult<void> {
        auto answer = connection.say_hello(UniqueFd(), deadline);
        if (!answer) return tl::unexpected(std::move(answer.error()));
        client = CommandClient(std::move(connection), std::move(answer->fds[0]));
        return {};
      });
  if (!greeted) return tl::unexpected(std::move(greeted.error()));
  return client;
}

namespace {

using protocol::CaptureNewsReply;
using protocol::MessageType;
using protocol::UserMad;
using roce::kGsiQkey, roce::kGsiQpn;

// How long to wait beyond the agent's last try, whose failure the agent reports itself. Ends the wait for a
// silent agent.
constexpr Duration kGrace = std::chrono::seconds(2);

AdminError system_error() {
  return {errno, std::strerror(errno)};
}

AdminResult<void> check_link_name(std::string_view name) {
  if (name.size() < protocol::kLinkNameBytes) return {};
  return refuse(EINVAL, verbena::format("'{}' has {} characters, and a link's name at most {}",
                                        printable(name.substr(0, protocol::kLinkNameBytes)) + "...",
                                        name.size(), protocol::kLinkNameBytes - 1));
}

// Whether the netdev is switched off; the agent reports only whether a link is up. Asks in this process's
// network namespace, which is the agent's, too.
bool is_switched_off(const std::string& netdev) {
  ifreq request{};
  if (netdev.size() >= sizeof request.ifr_name) return false;
  netdev.copy(request.ifr_name, netdev.size());
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return socket && ::ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) == 0;
}

}  // namespace

AdminResult<void> CaptureClient::start(uint32_t snap_bytes) {
  if (agent_.connection().version() < protocol::kFirstVersionWithCaptures)
    return refuse(EOPNOTSUPP, "the agent is of an older version, which captures nothing");
  protocol::StartCaptureRequest request{};
  request.snap_bytes = snap_bytes;
  return agent_.tell(MessageType::kStartCapture, request);
}

AdminResult<CaptureNews> CaptureClient::next() {
  auto answer =
      agent_.call<CaptureNewsReply>(MessageType::kGetCaptureNews, protocol::GetCaptureNewsRequest{});
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
    if (answer->fds.size() < 2) return CommandClient::malformed();
    news.ring = std::move(answer->fds[0]);
    news.status_page = std::move(answer->fds[1]);
  }
  return news;
}

AdminResult<std::vector<Link>> CaptureClient::links() {
  auto answer = agent_.call(MessageType::kGetLinks, protocol::GetLinksRequest{}, 1);
  if (!answer) return tl::unexpected(std::move(answer.error()));
  auto snapshot = read_link_file(answer->fds[0].get());
  if (!snapshot) return refuse(snapshot.error().code, "the agent's link table is broken");
  return std::move(snapshot->links);
}

AdminResult<void> TraceClient::living(const Take& take) {
  auto read = agent_.for_each_slot([&](const protocol::SlotStatusReply& message, UniqueFd page) {
    take({.pid = message.pid,
          .uid = message.uid,
          .slot = message.index,
          .program = load_text(message.program),
          .file = std::move(page),
          .offset = offsetof(protocol::StatusPage, traces)});
  });
  if (!read) return read;
  return take_all<protocol::ConnectionTraceRequest>(
      MessageType::kGetConnectionTrace,
      [&](const protocol::KeptTraceReply&, TraceSource source) { take(std::move(source)); });
}

// Asks for one file after the other until the agent has no more. An agent that is too old (EOPNOTSUPP) has
// none.
template <class Request, class TakeReply>
AdminResult<void> TraceClient::take_all(MessageType type, const TakeReply& take) {
  Request request{};
  for (;;) {
    auto answer = agent_.call<protocol::KeptTraceReply>(type, request, 1);
    if (!answer) {
      const int code = answer.error().code;
      if (code == ENOENT || code == EOPNOTSUPP) return {};
      return tl::unexpected(std::move(answer.error()));
    }
    const protocol::KeptTraceReply& message = answer->message;
    if (message.number < request.from || message.number == UINT64_MAX) return CommandClient::malformed();
    take(message, TraceSource{.pid = message.pid,
                              .uid = message.uid,
                              .slot = message.slot,
                              .program = load_text(message.program),
                              .file = std::move(answer->fds[0]),
                              .offset = 0});
    request.from = message.number + 1;
  }
}

AdminResult<void> TraceClient::ended(const Take& take) {
  return take_all<protocol::KeptTraceRequest>(
      MessageType::kGetKeptTrace, [&](const protocol::KeptTraceReply& message, TraceSource source) {
        source.end = TraceSource::End{.process = message.process,
                                      .time = TimePoint(Duration(message.ended_at)),
                                      .in_order = message.in_order != 0};
        take(std::move(source));
      });
}

AdminResult<void> TraceClient::want_details(pid_t pid) {
  protocol::StartTraceRequest request{};
  request.pid = pid;
  auto started = agent_.tell(MessageType::kStartTrace, request);
  if (!started && started.error().code == EOPNOTSUPP && started.error().text.empty()) {
    started.error().text = "the agent is of an older version, which cannot ask programs for each packet";
  }
  return started;
}

AdminResult<std::unique_ptr<MadClient>> MadClient::connect(uint32_t device_index,
                                                           const ConnectOptions& options) {
  auto client = CommandClient::connect_as<MadClient>(options);
  if (!client) return client;
  if (auto opened = (*client)->open(device_index); !opened) return tl::unexpected(std::move(opened.error()));
  return client;
}

AdminResult<void> MadClient::open(uint32_t device_index) {
  protocol::DeviceRequest request{};
  request.device_index = device_index;
  auto answer = agent_.call(MessageType::kMadOpenPort, request, 1);
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
  auto answer = agent_.call<protocol::MadRegisterReply>(MessageType::kMadRegister, request);
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
    if (ready <= 0) return refuse(ETIMEDOUT, "the agent does not answer");
    message.user = {};
    const ssize_t count = ::recv(port_.get(), &message, sizeof message, MSG_DONTWAIT);
    if (count <= 0) return refuse(ECONNRESET, "the agent has ended");
    if (message.user.agent != *agent) continue;  // late, for an earlier request
    if (message.user.status != 0) {
      return refuse(static_cast<int>(message.user.status), "no answer");
    }
    if (count == sizeof message) return message.mad;
  }
}

AdminResult<void> Admin::add_link(std::string_view name, std::string_view netdev) {
  return change(protocol::MessageType::kAddLink, name, netdev);
}

AdminResult<void> Admin::delete_link(std::string_view name) {
  return change(protocol::MessageType::kDeleteLink, name, {});
}

AdminResult<void> Admin::rename_link(std::string_view name, std::string_view new_name) {
  for (const std::string_view text : {name, new_name}) {
    if (auto valid = check_link_name(text); !valid) return valid;
  }
  protocol::RenameRequest request{};
  store_text(request.name, name);
  store_text(request.new_name, new_name);
  return agent_.tell(protocol::MessageType::kRenameLink, request);
}

AdminResult<void> Admin::set_peers(std::string_view name, std::span<const roce::Prefix> peers) {
  if (auto valid = check_link_name(name); !valid) return valid;
  protocol::PeersRequest request{};
  if (peers.size() > std::size(request.peers)) {
    return refuse(ENOSPC, verbena::format("a link has at most {} networks", std::size(request.peers)));
  }
  store_text(request.name, name);
  request.count = static_cast<uint32_t>(peers.size());
  std::transform(peers.begin(), peers.end(), request.peers, store_peer);
  return agent_.tell(protocol::MessageType::kSetPeers, request);
}

AdminResult<AgentStatus> Admin::status() {
  auto answer =
      agent_.call<protocol::StatusReply>(protocol::MessageType::kGetStatus, protocol::GetStatusRequest{}, 1);
  if (!answer) return tl::unexpected(std::move(answer.error()));
  AgentStatus status;
  status.pid = static_cast<pid_t>(answer->message.agent_pid);
  status.uid = answer->message.agent_uid;
  status.version = load_text(answer->message.agent_version);
  status.no_wire_reason = load_text(answer->message.no_wire_reason);
  if (agent_.connection().version() > 1) {
    const protocol::StatusReply& message = answer->message;
    status.protocol_version = message.protocol_version;
    status.refused = {message.refused, message.refused_pid, message.refused_version};
  }
  auto snapshot = read_link_file(answer->fds[0].get());
  if (!snapshot) return refuse(snapshot.error().code, "the agent's link table is broken");
  for (Link& link : snapshot->links) {
    std::string wire =
        !status.no_wire_reason.empty() ? "down: " + status.no_wire_reason
        : link.up                      ? "up"
                                       : verbena::format("down: {} {}", link.netdev,
                                    is_switched_off(link.netdev) ? "is switched off" : "has no carrier");
    status.links.push_back({std::move(link), std::move(wire), {}});
  }
  for (LinkStatus& one : status.links) {
    if (auto read = read_counters(one); !read) return tl::unexpected(std::move(read.error()));
  }
  if (auto slots = read_slots(status); !slots) return tl::unexpected(std::move(slots.error()));
  if (auto read = read_connection_management(status); !read) return tl::unexpected(std::move(read.error()));
  return status;
}

AdminResult<void> Admin::change(protocol::MessageType type, std::string_view name, std::string_view netdev) {
  if (auto valid = check_link_name(name); !valid) return valid;
  if (netdev.size() >= protocol::kNetdevNameBytes) {
    return refuse(ENODEV, verbena::format("there is no netdev {}", netdev));
  }
  protocol::LinkRequest request{};
  store_text(request.name, name);
  store_text(request.netdev, netdev);
  return agent_.tell(type, request);
}

AdminResult<void> Admin::read_counters(LinkStatus& one) {
  protocol::DeviceRequest request{};
  request.device_index = one.link.device_index;
  auto answer =
      agent_.call<protocol::DeviceCountersReply>(protocol::MessageType::kGetDeviceCounters, request);
  if (!answer) {
    if (!agent_.connection().lost()) return {};  // the device is gone, or the agent is too old for counters
    return tl::unexpected(std::move(answer.error()));
  }
  one.counters = counters_in(answer->message);
  return {};
}

AdminResult<void> Admin::read_connection_management(AgentStatus& status) {
  auto answer = agent_.call<protocol::CmStatusReply>(protocol::MessageType::kGetCmStatus,
                                                     protocol::GetCmStatusRequest{});
  if (answer) {
    status.connection_management = answer->message.status;
  } else if (agent_.connection().lost()) {
    return tl::unexpected(std::move(answer.error()));
  }  // else the agent is too old
  return {};
}

AdminResult<void> Admin::add_cm_ids(AgentStatus& status) {
  auto answer =
      agent_.call<protocol::CmIdsReply>(protocol::MessageType::kGetCmIds, protocol::GetCmIdsRequest{}, 1);
  if (!answer) {
    if (agent_.connection().lost()) return tl::unexpected(std::move(answer.error()));
    status.cm_ids_note = std::move(answer.error().text);
    return {};
  }
  const uint32_t count = std::min(answer->message.count, protocol::kMaxCmIdRecords);
  if (answer->message.left_out > 0)
    status.cm_ids_note = verbena::format("{} more do not fit into the list", answer->message.left_out);
  status.cm_ids.resize(count);
  const size_t bytes = count * sizeof(protocol::CmIdRecord);
  if (::pread(answer->fds[0].get(), status.cm_ids.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return refuse(EPROTO, "the agent's list of identifiers is broken");
  }
  return {};
}

AdminResult<void> Admin::read_slots(AgentStatus& status) {
  return agent_.for_each_slot([&](const protocol::SlotStatusReply& message, const UniqueFd& page) {
    SlotStatus slot;
    slot.index = message.index;
    slot.pid = message.pid;
    slot.uid = message.uid;
    slot.program = load_text(message.program);
    slot.has_wire = message.wire != protocol::SlotWire::kNone;
    slot.is_forwarded = message.wire == protocol::SlotWire::kForwarded;
    slot.protocol_version = message.protocol_version;
    read_status_page(page.get(), slot);
    read_objects(page.get(), slot);
    status.slots.push_back(std::move(slot));
  });
}

}  // namespace verbena::control
