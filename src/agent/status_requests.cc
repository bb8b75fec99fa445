// SPDX-License-Identifier: Apache-2.0
#include "agent/status_requests.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "agent/cm/refusals.h"
#include "agent/cm/status.h"
#include "agent/read_only.h"
#include "agent/visible_processes.h"
#include "base/sealed_file.h"
#include "protocol/text.h"

namespace verbena::agent {

RequestResult<protocol::StatusReply> StatusRequests::get_status(const Borrower&,
                                                                const protocol::GetStatusRequest&) {
  Reply<protocol::StatusReply> reply;
  protocol::StatusReply& status = reply.message;
  status.agent_pid = static_cast<uint32_t>(::getpid());
  status.agent_uid = ::geteuid();
  protocol::store_text(status.agent_version, VERBENA_VERSION);
  protocol::store_text(status.no_wire_reason, of_.wire.no_wire_reason());
  status.protocol_version = protocol::kProtocolVersion;
  status.refused = of_.refused.count;
  status.refused_pid = of_.refused.last_pid;
  status.refused_version = of_.refused.last_version;
  reply.fds = {of_.links.file()};
  return reply;
}

std::optional<LentSlot> StatusRequests::find_visible(const Borrower& client, uint32_t from) const {
  auto slot = of_.slots.find(from);
  while (slot && !sees(client, slot->borrower.uid)) slot = of_.slots.find(slot->index + 1);
  return slot;
}

RequestResult<protocol::SlotStatusReply> StatusRequests::get_slot_status(
    const Borrower& client, const protocol::SlotRequest& request) {
  const auto slot = find_visible(client, request.index);
  if (!slot) return refuse(ENOENT, "no more slots are lent");
  Reply<protocol::SlotStatusReply> reply;
  reply.last_fd = reopen_read_only(slot->page);
  if (!reply.last_fd) return refuse(errno, "the status page cannot be opened (is /proc mounted?)");
  protocol::SlotStatusReply& status = reply.message;
  status.index = slot->index;
  status.pid = slot->borrower.pid;
  status.uid = slot->borrower.uid;
  status.wire = wire_of(*slot);
  protocol::store_text(status.program, slot->borrower.program);
  status.protocol_version = slot->borrower.protocol_version;
  return reply;
}

RequestResult<protocol::DeviceCountersReply> StatusRequests::get_device_counters(
    const Borrower&, const protocol::DeviceRequest& request) {
  const DeviceCounters counters = of_.counters.of(request.device_index);
  Reply<protocol::DeviceCountersReply> reply;
  reply.message.link_downed = counters.link_downed;
  std::copy(counters.qps.begin(), counters.qps.end(), reply.message.qps);
  return reply;
}

RequestResult<protocol::CmStatusReply> StatusRequests::get_cm_status(const Borrower&,
                                                                     const protocol::GetCmStatusRequest&) {
  Reply<protocol::CmStatusReply> reply;
  reply.message.status = status_of(of_.connection_management);
  return reply;
}

RequestResult<protocol::CmIdsReply> StatusRequests::get_cm_ids(const Borrower& client,
                                                               const protocol::GetCmIdsRequest&) {
  constexpr const char* kRefused = "the list of identifiers cannot be made";
  const CmIdList list = identifiers_of(of_.connection_management,
                                       sees_all(client) ? std::nullopt : std::optional<uid_t>(client.uid));
  const ConstBytes bytes = std::as_bytes(std::span(list.records));
  auto file = make_memory_file("verbena-cm-ids", std::max<size_t>(bytes.size(), 1));
  if (!file) return refuse(file.error().code, kRefused);
  if (::pwrite(file->get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return refuse(errno, kRefused);
  }
  if (const auto sealed = seal_size(file->get(), F_SEAL_WRITE); !sealed) {
    return refuse(sealed.error().code, kRefused);
  }
  Reply<protocol::CmIdsReply> reply;
  reply.message.count = static_cast<uint32_t>(list.records.size());
  reply.message.left_out = list.left_out;
  reply.last_fd = std::move(*file);
  return reply;
}

}  // namespace verbena::agent
