// SPDX-License-Identifier: Apache-2.0
// Replaces those of the agent's classes that access the kernel (see Outside). The linker takes the first
// definition that it finds, and these come first.
#include "fuzz/agent_world.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <libmnl/libmnl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "adapter/net/udp/multicast_socket.h"
#include "adapter/transport/packet_io.h"
#include "agent/cm/gsi_port.h"
#include "agent/cm/port_space.h"
#include "agent/cm/routes.h"
#include "agent/own_process.h"
#include "agent/slots/process.h"
#include "fuzz/require.h"
#include "observe/capture/ring_file.h"

namespace verbena {
namespace agent {
namespace {

net::PacketHandler* last_qp1 = nullptr;

fuzz::Choices& choices() {
  static fuzz::Choices none{nullptr, 0};
  return Outside::get().choices != nullptr ? *Outside::get().choices : none;
}

}  // namespace

Outside& Outside::get() {
  static Outside outside;
  return outside;
}

roce::Address host_address(uint8_t last) {
  const uint8_t bytes[4] = {10, 0, 0, last};
  return roce::Address::from_ipv4(bytes);
}

// ---- replaces processes: all clients belong to one process that the agent does not see

uint64_t start_time_of(pid_t) {
  return 0;
}
bool is_same_start(uint64_t one, uint64_t other) {
  return one == other;
}
UniqueFd watch_process(pid_t) {
  return {};
}
UniqueFd watch_peer(int, pid_t) {
  return {};
}
SharedProcess share_process(UniqueFd, ForeignCloser*, uid_t) {
  return nullptr;
}
bool has_ended(int) {
  return false;
}
bool is_pidfd(int) {
  return false;
}
uint64_t unique_number_of(int) {
  return 0;
}

// ---- replaces the sockets of UDP port 4791

void Wire::open() {
  sockets_.push_back(std::make_shared<const UniqueFd>(::eventfd(0, EFD_CLOEXEC)));
  reason_.clear();
}
Result<uint32_t> Wire::add() {
  if (choices().below(32) == 31) return fail(EMFILE);
  sockets_.push_back(std::make_shared<const UniqueFd>(::eventfd(0, EFD_CLOEXEC)));
  return size() - 1;
}
Result<void> Wire::adopt(std::vector<UniqueFd> sockets, std::set<uint32_t>) {
  if (sockets.empty()) return fail(EINVAL);
  sockets_.clear();
  for (UniqueFd& each : sockets) sockets_.push_back(std::make_shared<const UniqueFd>(std::move(each)));
  return {};
}
void Wire::mute(uint32_t slot) {
  receivers_.erase(slot);
}
void Wire::hang_up(uint32_t) {}
void Wire::unmute(uint32_t) {}
Result<void> Wire::forward(uint32_t slot, uid_t) {
  receivers_[slot] = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  return {};
}
UniqueFd Wire::take_receiver(uint32_t slot) {
  const auto node = receivers_.extract(slot);
  return node ? std::move(node.mapped()) : UniqueFd();
}
Result<void> Wire::go_on_forwarding(uint32_t, uid_t, UniqueFd) {
  return {};
}
void Wire::hear_peers_of(const std::vector<control::Link>&) {}
std::function<bool(int socket)> Wire::guard() const {
  return [](int) { return true; };
}

// ---- replaces QP1's socket

GsiPort::GsiPort(EventLoop& loop, OnMad on_mad) : loop_(loop), on_mad_(std::move(on_mad)) {
  last_qp1 = this;
}
GsiPort::~GsiPort() {
  close();
}
// Stores a pointer that is never dereferenced: the agent only checks that it is set.
Result<void> GsiPort::open(int, uint16_t) {
  port_.reset(reinterpret_cast<net::UdpPort*>(this));
  return {};
}
void GsiPort::close() {
  [[maybe_unused]] const net::UdpPort* const none = port_.release();
}
void GsiPort::send_to(roce::Qpn, const cm::Mad& mad, const roce::Path& path) {
  if (is_open()) Outside::get().sent.push_back({mad, path});
}
void GsiPort::send_headers(const roce::Headers&, const roce::Path&) {}
void GsiPort::flush() {}
void GsiPort::on_packet(const transport::IncomingPacket& packet) {
  cm::Arrival arrival;
  arrival.path = packet.path;
  const ConstBytes mad = packet.packet.payload;
  constexpr size_t kClassAt = 1;
  if (on_heard_) on_heard_(arrival);
  const bool is_cm = mad.size() > kClassAt && mad[kClassAt] == std::byte{cm::kMadClass};
  if (is_cm || !on_other_ || !on_other_(mad, arrival)) on_mad_(mad, arrival);
}

// ---- replaces the kernel's port rules

const PortLimits& PortLimitsReader::read() {
  return limits_;
}

// ---- replaces the kernel's routes and neighbors

Result<RouteQuery> RouteQuery::open() {
  return RouteQuery(nullptr, NeighbourQuery::kByNetlink);
}
Result<RouteAnswer> RouteQuery::ask(const RouteQuestion& question) {
  if (choices().below(8) == 7) return fail(choices().yes() ? ENETUNREACH : EACCES);
  RouteAnswer answer;
  answer.source = question.destination;
  answer.source.port = 0;
  answer.interface_index = kOwnInterface;
  answer.is_local = question.destination.address[3] == 1;
  if (answer.is_local) return answer;
  answer.source.address[3] = 1;
  if (choices().below(8) != 7) answer.next_hop = question.destination;
  answer.next_hop.port = 0;
  return answer;
}
bool RouteQuery::knows_neighbour(uint32_t, const CmAddress&) {
  return choices().below(4) != 3;
}

}  // namespace agent

Result<UniqueFd> net::open_multicast_socket(const roce::Address&, uint32_t, uint16_t) {
  return UniqueFd(::eventfd(0, EFD_CLOEXEC));
}

void net::leave_multicast(int, const roce::Address&, uint32_t) {}
void net::refuse_multicast(int) {}

// Real rings are large and allocated from the start.
Result<UniqueFd> capture::make_ring_file(uint32_t) {
  return UniqueFd(::eventfd(0, EFD_CLOEXEC));
}

}  // namespace verbena

extern "C" {
int __real_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                          void* argument);
int64_t __real__ZNSt6chrono3_V212steady_clock3nowEv();
int __real_epoll_wait(int epoll, epoll_event* events, int most, int timeout);
ssize_t __real_sendmsg(int socket, const msghdr* message, int flags);

int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                          void* argument) {
  if (!verbena::agent::Outside::get().is_fake) {
    return __real_pthread_create(thread, attributes, run, argument);
  }
  run(argument);
  return 0;
}
// Timers of the threads that close descriptors, which need not be woken.
int __wrap_timer_create(clockid_t, sigevent*, timer_t*) {
  errno = EAGAIN;
  return -1;
}
int __wrap_pthread_setname_np(pthread_t, const char*) {
  return 0;
}
int64_t __wrap__ZNSt6chrono3_V212steady_clock3nowEv() {
  const auto& outside = verbena::agent::Outside::get();
  return outside.is_fake ? outside.now.time_since_epoch().count()
                         : __real__ZNSt6chrono3_V212steady_clock3nowEv();
}
int __wrap_epoll_wait(int epoll, epoll_event* events, int most, int) {
  return __real_epoll_wait(epoll, events, most, 0);
}
// Messages to neighbors fail.
ssize_t __wrap_sendmsg(int, const msghdr*, int) {
  errno = ENETUNREACH;
  return -1;
}
mnl_socket* __wrap_mnl_socket_open2(int, int) {
  errno = EMFILE;
  return nullptr;
}
}

namespace verbena::agent {

AgentWorld::AgentWorld(bool has_wire)
    : served_(std::nullopt, 0),
      sockets_(loop_, {.all = 4096, .reserve = 512}, 0),
      wire_(4791),
      slots_(wire_, 0),
      domains_(sockets_.closer(), 0, DomainTable::room_with(descriptor_limit())),
      takeover_state_(slots_, served_, sockets_.closer()),
      cm_(loop_, sockets_.closer(), 4791, *this),
      links_(link_table_, *this),
      counters_(loop_, slots_, link_table_, sockets_.closer(), 0),
      lease_(loop_, wire_, slots_, counters_, domains_, *this),
      takeover_({loop_, wire_, lease_, link_table_, cm_, served_before_}, [] {}),
      requests_{.links = {links_, wire_, sockets_.closer(), 4791},
                .slots = {lease_, wire_},
                .domains = {domains_, lease_, requests_.channels, *this},
                .channels = {loop_, lease_, *this},
                .captures = {lease_, sockets_.closer(), *this},
                .status = StatusRequests({links_, wire_, lease_, counters_, refused_, cm_, sockets_.files()}),
                .mads = MadDispatcher(loop_, sockets_, 0, "host", cm_, counters_, *this),
                .traces = {lease_, kept_traces_, cm_.traces(), sockets_.files(), *this}},
      parts_{.loop = loop_,
             .sockets = sockets_,
             .requests = requests_,
             .takeover = takeover_,
             .takeover_state = takeover_state_,
             .links = links_,
             .slots = lease_,
             .connection_management = cm_,
             .refused = refused_,
             .served = served_,
             .agent = *this},
      qp1_(last_qp1) {
  VERBENA_REQUIRE(takeover_state_.create());
  takeover_state_.put_ledger(cm_.ledger().fd());
  link_table_.netdev_changed(
      {.index = 1, .name = "lo", .up = true, .carrier = true, .loopback = true, .mtu = 65536});
  link_table_.netdev_changed({.index = kOwnInterface,
                              .name = "eth0",
                              .up = true,
                              .carrier = true,
                              .mtu = 1500,
                              .mac = {2, 0, 0, 0, 0, 1}});
  link_table_.address_changed(kOwnInterface, {host_address(1), 24});
  if (has_wire) wire_.open();
  takeover_.begin();
  links_.begin();
  if (has_wire) cm_.open_wire(wire_.socket(0));
  cm_.gsi().give_others_to(
      [this](ConstBytes mad, const cm::Arrival& arrival) { return requests_.mads.on_mad(mad, arrival); },
      [this](const cm::Arrival& arrival) { requests_.mads.heard(arrival); });
}

AgentWorld::~AgentWorld() {
  cm_.abandon();
  const auto ending = std::exchange(sessions_, {});
}

AgentWorld::Client AgentWorld::connect(uid_t user) {
  int ends[2];
  VERBENA_REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const uint64_t id = next_session_++;
  const ucred peer{.pid = 0, .uid = user, .gid = user};
  sessions_[id] = std::make_unique<Session>(parts_, id, UniqueFd(ends[0]), peer);
  links_.session_came(id);
  return {id, UniqueFd(ends[1])};
}

Session* AgentWorld::find(uint64_t session) {
  const auto found = sessions_.find(session);
  return found != sessions_.end() ? found->second.get() : nullptr;
}

ClientEvents* AgentWorld::events_of(uint64_t session) {
  Session* const found = find(session);
  return found != nullptr ? &found->events() : nullptr;
}

void AgentWorld::slot_changed(uint32_t slot) {
  takeover_state_.put_slot(slot);
  requests_.captures.slot_changed(slot);
}

void AgentWorld::lease_ending(const LeasedSlot& slot, bool in_order) {
  takeover_state_.lease_ending(slot);
  kept_traces_.keep(slot, in_order, MonotonicClock::now());
}

void AgentWorld::trace_ended(const ConnectionTrace& trace) {
  kept_traces_.keep(trace, MonotonicClock::now());
}

void AgentWorld::end(uint64_t session) {
  if (sessions_.erase(session) == 0) return;
  links_.session_went(session);
  lease_.take_back_all(session);
  requests_.captures.session_went(session);
  requests_.traces.session_went(session);
}

void AgentWorld::links_changed(const std::vector<control::Link>& before) {
  counters_.links_changed(before);
  takeover_state_.put_links(link_table_.snapshot());
  cm_.links_changed(links_.links(), link_table_.failed_over(before));
  requests_.mads.links_changed(links_.links());
  counters_.collect();
  for (const auto& [id, session] : sessions_) session->events().links_changed();
}

void AgentWorld::run() {
  loop_.run_round();
}

void AgentWorld::arrive(const cm::Mad& mad, const roce::Path& path) {
  if (!cm_.has_wire()) return;
  const roce::Packet packet{{}, mad.bytes};
  qp1_->on_packet({packet, path, sizeof mad.bytes});
}

void AgentWorld::restore_links() {
  bool has_own = false;
  const std::vector<control::Link> now = links_.links();
  for (const control::Link& link : now) {
    if (link.name == "rxe_eth0" && link.netdev == "eth0") {
      has_own = true;
    } else if (!link.automatic) {
      std::ignore = links_.change([&](LinkTable& table) { return table.delete_link(link.name); });
    }
  }
  if (!has_own)
    std::ignore = links_.change([](LinkTable& table) { return table.add_link("rxe_eth0", "eth0"); });
}

}  // namespace verbena::agent
