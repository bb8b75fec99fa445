// SPDX-License-Identifier: Apache-2.0
#include "control/client/admin.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include <linux/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/format.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "control/client/agent_session.h"
#include "control/model/agent_status.h"
#include "control/model/link.h"
#include "wire/roce/qpn.h"

namespace verbena::control {
namespace {

AdminResult<void> check_link_name(std::string_view name) {
  if (name.size() < protocol::kLinkNameBytes) return {};
  return tl::unexpected(
      AdminError{EINVAL, verbena::format("'{}' has {} characters, and a link's name at most {}",
                                         printable(name.substr(0, protocol::kLinkNameBytes)) + "...",
                                         name.size(), protocol::kLinkNameBytes - 1)});
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

AdminResult<std::unique_ptr<Admin>> Admin::connect(const ConnectOptions& options) {
  std::unique_ptr<Admin> admin;
  NamespaceDialer dialer(options);
  auto greeted = dialer.open_and_greet(
      kCommandPatience, {}, [&](AgentConnection connection, TimePoint deadline) -> AdminResult<void> {
        auto answer = connection.say_hello(UniqueFd(), deadline);
        if (!answer) return tl::unexpected(std::move(answer.error()));
        admin.reset(new Admin(std::move(connection), std::move(answer->fds[0])));
        return {};
      });
  if (!greeted) return tl::unexpected(std::move(greeted.error()));
  return admin;
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
  auto answer =
      connection_.call<protocol::PlainReply>(protocol::MessageType::kRenameLink, request, 0, call_deadline());
  if (!answer) return tl::unexpected(std::move(answer.error()));
  return {};
}

AdminResult<void> Admin::set_peers(std::string_view name, std::span<const roce::Prefix> peers) {
  if (auto valid = check_link_name(name); !valid) return valid;
  protocol::PeersRequest request{};
  if (peers.size() > std::size(request.peers)) {
    return tl::unexpected(
        AdminError{ENOSPC, verbena::format("a link has at most {} networks", std::size(request.peers))});
  }
  store_text(request.name, name);
  request.count = static_cast<uint32_t>(peers.size());
  std::transform(peers.begin(), peers.end(), request.peers, store_peer);
  auto answer =
      connection_.call<protocol::PlainReply>(protocol::MessageType::kSetPeers, request, 0, call_deadline());
  if (!answer) return tl::unexpected(std::move(answer.error()));
  return {};
}

AdminResult<AgentStatus> Admin::status() {
  auto answer = connection_.call<protocol::StatusReply>(protocol::MessageType::kGetStatus,
                                                        protocol::GetStatusRequest{}, 1, call_deadline());
  if (!answer) return tl::unexpected(std::move(answer.error()));
  AgentStatus status;
  status.pid = static_cast<pid_t>(answer->message.agent_pid);
  status.uid = answer->message.agent_uid;
  status.version = load_text(answer->message.agent_version);
  status.no_wire_reason = load_text(answer->message.no_wire_reason);
  if (connection_.version() > 1) {
    const protocol::StatusReply& message = answer->message;
    status.protocol_version = message.protocol_version;
    status.refused = {message.refused, message.refused_pid, message.refused_version};
  }
  auto snapshot = read_link_file(answer->fds[0].get());
  if (!snapshot) return tl::unexpected(AdminError{snapshot.error().code, "the agent's link table is broken"});
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
  if (auto read = read_cm_ids(status); !read) return tl::unexpected(std::move(read.error()));
  return status;
}

AdminResult<void> Admin::change(protocol::MessageType type, std::string_view name, std::string_view netdev) {
  if (auto valid = check_link_name(name); !valid) return valid;
  if (netdev.size() >= protocol::kNetdevNameBytes) {
    return tl::unexpected(AdminError{ENODEV, verbena::format("there is no netdev {}", netdev)});
  }
  protocol::LinkRequest request{};
  store_text(request.name, name);
  store_text(request.netdev, netdev);
  auto answer = connection_.call<protocol::PlainReply>(type, request, 0, call_deadline());
  if (!answer) return tl::unexpected(std::move(answer.error()));
  return {};
}

AdminResult<void> Admin::read_counters(LinkStatus& one) {
  protocol::DeviceRequest request{};
  request.device_index = one.link.device_index;
  auto answer = connection_.call<protocol::DeviceCountersReply>(protocol::MessageType::kGetDeviceCounters,
                                                                request, 0, call_deadline());
  if (!answer) {
    if (!connection_.lost()) return {};  // the device is gone, or the agent is too old for counters
    return tl::unexpected(std::move(answer.error()));
  }
  one.counters = counters_in(answer->message);
  return {};
}

AdminResult<void> Admin::read_connection_management(AgentStatus& status) {
  auto answer = connection_.call<protocol::CmStatusReply>(protocol::MessageType::kGetCmStatus,
                                                          protocol::GetCmStatusRequest{}, 0, call_deadline());
  if (answer) {
    status.connection_management = answer->message.status;
  } else if (connection_.lost()) {
    return tl::unexpected(std::move(answer.error()));
  }  // else the agent is too old
  return {};
}

AdminResult<void> Admin::read_cm_ids(AgentStatus& status) {
  auto answer = connection_.call<protocol::CmIdsReply>(protocol::MessageType::kGetCmIds,
                                                       protocol::GetCmIdsRequest{}, 1, call_deadline());
  if (!answer) {
    if (answer.error().code == EOPNOTSUPP) return {};  // the agent is too old
    return tl::unexpected(std::move(answer.error()));
  }
  const uint32_t count = std::min(answer->message.count, protocol::kMaxCmIdRecords);
  status.cm_ids_left_out = answer->message.left_out;
  status.cm_ids.resize(count);
  const size_t bytes = count * sizeof(protocol::CmIdRecord);
  if (::pread(answer->fds[0].get(), status.cm_ids.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return tl::unexpected(AdminError{EPROTO, "the agent's list of identifiers is broken"});
  }
  return {};
}

// Asks for one slot at a time, because each reply carries a status page as a descriptor.
AdminResult<void> Admin::read_slots(AgentStatus& status) {
  protocol::SlotRequest request{};
  while (request.index < roce::Qpn::kSlots) {
    auto answer = connection_.call<protocol::SlotStatusReply>(protocol::MessageType::kGetSlotStatus, request,
                                                              1, call_deadline());
    if (!answer) {
      if (answer.error().code == ENOENT) break;  // no more
      return tl::unexpected(std::move(answer.error()));
    }
    const protocol::SlotStatusReply& message = answer->message;
    if (message.index < request.index)
      return tl::unexpected(AdminError{EPROTO, "malformed reply from the agent"});
    SlotStatus slot;
    slot.index = message.index;
    slot.pid = message.pid;
    slot.uid = message.uid;
    slot.program = load_text(message.program);
    slot.has_wire = message.wire != protocol::SlotWire::kNone;
    slot.is_forwarded = message.wire == protocol::SlotWire::kForwarded;
    slot.protocol_version = message.protocol_version;
    read_status_page(answer->fds[0].get(), slot);
    read_objects(answer->fds[0].get(), slot);
    status.slots.push_back(std::move(slot));
    request.index = message.index + 1;
  }
  return {};
}

}  // namespace verbena::control
