// SPDX-License-Identifier: Apache-2.0
#include "agent/status/status_requests.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/cm/refusals.h"
#include "agent/cm/status.h"
#include "agent/sessions/held_files.h"
#include "agent/sessions/session_reply.h"
#include "base/sealed_file.h"
#include "base/text.h"

namespace verbena::agent {
namespace {

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
    if (!files.allows(client.uid, most)) return fail(EDQUOT);
    file_.reset(::memfd_create("verbena-cm-ids", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file_) return fail(errno);
    auto leased = files.lease(client.uid, file_.get(), most, client.session);
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
  if (!slot) return refuse(ENOENT, "no more slots are lent");
  Reply<protocol::SlotStatusReply> reply;
  reply.last_fd = reopen_read_only(slot->page);
  if (!reply.last_fd) return refuse(errno, "the status page cannot be opened (is /proc mounted?)");
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
  std::copy(counters.qps.begin(), counters.qps.end(), reply.message.qps);
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

}  // namespace verbena::agent
