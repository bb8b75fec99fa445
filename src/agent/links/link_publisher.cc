// SPDX-License-Identifier: Apache-2.0
#include "agent/links/link_publisher.h"

#include <cerrno>
#include <iterator>
#include <utility>

#include <unistd.h>

#include "adapter/net/udp/multicast_socket.h"
#include "agent/sessions/client_files.h"
#include "base/log.h"
#include "base/sealed_file.h"
#include "base/text.h"

namespace verbena::agent {

namespace {

constexpr const char* kNotJoined = "the multicast group cannot be joined";

}  // namespace

void LinkPublisher::begin() {
  begun_ = true;
  publish();
}

void LinkPublisher::publish() {
  if (!begun_) return;
  table_.keep_loopback(!loopback_viewers_.empty() || agent_.awaits_programs());
  if (!table_.settle() && published_) return;
  auto file = control::write_link_file(table_.snapshot());
  published_ = file.has_value();
  if (!published_) {
    log_error("the link table cannot be written: errno {}", file.error().code);
    return;
  }
  if (closer_ != nullptr) closer_->close(::geteuid(), std::move(file_));
  file_ = std::move(*file);
  auto pin = pin_first_page(file_.get());
  if (!pin) log_error("users can make reads of the link table wait: errno {}", pin.error().code);
  former_pin_ = std::exchange(pin_, std::move(pin).value_or(UniqueFd()));
  if (table_.has_automatic_loopback()) loopback_viewers_ = sessions_;
  const auto before = std::exchange(shown_, links());
  agent_.links_changed(before);
}

void LinkPublisher::session_came(uint64_t session) {
  sessions_.insert(session);
  if (table_.has_automatic_loopback()) loopback_viewers_.insert(session);
}

void LinkPublisher::session_went(uint64_t session) {
  sessions_.erase(session);
  loopback_viewers_.erase(session);
  consider_loopback();
}

void LinkPublisher::consider_loopback() {
  if (table_.has_automatic_loopback()) publish();
}

// Lets root and the agent's own user change links.
template <class Change>
RequestResult<> LinkRequests::change(const Lessee& client, const Change& change) {
  if (!sees_all(client.uid)) return refuse(EPERM, "only root may change root's links");
  if (auto changed = links_.change(change); !changed) return tl::unexpected(std::move(changed.error()));
  return {};
}

RequestResult<> LinkRequests::get_links(const Lessee&, const protocol::GetLinksRequest&) {
  return Reply<>{.fds = {links_.file()}};
}

RequestResult<> LinkRequests::add_link(const Lessee& client, const protocol::LinkRequest& request) {
  return change(client, [&](LinkTable& table) {
    return table.add_link(load_text(request.name), load_text(request.netdev));
  });
}

RequestResult<> LinkRequests::delete_link(const Lessee& client, const protocol::LinkRequest& request) {
  return change(client, [&](LinkTable& table) { return table.delete_link(load_text(request.name)); });
}

RequestResult<> LinkRequests::rename_link(const Lessee& client, const protocol::RenameRequest& request) {
  return change(client, [&](LinkTable& table) {
    return table.rename_link(load_text(request.name), load_text(request.new_name));
  });
}

RequestResult<> LinkRequests::set_peers(const Lessee& client, const protocol::PeersRequest& request) {
  return change(client, [&](LinkTable& table) -> control::AdminResult<void> {
    const auto malformed = [] { return refuse(EINVAL, "that is no list of networks"); };
    if (request.count > std::size(request.peers)) return malformed();
    std::vector<roce::Prefix> peers;
    for (const protocol::PeerRecord& record : std::span(request.peers).first(request.count)) {
      const auto peer = control::load_peer(record);
      if (!peer) return malformed();
      peers.push_back(*peer);
    }
    return table.set_peers(load_text(request.name), std::move(peers));
  });
}

// Any client that may have a slot may join groups: the kernel lets every process do so.
LaterResult<> LinkRequests::join_group(const Lessee& client, const protocol::GroupRequest& request) {
  return [this, user = client.uid, request](const Answer<>& answer) {
    const auto begun = begin_join(user, request, answer);
    if (!begun) answer(refuse(begun.error().code, kNotJoined));
  };
}

Result<void> LinkRequests::begin_join(uid_t user, const protocol::GroupRequest& request,
                                      const Answer<>& answer) {
  roce::Address group;
  std::copy(std::begin(request.group), std::end(request.group), group.bytes.begin());
  if (!group.is_multicast()) return fail(EINVAL);
  if (!wire_.has_sockets()) return fail(ENETDOWN);
  const auto& links = links_.links();
  const auto link = std::ranges::find(links, request.device_index, &control::Link::device_index);
  if (link == links.end()) return fail(ENODEV);
  if (!closer_.allows(user)) return fail(EMFILE);
  const auto open = [group, interface_index = link->interface_index, port = port_,
                     guard = wire_.guard()]() -> Result<UniqueFd> {
    auto socket = net::open_multicast_socket(group, interface_index, port);
    if (socket && !guard(socket->get())) return fail(errno);
    return socket;
  };
  closer_.open(user, open, [this, user, answer](Result<ForeignCloser::SharedFd> socket) {
    answer(end_join(user, std::move(socket)));
  });
  return {};
}

RequestResult<> LinkRequests::end_join(uid_t user, Result<ForeignCloser::SharedFd> socket) {
  if (!socket) return refuse(socket.error().code, kNotJoined);
  const int fd = (*socket)->get();
  const auto added = group_sockets_.add(user, fd, MonotonicClock::now());
  if (!added) return refuse(added.error().code, "the user's programs have joined too many groups");
  return Reply<>{.fds = {fd}, .keeps = std::move(*socket)};
}

}  // namespace verbena::agent
