// SPDX-License-Identifier: Apache-2.0
#include "agent/links/link_publisher.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <unistd.h>

#include "adapter/net/udp/multicast_socket.h"
#include "agent/cm/refusals.h"
#include "base/log.h"
#include "base/text.h"
#include "control/model/link.h"

namespace verbena::agent {

LinkPublisher::LinkPublisher(LinkTable& table, Surroundings surroundings)
    : table_(table), surroundings_(std::move(surroundings)) {}

void LinkPublisher::begin() {
  begun_ = true;
  publish();
}

void LinkPublisher::publish() {
  if (!begun_) return;
  table_.keep_loopback(!loopback_viewers_.empty() || surroundings_.awaits_programs());
  if (!table_.settle() && published_) return;
  auto file = control::write_link_file(table_.snapshot());
  published_ = file.has_value();
  if (!published_) {
    log_error("the link table cannot be written: errno {}", file.error().code);
    return;
  }
  file_ = std::move(*file);
  if (table_.has_automatic_loopback()) loopback_viewers_ = sessions_;
  const auto before = std::exchange(shown_, links());
  surroundings_.on_change(before);
}

control::AdminResult<void> LinkPublisher::add(std::string_view name, std::string_view netdev) {
  auto added = table_.add_link(name, netdev);
  if (added) publish();
  return added;
}

control::AdminResult<void> LinkPublisher::remove(std::string_view name) {
  auto deleted = table_.delete_link(name);
  if (deleted) publish();
  return deleted;
}

control::AdminResult<void> LinkPublisher::rename(std::string_view name, std::string_view new_name) {
  auto renamed = table_.rename_link(name, new_name);
  if (renamed) publish();
  return renamed;
}

control::AdminResult<void> LinkPublisher::set_peers(std::string_view name, std::vector<roce::Prefix> peers) {
  auto set = table_.set_peers(name, std::move(peers));
  if (set) publish();
  return set;
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

namespace {

bool may_change_links(const Lessee& client) {
  return client.uid == 0 || client.uid == ::geteuid();
}

RequestResult<> plain(const control::AdminResult<void>& outcome) {
  if (!outcome) return tl::unexpected(outcome.error());
  return {};
}

}  // namespace

RequestResult<> LinkRequests::get_links(const Lessee&, const protocol::GetLinksRequest&) {
  return Reply<>{.fds = {links_.file()}};
}

RequestResult<> LinkRequests::add_link(const Lessee& client, const protocol::LinkRequest& request) {
  if (!may_change_links(client)) return refuse(EPERM, "only root may change root's links");
  return plain(links_.add(load_text(request.name), load_text(request.netdev)));
}

RequestResult<> LinkRequests::delete_link(const Lessee& client, const protocol::LinkRequest& request) {
  if (!may_change_links(client)) return refuse(EPERM, "only root may change root's links");
  return plain(links_.remove(load_text(request.name)));
}

RequestResult<> LinkRequests::rename_link(const Lessee& client, const protocol::RenameRequest& request) {
  if (!may_change_links(client)) return refuse(EPERM, "only root may change root's links");
  return plain(links_.rename(load_text(request.name), load_text(request.new_name)));
}

RequestResult<> LinkRequests::set_peers(const Lessee& client, const protocol::PeersRequest& request) {
  constexpr const char* kRefused = "that is no list of networks";
  if (!may_change_links(client)) return refuse(EPERM, "only root may change root's links");
  if (request.count > std::size(request.peers)) return refuse(EINVAL, kRefused);
  std::vector<roce::Prefix> peers;
  for (const protocol::PeerRecord& record : std::span(request.peers).first(request.count)) {
    const auto peer = control::load_peer(record);
    if (!peer) return refuse(EINVAL, kRefused);
    peers.push_back(*peer);
  }
  return plain(links_.set_peers(load_text(request.name), std::move(peers)));
}

// Any client that may have a slot may join groups: the kernel lets every process do so.
RequestResult<> LinkRequests::join_group(const Lessee&, const protocol::GroupRequest& request) {
  constexpr const char* kRefused = "the multicast group cannot be joined";
  roce::Address group;
  std::copy(std::begin(request.group), std::end(request.group), group.bytes.begin());
  if (!group.is_multicast()) return refuse(EINVAL, kRefused);
  if (!wire_.has_sockets()) return refuse(ENETDOWN, kRefused);
  const auto& links = links_.links();
  const auto link = std::ranges::find(links, request.device_index, &control::Link::device_index);
  if (link == links.end()) return refuse(ENODEV, kRefused);
  auto socket = net::open_multicast_socket(group, link->interface_index, port_);
  if (!socket) return refuse(socket.error().code, kRefused);
  if (!wire_.guard(socket->get())) return refuse(errno, kRefused);
  Reply<> reply;
  reply.last_fd = std::move(*socket);
  return reply;
}

}  // namespace verbena::agent
