// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/service.h"

#include <numeric>

#include <rdma/rdma_cma.h>

#include "agent/cm/client.h"
#include "agent/own_process.h"
#include "base/text.h"

namespace verbena::agent {

namespace {

// Time for programs of a former agent to reclaim their ports and connections.
constexpr Duration kClaimTime = std::chrono::seconds(30);

// By so much clients that come back one after the other prolong the time in which more are expected.
constexpr Duration kReturnExtension = std::chrono::seconds(5);

constexpr uint32_t kLoopbackInterface = 1;  // in every network namespace

cm::ManagerConfig manager_config() {
  cm::ManagerConfig config;
  config.own_account = ::geteuid();
  return config;
}

static_assert(protocol::kConnectionStates == cm::kStates);
static_assert(protocol::kConnectionMads == cm::kMessageTypes);
static_assert(protocol::kDatagramDropReasons == cm::kDropReasons);

// By CmState: the values of the kernel's enum rdma_cm_state.
constexpr std::array<uint8_t, kCmStates> kKernelStates = {0, 7, 1, 2, 4, 5, 6, 8, 9};

protocol::CmIdRecord record_of(const CmClient& client, const CmIdentifier& id, const cm::Manager& manager) {
  protocol::CmIdRecord record{};
  record.pid = client.host().process();
  record.uid = client.user();
  record.number = id.listed_number;
  record.device_index = id.has_device() ? id.route.device_index : protocol::kNoDevice;
  record.port_space = id.port_space;
  record.qp_type = id.qp_type;
  record.state = kKernelStates[static_cast<size_t>(id.state)];
  record.source = id.source;
  record.destination = id.destination;
  store_text(record.program, client.host().program());
  if (id.connection != 0) {
    if (const auto info = manager.info(id.connection)) record.local_qpn = info->local_qpn;
  }
  return record;
}

uint64_t sum(const cm::Counters::ByMessage& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

}  // namespace

CmService::CmService(EventLoop& loop, ForeignCloser& closer, uint16_t udp_port, AgentHost& agent)
    : loop_(loop),
      udp_port_(udp_port),
      agent_(agent),
      random_(draw_seed()),
      channels_(ClientLimits::channels_with(descriptor_limit()), ::geteuid()),
      shares_(::geteuid()),
      ledger_([this] { agent_.others_changed(); }),
      gsi_(loop, [this](ConstBytes mad, const cm::Arrival& arrival) { on_mad(mad, arrival); }),
      own_messages_(draw_seed()),
      manager_(manager_config(), *this, peer_events_, Random(draw_seed())),
      traces_(loop, closer, ::geteuid(), ConnectionTraces::readers_with(descriptor_limit()),
              [this](const ConnectionTrace& trace) { agent_.trace_ended(trace); }),
      gone_clients_(loop) {
  manager_.set_observer(peer_events_);
  for (const uint16_t number : {RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB}) {
    port_spaces_.try_emplace(number, ::geteuid());
  }
  if (auto routes = RouteQuery::open()) {
    routes_ = std::move(*routes);
    neighbours_.emplace(loop_, *routes_, [this](uint32_t interface_index) {
      return agent_.needs_no_neighbours(interface_index);
    });
  } else {
    log_warning("the kernel's routes cannot be asked for: errno {}", routes.error().code);
  }
}

CmService::~CmService() = default;

void CmService::join(CmClient& client) {
  client.listed_number = ++last_client_;
  clients_.emplace(client.listed_number, &client);
  usage_of(client.user()).clients.emplace(client.listed_number, &client);
}

void CmService::leave(CmClient& client) {
  clients_.erase(client.listed_number);
  usage_of(client.user()).clients.erase(client.listed_number);
  ended_listeners_.forget(client);
}

const CmService::Usage* CmService::find_usage(uid_t user) const {
  const auto found = usage_.find(user);
  return found != usage_.end() ? &found->second : nullptr;
}

void CmService::expect_returns(TimePoint until) {
  returns_until_ = std::max(returns_until_, until);
  last_return_ = returns_until_ + kReturnExtension;
}

void CmService::expect_one_return(TimePoint until) {
  returns_until_ = std::max(returns_until_, std::min(until, last_return_));
}

void CmService::take_over(int ledger) {
  const TimePoint until = MonotonicClock::now() + kClaimTime;
  if (ledger < 0) return claims_.take_over_without_ledger(until);
  claims_.take_over(Ledger::read(ledger), until);
  end_claims_at(until);
}

void CmService::end_claims_at(TimePoint when) {
  loop_.at(when, [this] {
    const bool has_more = claims_.end([this](uint32_t qpn) { return is_orphan(qpn); });
    if (has_more) end_claims_at(MonotonicClock::now() + kClaimTime);
  });
}

void CmService::send(const cm::Mad& mad, const roce::Path& path) {
  own_messages_.said(mad.bytes);
  if (!has_wire()) return loop_back(mad, path);
  gsi_.send(mad, path);
}

bool CmService::reaches(const roce::Path& path) const {
  return has_wire() || is_of_this_host(cm::answer_path(path));
}

// Delivers the datagram in the loop's next round, as if from a socket, because the manager is in the middle
// of an operation.
void CmService::loop_back(const cm::Mad& mad, const roce::Path& path) {
  roce::Path back = cm::answer_path(path);
  if (!is_of_this_host(back)) return;
  std::swap(back.source, back.destination);
  loop_.later([this, mad, back] { on_mad(mad.bytes, cm::Arrival{.path = back, .from_roce_port = true}); });
}

// Links may have equal link-local addresses. A datagram from this host to itself arrives by the link with the
// address, or by loopback.
bool CmService::is_of_this_host(const roce::Path& path) const {
  if (is_loopback(address_of(path.source))) return true;
  const auto place = links_.find(path.source, path.interface_index);
  if (!place || !path.source.is_link_local()) return place.has_value();
  return place->link->interface_index == path.interface_index || path.interface_index == kLoopbackInterface;
}

void CmService::on_mad(ConstBytes mad, const cm::Arrival& arrival) {
  if (is_of_this_host(arrival.path) && !own_messages_.heard(mad)) return;  // forged
  early_.hear_rejection(mad, arrival);
  const TimePoint now = MonotonicClock::now();
  receive(mad, arrival, now, now);
}

void CmService::receive(ConstBytes mad, const cm::Arrival& arrival, TimePoint came, TimePoint now) {
  cm::Arrival this_time = arrival;
  this_time.waited = now - came;
  this_time.may_wait = early_.has_room(arrival.path.source, this_time.waited);
  const cm::Disposal disposal = manager_.on_mad(mad, this_time, now);
  settle();
  if (disposal == cm::Disposal::kDone) return;
  const auto displaced =
      early_.keep(mad, arrival, came, std::max(now + EarlyMessages::kPatience, returns_until_));
  early_timer_.arm(early_.deadline());
  if (!displaced) return;
  cm::Arrival its = displaced->arrival;
  its.waited = now - displaced->came;
  manager_.on_mad(displaced->mad.bytes, its, now);  // may not wait any more
}

void CmService::answer_early_messages() {
  const TimePoint now = MonotonicClock::now();
  while (const auto message = early_.take_overdue(now)) {
    receive(message->mad.bytes, message->arrival, message->came, now);
  }
  early_timer_.arm(early_.deadline());
}

void CmService::listener_began(const CmIdentifier& id) {
  const auto service = cm::service_id(static_cast<cm::PortSpace>(id.port_space), port_of(id.source));
  receive_early_messages(id.client->user(), [service](const EarlyMessages::Message& message) {
    return message.service_id == service;
  });
}

void CmService::connection_returned(const CmIdentifier& id) {
  roce::Address peer;
  std::ranges::copy(id.route.destination_gid, peer.bytes.begin());
  receive_early_messages(id.client->user(), [peer](const EarlyMessages::Message& message) {
    return !message.service_id && message.arrival.path.source == peer;
  });
}

// Another piece of the user's work, so that the program that listens or restores gets its reply first. Each
// piece handles one message. One that is kept again has a new number, and is not taken a second time.
void CmService::receive_early_messages(uid_t user,
                                       std::function<bool(const EarlyMessages::Message&)> counts) {
  if (early_.deadline() == kNever) return;
  loop_.in_turn_of(user, [this, last = early_.last_number(), counts = std::move(counts)] {
    const auto message = early_.take(last, counts);
    if (message) receive(message->mad.bytes, message->arrival, message->came, MonotonicClock::now());
    return message.has_value();
  });
}

void CmService::listener_ended(const CmIdentifier& id) {
  ended_listeners_.add(*id.client, port_of(id.source), MonotonicClock::now());
}

bool CmService::may_listen_soon(uint16_t port, Duration waited) const {
  if (expects_returns() || waited < EarlyMessages::kPatience) return true;
  return waited < EndedListeners::kRemembered && ended_listeners_.has(port, MonotonicClock::now());
}

void CmService::open_wire(int slot_socket) {
  if (has_wire() || slot_socket < 0) return;
  if (const auto opened = gsi_.open(slot_socket, udp_port_); !opened) {
    log_warning("no connection management: QP1 cannot be opened: errno {}", opened.error().code);
  }
}

void CmService::links_changed(const std::vector<control::Link>& links,
                              std::span<const uint32_t> failed_over) {
  links_.update(links);
  for (const auto& [number, client] : clients_) client->links_changed(failed_over);
  settle();
}

std::shared_ptr<ConnectionTrace> CmService::make_trace(const CmClientHost& client) {
  return std::make_shared<ConnectionTrace>(traces_, TracedProcess{.process = client.process_identity(),
                                                                  .pid = client.process(),
                                                                  .uid = client.user(),
                                                                  .program = std::string(client.program())});
}

bool CmService::owes_farewells() const {
  return !gone_clients_.empty() || manager_.size() > manager_.waiting();
}

Result<PortSpace*> CmService::port_space(uint16_t number) {
  const auto found = port_spaces_.find(number);
  if (found == port_spaces_.end()) return fail(EPROTONOSUPPORT);
  return &found->second;
}

void CmService::note_port(CmIdentifier& id) {
  if (!id.holds_port) return;
  LedgerEntry entry;
  entry.kind = LedgerEntry::kPort;
  entry.user = id.client->user();
  entry.port_space = id.port_space;
  entry.flags = static_cast<uint16_t>((id.reuse_address ? LedgerEntry::kSharesAddress : 0) |
                                      (id.own_family_only ? LedgerEntry::kOneFamily : 0));
  entry.source = id.source;
  entry.destination = id.destination;
  if (id.port_entry != 0) return ledger_.change(id.port_entry, entry);
  id.port_entry = ledger_.add(entry);
}

void CmService::note_connection(CmIdentifier& id) {
  const auto info = manager_.info(id.connection);
  if (!info || id.connection_entry != 0) return;
  LedgerEntry entry;
  entry.kind = LedgerEntry::kConnection;
  entry.user = id.client->user();
  entry.local_id = info->local_id;
  entry.remote_id = info->remote_id;
  entry.local_qpn = info->local_qpn;
  if (info->peer_has_roce_port) entry.flags = LedgerEntry::kPeerHasRocePort;
  std::ranges::copy(info->path.destination.bytes, entry.peer);
  id.connection_entry = ledger_.add(entry);
}

void CmService::release_connection(CmIdentifier& id) {
  ledger_.remove(std::exchange(id.connection_entry, 0));
}

void CmService::release_port(CmIdentifier& id) {
  ledger_.remove(std::exchange(id.port_entry, 0));
  if (!std::exchange(id.holds_port, false)) return;
  if (const auto ports = port_space(id.port_space)) (*ports)->release(id);
}

// So all datagrams of the round are sent together.
void CmService::settle() {
  settle_.queue();
}

void CmService::finish_round() {
  gsi_.flush();
  if (clients_.empty()) agent_.consider_idle();
}

void CmService::on_timer_set(uid_t user, TimePoint when) {
  timers_.try_emplace(user, loop_, user, [this, user] { on_timer(user); }).first->second.arm(when);
}

// Handles one timer, in a turn of the user: a program may have thousands that expire at once.
void CmService::on_timer(uid_t user) {
  manager_.on_timer(user, MonotonicClock::now());
  timers_.at(user).arm(manager_.deadline(user));
  settle();
}

protocol::CmStatus status_of(CmService& service) {
  protocol::CmStatus status{};
  const cm::Manager& manager = service.manager();
  const CmTally& tally = service.tally();
  status.identifiers = static_cast<uint32_t>(tally.identifiers);
  status.listening = static_cast<uint32_t>(tally.listening);
  status.resolving = static_cast<uint32_t>(tally.resolving);
  for (size_t state = 0; state < cm::kStates; ++state) {
    status.connections[state] = static_cast<uint32_t>(manager.owned_in(static_cast<cm::State>(state)));
  }
  status.waiting = static_cast<uint32_t>(manager.waiting()) -
                   std::min(static_cast<uint32_t>(manager.waiting()),
                            status.connections[static_cast<size_t>(cm::State::kTimeWait)]);
  const cm::Counters& counters = manager.counters();
  std::ranges::copy(counters.sent, status.sent);
  std::ranges::copy(counters.received, status.received);
  std::ranges::copy(counters.dropped, status.dropped);
  status.retransmitted = sum(counters.retransmitted);
  status.duplicates = sum(counters.duplicates);
  status.timed_out = sum(counters.timed_out);
  status.stale_connections = counters.stale_connections;
  status.bad_qkey = service.gsi().counters().bad_qkey;
  status.unknown_class = service.gsi().counters().unknown_class;
  return status;
}

CmIdListing::CmIdListing(const CmService& service, std::optional<uid_t> user)
    : service_(service), user_(user), max_(std::min<size_t>(there_are(), protocol::kMaxCmIdRecords)) {}

const CmService::Clients& CmIdListing::clients() const {
  static const CmService::Clients kNone;
  if (!user_) return service_.clients();
  const CmService::Usage* const usage = service_.find_usage(*user_);
  return usage != nullptr ? usage->clients : kNone;
}

size_t CmIdListing::there_are() const {
  if (!user_) return service_.tally().identifiers;
  const CmService::Usage* const usage = service_.find_usage(*user_);
  return usage != nullptr ? usage->tally.identifiers : 0;
}

std::vector<protocol::CmIdRecord> CmIdListing::next(size_t most) {
  std::vector<protocol::CmIdRecord> records;
  const CmService::Clients& all = clients();
  auto client = all.lower_bound(client_);
  if (client != all.end() && client->first != client_) next_id_ = 0;  // that client has gone
  for (size_t i = 0; i < most && client != all.end() && listed_ < max_; ++i) {
    const ClientIdentifiers::Map& ids = client->second->identifiers();
    const auto id = next_id_ > UINT32_MAX ? ids.end() : ids.lower_bound(static_cast<uint32_t>(next_id_));
    if (id == ids.end()) {
      ++client;
      next_id_ = 0;
      continue;
    }
    records.push_back(record_of(*client->second, *id->second, service_.manager()));
    ++listed_;
    next_id_ = uint64_t{id->first} + 1;
  }
  is_done_ = client == all.end() || listed_ == max_;
  if (!is_done_) client_ = client->first;
  return records;
}

}  // namespace verbena::agent
