// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "base/time.h"
#include "base/unique_fd.h"
#include "control/client/agent_connection.h"
#include "control/client/agent_session.h"
#include "control/model/admin_error.h"
#include "control/model/agent_status.h"
#include "control/model/link.h"
#include "control/protocol/mad_messages.h"
#include "control/protocol/messages.h"
#include "wire/roce/path.h"
#include "wire/roce/prefix.h"
#include "wire/roce/qpn.h"

namespace verbena::control {

// A command-line program's connection to the agent. Not thread-safe. Waits up to two seconds for each reply
// of the agent (ETIMEDOUT).
class CommandClient {
 public:
  // Connects to the agent. Starts one if necessary and allowed, which may take longer than two seconds.
  static AdminResult<CommandClient> connect(const ConnectOptions& options);
  // Connects, and makes a `Client` that uses the connection.
  template <class Client>
  static AdminResult<std::unique_ptr<Client>> connect_as(const ConnectOptions& options) {
    auto agent = connect(options);
    if (!agent) return tl::unexpected(std::move(agent.error()));
    return std::make_unique<Client>(std::move(*agent));
  }

  // Sends the request, and waits for the reply, which must have at least `min_fds` descriptors.
  template <class Reply = protocol::PlainReply, class Request>
  AdminResult<Answer<Reply>> call(protocol::MessageType type, const Request& request, size_t min_fds = 0) {
    return connection_.call<Reply>(type, request, min_fds, call_deadline());
  }
  // Like call(), for a request whose reply has no content.
  template <class Request>
  AdminResult<void> tell(protocol::MessageType type, const Request& request) {
    auto answer = call(type, request);
    if (!answer) return tl::unexpected(std::move(answer.error()));
    return {};
  }
  // Calls `visit` with the status of each leased slot that this user may see (SlotStatusReply), and a
  // descriptor of the slot's status page (UniqueFd). Asks for one slot at a time, because each reply carries
  // a status page as a descriptor.
  template <class Visit>
  AdminResult<void> for_each_slot(const Visit& visit) {
    protocol::SlotRequest request{};
    while (request.index < roce::Qpn::kSlots) {
      auto answer = call<protocol::SlotStatusReply>(protocol::MessageType::kGetSlotStatus, request, 1);
      if (!answer && answer.error().code == ENOENT) break;  // no more
      if (!answer) return tl::unexpected(std::move(answer.error()));
      if (answer->message.index < request.index) return malformed();
      request.index = answer->message.index + 1;
      visit(answer->message, std::move(answer->fds[0]));
    }
    return {};
  }
  const AgentConnection& connection() const { return connection_; }
  // Returns the error for a reply that breaks the protocol.
  static tl::unexpected<AdminError> malformed() { return refuse(EPROTO, "malformed reply from the agent"); }

 private:
  CommandClient(AgentConnection connection, UniqueFd events)
      : connection_(std::move(connection)), events_(std::move(events)) {}

  AgentConnection connection_;
  UniqueFd events_;  // stays open, because the agent ends the session of a client that closes it
};

// A change in the capture of one slot.
struct CaptureNews {
  protocol::CaptureNewsReply::Kind kind = protocol::CaptureNewsReply::kNothing;
  uint32_t slot = 0;
  pid_t pid = 0;  // 0 if in a pid namespace that the agent does not see
  uid_t uid = 0;
  std::string program;
  int error = 0;
  UniqueFd ring;         // only with kBegun; see observe/capture/ring_file.h
  UniqueFd status_page;  // only with kBegun; has the numbers that the process publishes about its QPs
};

// Captures packets that processes send each other by shared memory. The capture lasts as long as this object.
// Calls wait up to two seconds for each reply of the agent (ETIMEDOUT). Not thread-safe.
class CaptureClient {
 public:
  explicit CaptureClient(CommandClient agent) : agent_(std::move(agent)) {}
  static AdminResult<std::unique_ptr<CaptureClient>> connect(const ConnectOptions& options = {}) {
    return CommandClient::connect_as<CaptureClient>(options);
  }

  // Starts the capture of up to `snap_bytes` of each packet's payload. EPERM if this user may not capture,
  // EBUSY if another session captures, EOPNOTSUPP if the agent is too old.
  AdminResult<void> start(uint32_t snap_bytes);
  // Returns the next change, or one of kind kNothing if there is none now.
  AdminResult<CaptureNews> next();
  AdminResult<std::vector<Link>> links();
  uid_t agent_uid() const { return agent_.connection().agent_uid(); }

 private:
  CommandClient agent_;
};

// A file for trace::Reader. It has the trace rings of one slot of a process, or of the connection management
// of a process. The process is running or has ended.
struct TraceSource {
  pid_t pid = 0;  // 0 if in a pid namespace that the agent does not see
  uid_t uid = 0;
  uint32_t slot = 0;  // for connection management, a number that no slot has
  std::string program;
  UniqueFd file;
  size_t offset = 0;  // of the rings in the file

  struct End {
    uint64_t process = 0;  // the same for all slots of one process
    TimePoint time{};
    bool in_order = false;  // whether the process had closed its devices before it ended
  };
  std::optional<End> end{};  // nullopt if the process runs
};

// Makes the requests of `verbena trace` to the agent. Calls wait up to two seconds for each reply
// (ETIMEDOUT). Not thread-safe. A user sees its own processes; root and the agent's own user see all.
class TraceClient {
 public:
  explicit TraceClient(CommandClient agent) : agent_(std::move(agent)) {}
  static AdminResult<std::unique_ptr<TraceClient>> connect(const ConnectOptions& options = {}) {
    return CommandClient::connect_as<TraceClient>(options);
  }

  // A function that receives one trace. It should copy the data that it needs and close the file, since there
  // may be more traces than this process may have files open.
  using Take = std::function<void(TraceSource)>;
  // Calls `take` with each trace of running processes: first one for each slot, then one for each process
  // with connections.
  AdminResult<void> living(const Take& take);
  // Calls `take` with each stored trace of processes that have ended, the latest last. There are none if the
  // agent is too old to store traces.
  AdminResult<void> ended(const Take& take);
  // Makes the process trace each request and packet as long as this object exists. ESRCH if there is no such
  // process, or this user may not see it. EOPNOTSUPP if the process's library or the agent is too old. EAGAIN
  // if the process does not read the agent's messages now. ENOSPC if this object already makes 16 processes
  // trace.
  AdminResult<void> want_details(pid_t pid);

 private:
  template <class Request, class TakeReply>
  AdminResult<void> take_all(protocol::MessageType type, const TakeReply& take);

  CommandClient agent_;
};

// Sends management datagrams to QP1 of other hosts over one link and receives the responses, like libibumad
// but without its ABI. The agent sends the datagrams and retransmits them. Not thread-safe.
class MadClient {
 public:
  explicit MadClient(CommandClient agent) : agent_(std::move(agent)) {}
  using Mad = std::array<std::byte, protocol::kMadBytes>;

  // Connects to the agent and opens the port of the device. ENODEV if there is no such device.
  static AdminResult<std::unique_ptr<MadClient>> connect(uint32_t device_index,
                                                         const ConnectOptions& options = {});

  // Sends a Get or Set of class version 1 and returns the response. ETIMEDOUT if no response came within
  // timeout * (retries + 1). ECONNRESET if the agent has ended. `oui` is used only for vendor classes of
  // range 2.
  AdminResult<Mad> ask(const roce::Address& destination, const Mad& request, uint32_t oui, Duration timeout,
                       uint32_t retries);

 private:
  AdminResult<void> open(uint32_t device_index);
  AdminResult<uint32_t> agent_for(uint8_t management_class, uint32_t oui);

  CommandClient agent_;
  UniqueFd port_;
  uint64_t port_number_ = 0;
  std::map<uint8_t, uint32_t> agents_;  // the agent's registration numbers, by management class
};

// Makes the requests of command-line programs to the agent. Calls wait up to two seconds for each reply
// (ETIMEDOUT). Not thread-safe. Each user that the agent serves may call status(); only the agent's own user
// and root may change links (EPERM).
class Admin {
 public:
  explicit Admin(CommandClient agent) : agent_(std::move(agent)) {}
  static AdminResult<std::unique_ptr<Admin>> connect(const ConnectOptions& options = {}) {
    return CommandClient::connect_as<Admin>(options);
  }

  // Adds link `name` over `netdev`. If the netdev has an automatic link, that link is renamed instead. EEXIST
  // if the netdev has a link that a user added, or the name is in use. ENODEV if there is no such netdev.
  AdminResult<void> add_link(std::string_view name, std::string_view netdev);
  // Renames a link. Programs that have its device open can still use it. EEXIST if the new name is in use.
  AdminResult<void> rename_link(std::string_view name, std::string_view new_name);
  // Deletes a link. ENODEV if there is no such link. The netdev gets no automatic link until a link is added
  // to it again.
  AdminResult<void> delete_link(std::string_view name);
  // Makes the link accept packets only from hosts of these networks and from its own host. An empty list
  // admits all hosts. ENOSPC for more than 20 networks.
  AdminResult<void> set_peers(std::string_view name, std::span<const roce::Prefix> peers);
  // Returns the status of the agent, its links and the slots that this user may see. `cm_ids` is empty.
  AdminResult<AgentStatus> status();
  // Adds the list of rdma_cm identifiers to a status. This is a request of its own, since the list can be
  // long. If identifiers are missing in the list, `cm_ids_note` has the reason. One reason is that the agent
  // refuses the list to a user whose programs hold too many lists. This is no error of the function.
  AdminResult<void> add_cm_ids(AgentStatus& status);

 private:
  AdminResult<void> change(protocol::MessageType type, std::string_view name, std::string_view netdev);
  AdminResult<void> read_counters(LinkStatus& one);
  AdminResult<void> read_connection_management(AgentStatus& status);
  AdminResult<void> read_slots(AgentStatus& status);

  CommandClient agent_;
};

}  // namespace verbena::control
