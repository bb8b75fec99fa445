// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/dispatcher.h"

#include <sys/stat.h>

#include "control/model/message_socket.h"
#include "management/mad/subnet_management.h"

namespace verbena::agent {
namespace {

using mad::Mad;
using mad::MadHeader;
using mad::MadStatus;
using mad::Subnet;

constexpr uint32_t kGsiQpn = 1;
constexpr uint8_t kOwnPortNumber = 1;
constexpr uint64_t kFabricsOwn = 0;  // in place of a program's port number
// A neighbour that was not heard for this long is dropped: three announcements in a row were lost.
constexpr Duration kForgottenAfter = std::chrono::seconds(35);
constexpr auto kLongestTimeout = std::chrono::minutes(10);

// Whether programs may send and receive datagrams of this class. Not those of connection management, which
// could end other users' connections, nor announcements.
bool is_for_programs(uint8_t management_class, uint32_t oui) {
  const bool announces = management_class == mad::kAnnouncementClass && oui == mad::kAnnouncementOui;
  return management_class != mad::kClassConnection && !announces;
}

bool wants_answer(const Mad& mad) {
  const uint8_t method = mad.u8(mad::kMethodAt);
  return (method == mad::kMethodGet || method == mad::kMethodSet) && !mad::is_rmpp(mad);
}

}  // namespace

MadDispatcher::MadDispatcher(EventLoop& loop, ClientSockets& sockets, uid_t own, std::string host,
                             CmService& cm, CounterPublisher& counters, AgentHost& agent)
    : loop_(loop),
      sockets_(sockets),
      cm_(cm),
      counters_(counters),
      agent_(agent),
      quota_(std::make_shared<Quota>(room_with(descriptor_limit()), own)),
      fabrics_(std::move(host)),
      registrations_(draw_seed()),
      long_(loop, own, *this) {}

void MadDispatcher::links_changed(const std::vector<control::Link>& links) {
  fabrics_.links_changed(links);
  std::vector<uint64_t> gone;
  for (const auto& [number, port] : ports_) {
    if (fabrics_.find(port->device_index()) == nullptr) gone.push_back(number);
  }
  for (const uint64_t number : gone) close(number);
}

// ---- ports and agents

RequestResult<protocol::MadPortReply> MadDispatcher::get_port(const Lessee&,
                                                              const protocol::DeviceRequest& request) {
  constexpr size_t kCapabilitiesAt = 20;
  const LinkFabric* fabric = fabrics_.find(request.device_index);
  if (fabric == nullptr) return refuse(ENODEV, "there is no such link");
  const mad::Node node{&fabric->subnet.own(), 1};
  const auto port = mad::attribute_of(fabric->subnet, node, mad::kPortInfo, 0);
  Reply<protocol::MadPortReply> reply;
  reply.message.lid = fabric->subnet.own().lid;
  reply.message.sm_lid = Subnet::kSwitchLid;
  reply.message.capabilities = load_be<uint32_t>(&port.value()[kCapabilitiesAt]);
  return reply;
}

// The inode of the program's socket is the port's number.
RequestResult<> MadDispatcher::open_port(const Lessee& client, const protocol::DeviceRequest& request) {
  constexpr const char* kRefused = "the port cannot be opened for management datagrams";
  if (fabrics_.find(request.device_index) == nullptr) return refuse(ENODEV, kRefused);
  if (!quota_->allows(client.uid)) return refuse(EMFILE, kRefused);
  auto ends = control::make_socket_pair();
  if (!ends) return refuse(ends.error().code, kRefused);
  struct stat status {};
  if (::fstat(ends->theirs.get(), &status) != 0) return refuse(errno, kRefused);
  const uint64_t number = status.st_ino;
  if (ports_.contains(number)) return refuse(EAGAIN, kRefused);
  const bool takes_long = (request.flags & protocol::kMadLongMessages) != 0;
  ports_.emplace(
      number, std::make_unique<OpenPort>(*this, number, loop_, sockets_, client.uid, request.device_index,
                                         std::move(ends->ours), takes_long, take_share(quota_, client.uid)));
  agent_.consider_idle();
  Reply<> reply;
  reply.last_fd = std::move(ends->theirs);
  return reply;
}

// Just after the agent's start, programs wait until it knows its neighbours.
bool MadDispatcher::has_room(uint64_t port) {
  const TimePoint settled = fabrics_.settled;
  if (MonotonicClock::now() >= settled) {
    return waiting_.has_room(port) && long_.has_room(port, ports_.at(port)->user());
  }
  ports_.at(port)->arm(settled);
  return false;
}

OpenPort* MadDispatcher::port_of(uid_t user, uint64_t port) {
  const auto found = ports_.find(port);
  return found != ports_.end() && found->second->user() == user ? found->second.get() : nullptr;
}

void MadDispatcher::close(uint64_t port) {
  const auto found = ports_.find(port);
  if (found == ports_.end()) return;
  ports_.erase(found);
  for (const uint32_t transaction : registrations_.remove_port(port)) long_.forget_receiver(transaction);
  waiting_.remove_port(port);
  long_.remove_port(port);
  agent_.consider_idle();
}

RequestResult<protocol::MadRegisterReply> MadDispatcher::add_agent(
    const Lessee& client, const protocol::MadRegisterRequest& request) {
  constexpr const char* kRefused = "no agent can be registered for these management datagrams";
  constexpr uint32_t kKnown = protocol::kMadUserRmpp | protocol::kMadKeepsNumber;
  if ((request.flags & ~kKnown) != 0) return refuse(EINVAL, kRefused);
  const OpenPort* port = port_of(client.uid, request.port);
  if (port == nullptr) return refuse(EBADF, kRefused);
  if (!is_for_programs(request.management_class, request.oui)) return refuse(EPERM, kRefused);
  MadAgent agent;
  agent.port = request.port;
  agent.device_index = port->device_index();
  agent.management_class = request.management_class;
  agent.class_version = request.class_version;
  agent.queue_pair = request.queue_pair;
  agent.rmpp_version = request.rmpp_version;
  agent.user_rmpp = (request.flags & protocol::kMadUserRmpp) != 0;
  agent.oui = request.oui;
  for (size_t method = 0; method < agent.methods.size(); ++method) {
    agent.methods.set(method, (request.method_masks[method / 64] >> method % 64 & 1) != 0);
  }
  std::optional<uint32_t> number;
  if ((request.flags & protocol::kMadKeepsNumber) != 0) number = request.agent;
  const auto added = registrations_.add(agent, number);
  if (!added) return refuse(added.error().code, kRefused);
  Reply<protocol::MadRegisterReply> reply;
  reply.message.agent = *added;
  return reply;
}

RequestResult<> MadDispatcher::remove_agent(const Lessee& client,
                                            const protocol::MadRegisterRequest& request) {
  constexpr const char* kRefused = "there is no such agent";
  OpenPort* port = port_of(client.uid, request.port);
  if (port == nullptr) return refuse(EBADF, kRefused);
  waiting_.remove_agent(request.port, request.agent);
  long_.remove_agent(request.port, request.agent);
  const MadAgent* known = registrations_.find(request.port, request.agent);
  if (known != nullptr) long_.forget_receiver(known->transaction);
  port->resume();
  return plain_reply(registrations_.remove(request.port, request.agent), kRefused);
}

// ---- datagrams from programs

void MadDispatcher::on_datagram(uint64_t port, const protocol::UserMad& header, ConstBytes message) {
  const MadAgent* agent = registrations_.find(port, header.agent);
  LinkFabric* fabric = fabrics_.find(ports_.at(port)->device_index());
  if (agent == nullptr || fabric == nullptr) return;
  Mad mad;
  std::copy_n(message.begin(), std::min(message.size(), mad.bytes.size()), mad.bytes.begin());
  const MadHeader said = mad::header_of(mad);
  if (said.base_version != roce::kMadBaseVersion || !is_for_programs(said.management_class, said.oui)) return;
  if (!said.is_response()) {
    const uint64_t lower = said.transaction & 0xffffffff;
    mad.set(mad::kTransactionAt, uint64_t{agent->transaction} << 32 | lower);
  }
  if (header.status == ETIMEDOUT) return give_back(port, header, mad);
  // Subnet management of the whole fabric is answered by this agent.
  const auto to = mad::is_subnet_management(said.management_class)
                      ? std::optional(Correspondent{byteswap(header.lid_be), {}})
                      : destination_of(*fabric, header);
  // The fabric itself needs only the first datagram of a message.
  const bool is_for_fabric = to && to->is_here() && to->lid == Subnet::kSwitchLid;
  const bool is_long = agent->has_whole_messages() && mad::is_rmpp(mad) && !is_for_fabric;
  if (is_long) return send_long(port, header, mad, message, to);
  if (message.size() <= mad.bytes.size() || is_for_fabric) send_single(port, header, mad, to);
}

void MadDispatcher::send_single(uint64_t port, const protocol::UserMad& header, const Mad& mad,
                                const std::optional<Correspondent>& to) {
  const bool waits = !mad::header_of(mad).is_response() && header.timeout_ms != 0;
  if (waits && !wait_for_answer(port, header, mad, to, std::min(header.retries, kMaxRetries))) {
    // All segments that a program splits itself have the same transaction ID.
    if (!mad::is_rmpp(mad)) return;
  }
  if (to) dispatch(*fabrics_.find(ports_.at(port)->device_index()), mad, byteswap(header.lid_be), *to);
}

// Returns false if an answer to this transaction is awaited already.
bool MadDispatcher::wait_for_answer(uint64_t port, const protocol::UserMad& header, const Mad& mad,
                                    const std::optional<Correspondent>& to, uint32_t retries) {
  WaitingRequest request;
  request.port = port;
  request.header = header;
  request.mad = mad;
  if (to) request.to = *to;
  request.timeout = std::min<Duration>(std::chrono::milliseconds(header.timeout_ms), kLongestTimeout);
  request.retries = retries;
  const bool added = waiting_.add(std::move(request), MonotonicClock::now());
  ports_.at(port)->arm(waiting_.deadline(port));
  return added;
}

void MadDispatcher::send_long(uint64_t port, const protocol::UserMad& header, const Mad& first,
                              ConstBytes message, const std::optional<Correspondent>& to) {
  const OpenPort& open = *ports_.at(port);
  std::vector<std::byte> bytes(message.begin(), message.end());
  std::copy_n(first.bytes.begin(), std::min(bytes.size(), first.bytes.size()), bytes.begin());
  long_.send({port, open.user(), header, open.device_index(), byteswap(header.lid_be), to}, std::move(bytes));
}

void MadDispatcher::send_segment(const LongMessages::Sending& sending, const Mad& segment) {
  LinkFabric* fabric = fabrics_.find(sending.device_index);
  if (fabric == nullptr || !sending.to) return;
  if (sending.port == kFabricsOwn) return void(take(*fabric, segment, {Subnet::kSwitchLid, {}}));
  dispatch(*fabric, segment, sending.lid, *sending.to);
}

void MadDispatcher::reply(uint32_t device_index, const Mad& mad, const Correspondent& to) {
  if (LinkFabric* fabric = fabrics_.find(device_index)) dispatch(*fabric, mad, to.lid, to);
}

void MadDispatcher::abort(uint32_t transaction, const roce::Address& to, const Mad& mad) {
  const MadAgent* agent = registrations_.for_answer(uint64_t{transaction} << 32);
  LinkFabric* fabric = agent != nullptr ? fabrics_.find(agent->device_index) : nullptr;
  const auto path = fabric != nullptr ? fabric->path_to(to) : std::nullopt;
  if (path) send(mad, {0, *path});
}

void MadDispatcher::on_file(uint64_t port, const protocol::UserMad& header, ConstBytes message) {
  const auto found = ports_.find(port);
  if (found != ports_.end()) found->second->take_whole(header, message);
  resume_all();  // other ports of the user may have waited for the memory
}

void MadDispatcher::resume_all() {
  for (const auto& [number, port] : ports_) port->resume();
}

// A request whose last segment is acknowledged awaits its answer, and is not sent again.
void MadDispatcher::on_sent(const LongMessages::Sending& sending, const Mad& first, bool arrived) {
  if (!ports_.contains(sending.port)) return;
  if (!arrived) return give_back(sending.port, sending.header, first);
  const bool waits = !mad::header_of(first).is_response() && sending.header.timeout_ms != 0;
  if (waits) wait_for_answer(sending.port, sending.header, first, sending.to, 0);
}

// Finds the destination by LID, or without one by GID.
std::optional<Correspondent> MadDispatcher::destination_of(LinkFabric& fabric,
                                                           const protocol::UserMad& header) {
  const uint16_t lid = byteswap(header.lid_be);
  const Subnet& subnet = fabric.subnet;
  if (lid == 0 && header.grh_present != 0) {
    roce::Address gid;
    std::ranges::copy(header.gid, gid.bytes.begin());
    const auto path = fabric.path_to(gid);
    if (!path || gid.is_multicast()) return std::nullopt;
    return Correspondent{0, *path};
  }
  const mad::Member* member = subnet.by_lid(lid);
  if (member == nullptr || member == &subnet.own()) return Correspondent{lid, {}};
  const auto path = fabric.path_to(member->address);
  if (!path) return std::nullopt;
  return Correspondent{lid, *path};
}

void MadDispatcher::dispatch(LinkFabric& fabric, const Mad& mad, uint16_t lid, const Correspondent& to) {
  const MadHeader header = mad::header_of(mad);
  const Correspondent here{fabric.subnet.own().lid, {}};
  fabric.subnet.forget_before(MonotonicClock::now() - kForgottenAfter);
  if (mad::is_subnet_management(header.management_class)) {
    const auto answered = mad::answer_subnet_management(fabric.subnet, mad, lid);
    if (answered) take_answer(fabric.link.device_index, answered->bytes, {lid, {}});
    return;
  }
  if (!to.is_here()) return send(mad, to);
  const bool is_control = mad::is_rmpp(mad) && mad::rmpp_type(mad) != mad::RmppType::kData;
  if (is_control && long_.on_control(fabric.link.device_index, mad, {lid, {}})) return;
  if (header.is_response()) return void(take(fabric, mad, here));
  if (lid == Subnet::kSwitchLid && header.management_class == mad::kClassSubnAdministration) {
    return ask_administration(fabric, mad);
  }
  if (lid == Subnet::kSwitchLid) return ask_switch(fabric, mad);
  // There is no answer from an unassigned LID.
  if (lid != here.lid || take(fabric, mad, here) || !wants_answer(mad)) return;
  take_answer(fabric.link.device_index, mad::begin_answer(mad, MadStatus::kUnsupportedAttribute).bytes, here);
}

// Answers as subnet administration. Looks for the destination of a requested path at its address: the host
// need not have announced itself.
void MadDispatcher::ask_administration(LinkFabric& fabric, const Mad& request) {
  const auto wanted = mad::wanted_destination(request);
  if (wanted && wanted->is_link_local()) {
    const uint64_t guid = mad::guid_of_address(*wanted);
    const bool is_known = guid == fabric.subnet.switch_guid() || fabric.subnet.by_guid(guid) != nullptr;
    if (!is_known) fabric.subnet.look_for(*wanted, MonotonicClock::now());
  }
  fabric.subnet.count_activity();
  const uint32_t device = fabric.link.device_index;
  auto answered = mad::answer_administration(fabric.subnet, request);
  if (!answered) return;
  const Correspondent there{Subnet::kSwitchLid, {}};
  const MadAgent* agent = registrations_.for_answer(mad::header_of(request).transaction);
  const bool in_segments =
      answered->size() > mad::kMadBytes && agent != nullptr && !agent->has_whole_messages();
  if (!in_segments) return take_answer(device, *answered, there);
  long_.send({kFabricsOwn, ports_.at(agent->port)->user(), {}, device, 0, there}, std::move(*answered));
}

// Answers for the switch. It knows the counters of its port to this link: the link's own, seen from the peer.
void MadDispatcher::ask_switch(LinkFabric& fabric, const Mad& request) {
  const MadHeader header = mad::header_of(request);
  const Correspondent there{Subnet::kSwitchLid, {}};
  const uint32_t device = fabric.link.device_index;
  if (header.management_class != mad::kClassPerformance) {
    if (wants_answer(request)) {
      take_answer(device, mad::begin_answer(request, MadStatus::kUnsupportedAttribute).bytes, there);
    }
    return;
  }
  const auto counters = port_counters_of(counters_.of(device));
  take_answer(
      device,
      fabric.switch_performance.answer(request, Subnet::kOwnPort, counters.seen_from_peer(), true).bytes,
      there);
}

// ---- arriving datagrams

LinkFabric* MadDispatcher::fabric_with(const roce::Address& address, uint32_t interface_index) {
  const auto place = cm_.links().find(address, interface_index);
  return place ? fabrics_.find(place->link->device_index) : nullptr;
}

// Returns the LID of the sender, or 0 if it has none. An address of this host belongs to no neighbour.
uint16_t MadDispatcher::lid_of(LinkFabric& fabric, const roce::Path& arrival) {
  const LinkFabric* own = fabric_with(arrival.source, arrival.interface_index);
  const mad::Member* member = own != nullptr ? fabric.subnet.by_guid(own->subnet.own().adapter.guid)
                                             : fabric.subnet.meet(arrival.source, MonotonicClock::now());
  return member != nullptr ? member->lid : uint16_t{0};
}

void MadDispatcher::heard(const cm::Arrival& arrival) {
  LinkFabric* fabric = fabric_with(arrival.path.destination, arrival.path.interface_index);
  if (fabric != nullptr) lid_of(*fabric, arrival.path);
}

bool MadDispatcher::on_mad(ConstBytes bytes, const cm::Arrival& arrival) {
  LinkFabric* fabric = fabric_with(arrival.path.destination, arrival.path.interface_index);
  Mad mad;
  if (fabric == nullptr || bytes.size() != mad.bytes.size()) return false;
  std::ranges::copy(bytes, mad.bytes.begin());
  const MadHeader header = mad::header_of(mad);
  // Subnet management uses QP0, which RoCE does not have.
  const bool is_for_qp0 = mad::is_subnet_management(header.management_class);
  if (header.base_version != roce::kMadBaseVersion || is_for_qp0) return false;
  const Correspondent from{lid_of(*fabric, arrival.path), cm::answer_path(arrival.path)};
  // An unhandled segment gets no error answer, unlike any other Get: the sender would take that for a segment
  // of the answer.
  return take(*fabric, mad, from) || mad::is_rmpp(mad);
}

bool MadDispatcher::take(LinkFabric& fabric, const Mad& mad, const Correspondent& from) {
  if (mad::is_rmpp(mad)) {
    if (const auto taken = take_segment(fabric, mad, from)) return *taken;
  }
  if (!mad::header_of(mad).is_response()) return take_request(fabric, mad, from);
  take_answer(fabric.link.device_index, mad.bytes, from);
  return true;
}

// Accepts segments of an answer only while one is awaited. Otherwise strangers could fill the memory of
// programs that want to receive nothing.
std::optional<bool> MadDispatcher::take_segment(LinkFabric& fabric, const Mad& mad,
                                                const Correspondent& from) {
  const uint32_t device = fabric.link.device_index;
  const MadHeader header = mad::header_of(mad);
  const mad::RmppType type = mad::rmpp_type(mad);
  if (type != mad::RmppType::kData && long_.on_control(device, mad, from)) return true;
  const MadAgent* agent = header.is_response() ? registrations_.for_answer(header.transaction)
                                               : registrations_.for_request(device, header);
  if (agent == nullptr || agent->device_index != device || !agent->has_whole_messages()) return std::nullopt;
  if (type == mad::RmppType::kAbort) long_.forget(*agent, mad, from);
  if (type != mad::RmppType::kData) return true;
  const bool is_wanted = !header.is_response() || long_.knows(*agent, mad, from) ||
                         waiting_.awaits(header, from) || long_.awaits(device, mad, from);
  if (!is_wanted) return true;
  const std::vector<std::byte> message = long_.on_segment(*agent, mad, from);
  if (message.empty()) return true;
  if (header.is_response()) {
    take_answer(device, message, from);
  } else {
    deliver(agent->port, agent->id, message, from);
  }
  return true;
}

bool MadDispatcher::take_request(LinkFabric& fabric, const Mad& request, const Correspondent& from) {
  const MadHeader header = mad::header_of(request);
  const uint32_t device = fabric.link.device_index;
  if (header.management_class == mad::kClassPerformance) {
    const auto counters = port_counters_of(counters_.of(device));
    // Local programs may reset the counters that these answers show; other hosts may not.
    answer(fabric, fabric.own_performance.answer(request, kOwnPortNumber, counters, from.is_here()), from);
    return true;
  }
  if (mad::is_agent_info_request(header)) {
    const mad::Adapter& own = fabric.subnet.own().adapter;
    answer(fabric,
           mad::answer_agent_info(request, {.version = VERBENA_VERSION,
                                            .description = own.description,
                                            .path_mtu = own.path_mtu,
                                            .asked_by = from.path.destination}),
           from);
    return true;
  }
  const MadAgent* agent = registrations_.for_request(device, header);
  if (agent == nullptr) return false;
  deliver(agent->port, agent->id, request.bytes, from);
  return true;
}

void MadDispatcher::answer(LinkFabric& fabric, const Mad& mad, const Correspondent& to) {
  if (to.is_here()) {
    return take_answer(fabric.link.device_index, mad.bytes, {fabric.subnet.own().lid, {}});
  }
  send(mad, to);
}

void MadDispatcher::take_answer(uint32_t device_index, ConstBytes bytes, const Correspondent& from) {
  Mad first;
  std::copy_n(bytes.begin(), std::min(bytes.size(), first.bytes.size()), first.bytes.begin());
  const MadHeader header = mad::header_of(first);
  if (const auto request = waiting_.answered(header, from)) {
    return deliver(request->port, request->header.agent, bytes, from);
  }
  if (const auto sending = long_.answered(device_index, first, from)) {
    return deliver(sending->port, sending->header.agent, bytes, from);
  }
  // A program that reassembles its messages itself also gets the segments after the first one.
  const MadAgent* agent = mad::is_rmpp(first) ? registrations_.for_answer(header.transaction) : nullptr;
  if (agent != nullptr && agent->device_index == device_index && !agent->has_whole_messages()) {
    deliver(agent->port, agent->id, bytes, from);
  }
}

void MadDispatcher::deliver(uint64_t port, uint32_t agent, ConstBytes message, const Correspondent& from) {
  const auto found = ports_.find(port);
  if (found == ports_.end()) return;
  protocol::UserMad user{};
  user.agent = agent;
  user.queue_pair_be =
      mad::is_subnet_management(static_cast<uint8_t>(message[mad::kClassAt])) ? 0 : byteswap(kGsiQpn);
  user.lid_be = byteswap(from.lid);
  if (!from.is_here()) {
    user.grh_present = 1;
    user.hop_limit = from.path.hop_limit;
    user.traffic_class = from.path.traffic_class;
    user.flow_label_be = byteswap(from.path.flow_label);
    std::ranges::copy(from.path.destination.bytes, user.gid);
  }
  found->second->deliver(user, message);
  found->second->resume();
}

void MadDispatcher::send(const Mad& mad, const Correspondent& to) {
  cm_.gsi().send(mad, to.path);
  cm_.settle();
}

// ---- timeouts

void MadDispatcher::on_timer(uint64_t port) {
  OpenPort& open = *ports_.at(port);
  const auto due = waiting_.take_due(port, MonotonicClock::now());
  open.arm(waiting_.deadline(port));
  open.resume();
  if (!due) return;
  const WaitingRequest& request = due->request;
  if (due->given_up) {
    give_back(port, request.header, request.mad);
  } else if (LinkFabric* fabric = fabrics_.find(open.device_index())) {
    dispatch(*fabric, request.mad, byteswap(request.header.lid_be), request.to);
  }
}

// Returns an unanswered request to its program as the kernel does: only its header, with the status.
void MadDispatcher::give_back(uint64_t port, const protocol::UserMad& header, const Mad& mad) {
  protocol::UserMad with_status = header;
  with_status.status = ETIMEDOUT;
  OpenPort& open = *ports_.at(port);
  open.deliver(with_status, ConstBytes(mad.bytes).first(mad::kMadHeaderBytes));
  open.resume();
}

}  // namespace verbena::agent
