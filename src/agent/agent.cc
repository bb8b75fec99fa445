// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <climits>
#include <csignal>

#include "base/paths/state_directory.h"
#include "base/paths/state_path.h"

namespace verbena::agent {
namespace {

constexpr Duration kStandbyRetryInterval = std::chrono::seconds(1);
// Time for a client's librdmacm to reconnect after the client's libibverbs has.
constexpr Duration kReturnTimeOfOne = std::chrono::seconds(1);
// Maximum wait for the state directory before the agent listens. A program that connected earlier would find
// no device: UCX looks at /dev/infiniband first. On a busy machine the writer's thread took more than a
// second in one of twenty starts. A second agent waits longer than this for the first one to listen.
constexpr Duration kStateWait = std::chrono::seconds(8);
constexpr Duration kStateInterval = std::chrono::seconds(2);  // between two attempts to create the directory
constexpr Duration kIdleAgain = std::chrono::seconds(1);
constexpr Duration kSweepDelay = std::chrono::seconds(1);

// Returns the name of this host's adapters in the fabric: the host name's first part, as in rdma-ndd(8).
std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  ::gethostname(name, sizeof name - 1);
  const std::string whole = name;
  return whole.empty() ? "localhost" : whole.substr(0, whole.find('.'));
}

}  // namespace

// ---- connecting the parts

Agent::Agent(AgentName name, const AgentOptions& options)
    : options_(options),
      served_(options.serve_only),
      name_(std::move(name)),
      client_sockets_(loop_, ClientSockets::room_with(descriptor_limit()), ::geteuid()),
      netlink_(loop_, link_table_, client_sockets_.closer(), [this] { netdev_news_.cause(); }),
      speeds_(link_table_, client_sockets_.closer(), [this] { netdev_news_.cause(); }),
      wire_(options.port, &client_sockets_.closer()),
      slot_table_(wire_, ::geteuid(),
                  [this](uint32_t slot, bool to_another_user) {
                    return cm_.ended_slots().may_be_leased(slot, to_another_user) &&
                           !(to_another_user && requests_.channels.is_awaited(slot));
                  }),
      domain_table_(client_sockets_.closer(), ::geteuid(), DomainTable::room_with(descriptor_limit())),
      takeover_state_(slot_table_, served_, client_sockets_.closer()),
      cm_(loop_, client_sockets_.closer(), options.port, *this),
      links_(link_table_, *this, &client_sockets_.closer()),
      counters_(loop_, slot_table_, link_table_, client_sockets_.closer(), ::geteuid()),
      slots_(loop_, wire_, slot_table_, counters_, domain_table_, *this),
      stopped_(loop_, client_sockets_.closer(), options.port, cm_.gsi()),
      takeover_({loop_, wire_, slots_, link_table_, cm_, served_}, [this] { on_settled(); }),
      requests_{
          .links = {links_, wire_, client_sockets_.closer(), options.port},
          .slots = {slots_, wire_},
          .domains = {domain_table_, slots_, requests_.channels, *this},
          .channels = {loop_, slots_, *this},
          .captures = {slots_, client_sockets_.closer(), *this},
          .status =
              StatusRequests({links_, wire_, slots_, counters_, refused_, cm_, client_sockets_.files()}),
          .mads = MadDispatcher(loop_, client_sockets_, ::geteuid(), host_name(), cm_, counters_, *this),
          .traces = {slots_, kept_traces_, cm_.traces(), client_sockets_.files(), *this}},
      for_sessions_{.loop = loop_,
                    .sockets = client_sockets_,
                    .requests = requests_,
                    .takeover = takeover_,
                    .takeover_state = takeover_state_,
                    .links = links_,
                    .slots = slots_,
                    .connection_management = cm_,
                    .refused = refused_,
                    .served = served_,
                    .agent = *this},
      clients_(loop_, client_sockets_, ClientTable::room_with(descriptor_limit()), *this,
               [this](uint64_t id, UniqueFd socket, const ucred& peer, QuotaShare share) {
                 return std::make_unique<Session>(for_sessions_, id, std::move(socket), peer,
                                                  std::move(share));
               }) {
  loop_.on_pause([this](TimePoint end) { witness_.watch_until(end); });
}

// When clients see their connection close, they look for the next agent. By then the name must be free, and
// the state directory must no longer be this agent's. The next agent starts once the name is free, and picks
// up the traces.
Agent::~Agent() {
  if (state_) {
    if (const auto left = leave_traces(kept_traces_, left_traces_path()); !left) {
      log_warning("traces of programs that have ended are lost with this agent: errno {}", left.error().code);
    }
  }
  counters_.hide();
  if (state_ && !state_->step_aside()) state_.reset();
  clients_.stop_listening();  // before the lock is free: the next agent ends if it finds one that listens
  name_.give_up();
  cm_.abandon();
  clients_.clear();
}

Result<void> Agent::start() {
  standby_launcher_.begin();
  if (const auto created = takeover_state_.create(); !created) return created;
  takeover_state_.put_ledger(cm_.ledger().fd());
  open_state_directory();
  if (const auto started = netlink_.start(); !started) return started;
  speeds_.look_and_wait();  // programs that wait for the agent see the links with their speeds
  loop_.watch(netlink_.fd(), EPOLLIN, [this](uint32_t) {
    netlink_.receive();
    netdev_news_.cause();
  });
  wire_.open();
  takeover_.begin();
  // A program may look into /sys as soon as it has found its agent.
  if (state_) state_->wait(MonotonicClock::now() + kStateWait);
  if (const auto listening = clients_.listen(name_.take_sockets()); !listening) return listening;
  consider_idle();
  return {};
}

void Agent::open_state_directory() {
  const auto directory = paths::make_state_directory();
  if (!directory) {
    if (!std::exchange(misses_state_directory_, true)) {
      log_warning("no state directory (errno {}): programs that look into /sys see no devices",
                  directory.error().code);
    }
    loop_.at(MonotonicClock::now() + kStateInterval, [this] { open_state_directory(); });
    return;
  }
  state_lock_ = lock_state_directory(*directory);
  if (auto mark = paths::mark_in_use(*directory)) {
    state_mark_ = std::move(*mark);
  } else {
    log_warning("{} cannot be marked (errno {}): programs take it for ours also when we are gone", *directory,
                mark.error().code);
  }
  state_.emplace(*directory);
  counters_.show_in(*state_);
  if (misses_state_directory_) state_->show(links_.links());
  take_left_traces(kept_traces_, left_traces_path(), MonotonicClock::now());
  sweeper_ = sweep_later(paths::state_home_for(paths::own_user()).c_str(), kSweepDelay);
}

// ---- events

void Agent::netdevs_changed() {
  links_.publish();
  speeds_.look();
}

void Agent::on_settled() {
  open_gsi();
  link_table_.set_wire(wire_.has_sockets());
  links_.begin();
  watch_port();
  for (const LeasedSlot& slot : slot_table_.leased()) watch_stopped(slot.index);
  takeover_state_.rewrite();
  requests_.channels.assume(slot_table_.records());
  clients_.resume();
}

void Agent::watch_stopped(uint32_t slot) {
  stopped_.slot_changed(slot, slots_.find(slot));
}

void Agent::slot_changed(uint32_t slot) {
  consider_standby();
  takeover_state_.put_slot(slot);
  watch_stopped(slot);
  requests_.captures.slot_changed(slot);
  requests_.channels.tell_rest_to(slot);
}

void Agent::lease_ending(const LeasedSlot& slot, bool in_order) {
  takeover_state_.lease_ending(slot);
  kept_traces_.keep(slot, in_order, MonotonicClock::now());
  cm_.ended_slots().end(slot.index, slot.lessee.uid);
  requests_.channels.lease_ending(slot.index);
}

void Agent::slots_returned() {
  links_.consider_loopback();
  consider_idle();
}

void Agent::orphan_returned() {
  cm_.expect_one_return(MonotonicClock::now() + kReturnTimeOfOne);
  links_.consider_loopback();
}

void Agent::others_changed() {
  loop_.later([this] {
    consider_standby();
    consider_idle();
  });
}

void Agent::trace_ended(const ConnectionTrace& trace) {
  kept_traces_.keep(trace, MonotonicClock::now());
}

// Programs learn of the change from the links, whose ports become ACTIVE.
void Agent::wire_opened() {
  log_info("UDP port {} is free now, and ours", options_.port);
  open_gsi();
  link_table_.set_wire(true);
  links_.publish();
}

void Agent::watch_port() {
  if (wire_.has_sockets() || watches_port_) return;
  loop_.at(MonotonicClock::now() + SlotLeases::kWireInterval, [this] {
    watches_port_ = false;
    survive_lack_of_memory([this] { slots_.seek_wire(MonotonicClock::now()); });
    watch_port();
  });
  watches_port_ = true;
}

void Agent::links_changed(const std::vector<control::Link>& before) {
  counters_.links_changed(before);
  wire_.hear_peers_of(links_.links());
  takeover_state_.put_links(link_table_.snapshot());
  if (state_) state_->show(links_.links());
  cm_.links_changed(links_.links(), link_table_.failed_over(before));
  requests_.mads.links_changed(links_.links());
  if (discovery_) discovery_->links_changed();
  speeds_.look();
  counters_.collect();
  clients_.for_each([](Session& session) { session.events().links_changed(); });
  consider_idle();
}

ClientEvents* Agent::events_of(uint64_t session) {
  Session* const found = clients_.find(session);
  return found != nullptr ? &found->events() : nullptr;
}

void Agent::session_came(uint64_t session) {
  links_.session_came(session);
  consider_idle();
}

void Agent::session_greeted(const Session& session) {
  if (takeover_.is_over()) clients_.expect_no_early_descriptors();
  if (session.is_standby()) standbys_[session.id()] = session.pid();
  if (session.is_mirror()) mirrors_.insert(session.id());
  consider_standby();
  consider_idle();
}

void Agent::session_went(uint64_t session) {
  links_.session_went(session);
  slots_.take_back_all(session);
  requests_.captures.session_went(session);
  requests_.traces.session_went(session);
  standbys_.erase(session);
  mirrors_.erase(session);
  consider_standby();
  consider_idle();
}

// Slot 0 is the agent's own: QP1 is in it.
void Agent::open_gsi() {
  if (cm_.has_wire() || !wire_.has_sockets()) return;
  wire_.unmute(0);
  cm_.open_wire(wire_.socket(0));
  cm_.gsi().give_others_to(
      [this](ConstBytes mad, const cm::Arrival& arrival) { return requests_.mads.on_mad(mad, arrival); },
      [this](const cm::Arrival& arrival) { requests_.mads.heard(arrival); });
  if (options_.discovery && !discovery_) {
    discovery_.emplace(loop_, requests_.mads.fabrics(), options_.port, cm_, wire_, client_sockets_.closer());
  }
  if (discovery_) discovery_->links_changed();
}

// ---- the second process

// Whether the second process is needed: while slots are leased to other users, or these users hold ports.
// Called whenever a client comes or goes or takes a slot, so it only reads counts.
bool Agent::wants_standby() const {
  return wire_.has_sockets() && (slot_table_.leased_to_other_users() > 0 || cm_.ledger().has_others());
}

void Agent::consider_standby() {
  const bool wanted = wants_standby();
  if (!standbys_.empty()) {
    for (const auto& [session, pid] : standbys_) {
      if (!wanted && pid > 0) ::kill(pid, SIGTERM);
    }
    return;
  }
  if (!wanted) return;
  const TimePoint now = MonotonicClock::now();
  if (now < standby_retry_) return standby_timer_.arm(standby_retry_);
  standby_retry_ = now + kStandbyRetryInterval;
  standby_timer_.arm(standby_retry_);  // it may end before it is a client
  standby_launcher_.start();
}

// ---- ending

bool Agent::is_idle() const {
  const bool has_clients = clients_.size() > standbys_.size() + mirrors_.size();
  // The second process is needed, for example, while a port is reserved for a process that may reconnect. If
  // the agent ended then, the second process would start another agent, which would reserve the port again.
  return !has_clients && !wants_standby() && slots_.orphans().empty() && !link_table_.holds_user_changes() &&
         !cm_.owes_farewells() && requests_.mads.open_ports() == 0;
}

void Agent::consider_idle() {
  if (!options_.idle_timeout) return;
  if (!is_idle()) {
    if (idle_timer_) loop_.cancel(*std::exchange(idle_timer_, std::nullopt));
    return;
  }
  if (!idle_timer_) end_later(*options_.idle_timeout);
}

void Agent::end_later(Duration patience) {
  idle_timer_ = loop_.at(MonotonicClock::now() + patience, [this] {
    idle_timer_.reset();
    end_if_idle();
  });
}

// A program may have connected at this very moment. The agent stays for another second while any programs
// connect, even if it refuses them. They may connect faster than it accepts them, so it serves others
// meanwhile.
void Agent::end_if_idle() {
  const bool any = clients_.accept_some();
  if (!is_idle()) return;
  if (any) return end_later(kIdleAgain);
  log_info("idle: good-bye");
  loop_.stop();
}

}  // namespace verbena::agent
