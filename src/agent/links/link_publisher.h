// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include <unistd.h>

#include "agent/agent_host.h"
#include "agent/links/group_sockets.h"
#include "agent/links/link_table.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "base/unique_fd.h"
#include "control/model/admin_error.h"
#include "control/model/link.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Publishes the link table: writes each new state to a file that clients read, and calls
// AgentHost::links_changed(). Also records which sessions may have seen loopback's automatic link. That link
// must stay until these sessions end.
class LinkPublisher {
 public:
  // `closer` closes the files of former tables, because a close may wait for locks that any client has on the
  // file. If `closer` is null, the calling thread closes them.
  LinkPublisher(LinkTable& table, AgentHost& agent, ForeignCloser* closer = nullptr)
      : table_(table), agent_(agent), closer_(closer) {}

  // Publishes the table, and from now on its changes. Called when the takeover from a killed agent is
  // complete; until then publish() does nothing.
  void begin();
  // Publishes the table if it has changed, or if the last attempt to write it failed. Logs a failure.
  void publish();
  // Returns the descriptor of the current file, or -1 if there is none yet. The next publication closes it.
  int file() const { return file_.get(); }
  const std::vector<control::Link>& links() const { return table_.snapshot().links; }

  // Calls `change` with the table, and publishes the table if that succeeds. Returns the result.
  template <class Change>
  control::AdminResult<void> change(const Change& change) {
    auto changed = change(table_);
    if (changed) publish();
    return changed;
  }

  void session_came(uint64_t session);
  void session_went(uint64_t session);
  // Removes loopback's automatic link if another link is up and no program that may have seen it is left.
  void consider_loopback();

 private:
  LinkTable& table_;
  AgentHost& agent_;
  ForeignCloser* const closer_;
  bool begun_ = false;
  bool published_ = false;  // the latest attempt to write the file has succeeded
  std::vector<control::Link> shown_;
  UniqueFd file_;
  // Pins the first page of `file_` (pin_first_page()). All users have the file, and without the pin each of
  // them could make the others' reads wait. The pin does not map the file, because users of the file can hold
  // up the lock that munmap(2) takes.
  UniqueFd pin_;
  UniqueFd former_pin_;  // the same for the former file, which clients may still read
  std::set<uint64_t> sessions_;
  std::set<uint64_t> loopback_viewers_;  // sessions that have seen loopback's automatic link
};

// Carries out clients' requests that read or change links (RDMA devices) or join multicast groups.
class LinkRequests {
 public:
  // REQUIRES: this object outlives the tasks of `closer`
  LinkRequests(LinkPublisher& links, const Wire& wire, ForeignCloser& closer, uint16_t port)
      : links_(links), wire_(wire), closer_(closer), port_(port) {}

  RequestResult<> get_links(const Lessee& client, const protocol::GetLinksRequest& request);
  // The next four methods change links. EPERM if the client's user is neither root nor the agent's own.
  RequestResult<> add_link(const Lessee& client, const protocol::LinkRequest& request);
  RequestResult<> rename_link(const Lessee& client, const protocol::RenameRequest& request);
  RequestResult<> delete_link(const Lessee& client, const protocol::LinkRequest& request);
  RequestResult<> set_peers(const Lessee& client, const protocol::PeersRequest& request);
  // Returns a new UDP socket that has joined the multicast group on the device. EINVAL if the address is not
  // multicast, ENETDOWN if the agent does not have UDP port 4791, ENODEV if there is no such device. ENOSPC
  // if the user's programs have too many of these sockets, EMFILE if the agent has too many descriptors of
  // the user open. Otherwise the kernel's error.
  //
  // A thread of the user makes and joins the socket. Joining and leaving a group wait for the kernel's lock
  // for network devices (RTNL), which any user with a network namespace of its own can hold for seconds.
  LaterResult<> join_group(const Lessee& client, const protocol::GroupRequest& request);

 private:
  template <class Change>
  RequestResult<> change(const Lessee& client, const Change& change);
  Result<void> begin_join(uid_t user, const protocol::GroupRequest& request, const Answer<>& answer);
  RequestResult<> end_join(uid_t user, Result<ForeignCloser::SharedFd> socket);

  LinkPublisher& links_;
  const Wire& wire_;
  ForeignCloser& closer_;
  const uint16_t port_;
  GroupSockets group_sockets_{::geteuid()};
};

}  // namespace verbena::agent
