// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

#include "agent/process.h"
#include "agent/state_sweeper.h"
#include "agent_client/agent_starter.h"
#include "agent_client/message_socket.h"
#include "agent_client/status_reader.h"
#include "base/log.h"
#include "net/udp/multicast_socket.h"
#include "paths/state_directory.h"
#include "paths/state_path.h"

namespace verbena::agent {
namespace {

constexpr int kBacklog = 1024;
constexpr size_t kMaxSessions = 8192;
constexpr size_t kMaxSessionsOfStranger = 1024;  // of one user whom a root agent serves
constexpr Duration kHelloTimeout = std::chrono::seconds(10);
constexpr Duration kSurvivorWait = std::chrono::milliseconds(300);
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
// Files of counters are renewed as often while somebody has one open (the kernel's are as old at most: the
// lifespan attribute), and so seldom while nobody has.
constexpr Duration kCounterLifespan = std::chrono::milliseconds(10);
constexpr Duration kCounterInterval = std::chrono::seconds(1);
constexpr Duration kCounterPause = std::chrono::milliseconds(8);
constexpr Duration kKeeperRetryInterval = std::chrono::seconds(1);
// How long a client may take to bring back what it had on an agent that was killed; and, once it is back,
// until its librdmacm has.
constexpr Duration kReturnTime = std::chrono::seconds(3);
constexpr Duration kReturnTimeOfOne = std::chrono::seconds(1);
constexpr Duration kStateWait = std::chrono::seconds(1);
constexpr Duration kSweepInterval = std::chrono::seconds(1);
constexpr size_t kMostSwept = 4;
constexpr Duration kWireRetryInterval = std::chrono::seconds(1);

}  // namespace

Result<UniqueFd> Agent::take_name() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail(errno);
  const agent_client::AgentAddress address(::geteuid());
  if (::bind(socket.get(), address.address(), address.length) != 0) return fail(errno);
  return socket;
}

Agent::Agent(UniqueFd name, const AgentOptions& options)
    : options_(options),
      listener_(std::move(name)),
      netlink_(links_),
      wire_(options.port),
      slots_(wire_),
      cm_(loop_, options.port,
          {.no_wire_reason = [this] { return no_wire_reason(); },
           .on_quiet = [this] { consider_idle(); },
           .is_orphan = [this](uint32_t qpn) { return orphans_.contains(roce::Qpn(qpn).slot()); }}) {}

// Clients that see their connection end look for the next agent: by then the name must be free, and the state
// directory must not be ours any more.
Agent::~Agent() {
  state_.reset();
  listener_.reset();
  cm_.abandon();
  sessions_.clear();
}

Result<void> Agent::start() {
  auto vault = Vault::create();
  if (!vault) return fail(vault.error().code);
  vault_ = std::move(*vault);
  if (const auto directory = paths::make_state_directory()) {
    state_lock_ = lock_state_directory(*directory);
    state_.emplace(*directory);
    sweep_later();
  } else {
    log_warning("no state directory (errno {}): programs that look into /sys see no devices",
                directory.error().code);
  }
  if (const auto started = netlink_.start(); !started) return started;
  if (state_ && state_->readers().fd() >= 0) {
    loop_.watch(state_->readers().fd(), EPOLLIN, [this](uint32_t) { on_counter_readers(); });
  }
  loop_.watch(netlink_.fd(), EPOLLIN, [this](uint32_t) {
    netlink_.receive();
    if (!awaiting_survivors_) publish_links();
  });
  wire_.open();
  if (wire_.may_be_ours()) {
    await_survivors();
  } else {
    end_wait();
  }
  // A program that has found its agent may look into /sys the next moment.
  if (state_) state_->wait(MonotonicClock::now() + kStateWait);
  if (::listen(listener_.get(), kBacklog) != 0) return fail(errno);
  loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_clients(); });
  consider_idle();
  return {};
}

// Little by little: clients wait meanwhile.
void Agent::sweep_later() {
  loop_.at(MonotonicClock::now() + kSweepInterval, [this] {
    const std::string home = paths::state_home_for(::geteuid()).c_str();
    const size_t removed = sweep_state_directories(home, living_network_namespaces(), kMostSwept);
    if (removed == kMostSwept) sweep_later();
  });
}

void Agent::await_survivors() {
  log_info("{}: waiting for a client of an earlier agent", wire_.reason());
  awaiting_survivors_ = true;
  wait_timer_ = loop_.at(MonotonicClock::now() + kSurvivorWait, [this] {
    wait_timer_.reset();
    end_wait();
  });
}

void Agent::end_wait() {
  if (wait_timer_) loop_.cancel(*std::exchange(wait_timer_, std::nullopt));
  awaiting_survivors_ = false;
  wire_retry_ = MonotonicClock::now() + kWireRetryInterval;
  if (!wire_.has_sockets()) log_warning("no wire: {}", wire_.reason());
  open_gsi();
  publish_links();
  rewrite_vault();
  for (const auto& [id, session] : sessions_) session->resume();
}

void Agent::offer_vault(UniqueFd vault) {
  if (wire_.has_sockets() && !awaiting_survivors_ && anyone_greeted_) return;
  Vault::Contents contents = Vault::take(vault.get());
  if (contents.slots.empty()) return;
  const TimePoint now = MonotonicClock::now();
  const bool had_sockets = wire_.has_sockets();
  if (had_sockets) {  // only slots without a wire can be from before
    std::erase_if(contents.slots, [](const SlotRecord& slot) { return slot.socket >= 0; });
  }
  if (const auto adopted = slots_.adopt(contents, now); !adopted) {
    log_warning("an earlier agent's slots cannot be taken over: errno {}", adopted.error().code);
    return;
  }
  if (contents.links && !anyone_greeted_) {
    if (const auto snapshot = agent_client::read_link_file(contents.links.get())) links_.restore(*snapshot);
  }
  cm_.expect_returns(now + kReturnTime);
  log_info("took over {} slots of an earlier agent", contents.slots.size());
  watch_orphans();
  if (awaiting_survivors_) {
    if (wire_.has_sockets()) end_wait();
  } else {
    open_gsi();
    publish_links();
    rewrite_vault();
  }
}

void Agent::watch_orphans() {
  for (const LentSlot& slot : slots_.lent()) {
    if (slot.borrower.session != 0 || slot.borrower.pid <= 0 || orphans_.contains(slot.index)) continue;
    UniqueFd process = watch_process(slot.borrower.pid);
    if (!process || start_time_of(slot.borrower.pid) != slot.borrower.start_time) {
      [[maybe_unused]] const auto taken = take_back_slot(slot.index, 0);
      continue;
    }
    const uint32_t index = slot.index;
    loop_.watch(process.get(), EPOLLIN,
                [this, index](uint32_t) { [[maybe_unused]] const auto taken = take_back_slot(index, 0); });
    orphans_[index] = std::move(process);
  }
}

void Agent::accept_clients() {
  for (int i = 0; i < 16; ++i) {
    if (!accept_one()) return;
  }
}

bool Agent::accept_one() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) pause_listening();
    return errno == EINTR || errno == ECONNABORTED;
  }
  const auto peer = agent_client::peer_credentials(socket.get());
  if (!peer) return true;
  const uid_t own = ::geteuid();
  if (own != 0 && peer->uid != own && peer->uid != 0) {
    log_info("user {} is not served by this agent", peer->uid);
    return true;
  }
  const size_t of_this_user =
      static_cast<size_t>(std::count_if(sessions_.begin(), sessions_.end(),
                                        [&](const auto& entry) { return entry.second->uid() == peer->uid; }));
  if (sessions_.size() >= kMaxSessions || (peer->uid != own && of_this_user >= kMaxSessionsOfStranger)) {
    log_warning("user {} has too many connections", peer->uid);
    return true;
  }
  const uint64_t id = next_session_++;
  if (links_.has_automatic_loopback()) loopback_viewers_.insert(id);
  sessions_[id] = std::make_unique<Session>(*this, id, std::move(socket), *peer);
  loop_.at(MonotonicClock::now() + kHelloTimeout, [this, id] {
    const auto found = sessions_.find(id);
    if (found != sessions_.end() && !found->second->is_greeted()) close_session(id);
  });
  consider_idle();
  return true;
}

// Out of descriptors: the listener would stay readable and keep us busy for nothing.
void Agent::pause_listening() {
  log_warning("out of descriptors: no new clients for a moment");
  loop_.set_events(listener_.get(), 0);
  loop_.at(MonotonicClock::now() + kAcceptPause, [this] { loop_.set_events(listener_.get(), EPOLLIN); });
}

void Agent::close_session(uint64_t id) {
  loop_.later([this, id] {
    if (sessions_.erase(id) == 0) return;
    loopback_viewers_.erase(id);
    consider_loopback();
    std::vector<uint32_t> indexes;
    for (const LentSlot& slot : slots_.lent()) {
      if (slot.borrower.session != id) continue;
      indexes.push_back(slot.index);
      counters_.finish(numbers_of(slot));
    }
    if (!indexes.empty()) show_counters();
    domains_.close_all(id);
    slots_.take_back_all(id, MonotonicClock::now());
    for (const uint32_t index : indexes) record_slot(index);
    consider_keeper();  // it may have been the keeper
    consider_idle();
  });
}

void Agent::greeted() {
  anyone_greeted_ = true;
  consider_keeper();
  consider_idle();
}

std::string Agent::no_wire_reason() {
  return wire_.has_sockets() ? std::string() : wire_.reason();
}

Result<LentSlot> Agent::lend_slot(const Borrower& borrower) {
  const TimePoint now = MonotonicClock::now();
  if (!wire_.has_sockets() && now >= wire_retry_) {  // whoever had the port may have gone
    wire_retry_ = now + kWireRetryInterval;
    wire_.open();
    if (wire_.has_sockets()) {
      record_slot(0);
      open_gsi();
    }
  }
  auto slot = slots_.lend(borrower, now);
  if (slot) record_slot(slot->index);
  collect_counters_regularly();
  return slot;
}

Result<void> Agent::keep_slot(uint32_t index, const Borrower& borrower) {
  auto kept = slots_.keep(index, borrower);
  if (!kept) return kept;
  if (const auto orphan = orphans_.find(index); orphan != orphans_.end()) {
    loop_.forget(orphan->second.get());
    orphans_.erase(orphan);
    cm_.expect_returns(MonotonicClock::now() + kReturnTimeOfOne);
  }
  record_slot(index);
  consider_loopback();
  collect_counters_regularly();
  return kept;
}

Result<void> Agent::take_back_slot(uint32_t index, uint64_t session) {
  if (session == 0) {
    if (const auto orphan = orphans_.find(index); orphan != orphans_.end()) {
      loop_.forget(orphan->second.get());
      orphans_.erase(orphan);
      consider_loopback();
    }
  }
  if (const auto lent = slots_.find_lent(index);
      lent && lent->index == index && lent->borrower.session == session) {
    counters_.finish(numbers_of(*lent));
    show_counters();
  }
  auto taken = slots_.take_back(index, session, MonotonicClock::now());
  if (taken) {
    domains_.close_slot(session, index);
    record_slot(index);
  }
  consider_idle();
  return taken;
}

std::optional<LentSlot> Agent::find_lent_slot(uint32_t from) {
  return slots_.find_lent(from);
}

Result<UniqueFd> Agent::join_group(uint32_t device_index, const roce::Address& group) {
  if (!group.is_multicast()) return fail(EINVAL);
  if (!wire_.has_sockets()) return fail(ENETDOWN);
  const auto& links = links_.snapshot().links;
  const auto link = std::find_if(links.begin(), links.end(), [&](const agent_client::Link& known) {
    return known.device_index == device_index;
  });
  if (link == links.end()) return fail(ENODEV);
  return net::open_multicast_socket(group, link->interface_index, options_.port);
}

// ---- XRC domains

Result<void> Agent::open_domain(const DomainTable::Member& member, int file, uint32_t device_index,
                                DomainTable::Mode mode) {
  const auto lent = slots_.find_lent(member.slot);
  if (!lent || lent->index != member.slot || lent->borrower.session != member.session) return fail(EINVAL);
  return domains_.open(member, file, device_index, mode);
}

Result<void> Agent::close_domain(uint64_t session, uint64_t name) {
  return domains_.close(session, name);
}

void Agent::ask_for_peer(uint64_t session, uint64_t name, uint32_t slot) {
  Session& asker = *sessions_.at(session);
  const auto own_slot = domains_.slot_of(session, name);
  const auto owner = domains_.find(session, name, slot);
  if (!own_slot || !owner) {
    // A process of before we were started may have the domain open, and is yet to come and say so.
    const bool may_come = own_slot && orphans_.contains(slot);
    asker.tell_peer({name, slot, true, may_come ? EAGAIN : ENOENT, {}});
    return;
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    asker.tell_peer({name, slot, true, EAGAIN, {}});
    return;
  }
  UniqueFd asking(ends[0]);
  UniqueFd asked(ends[1]);
  const auto other = sessions_.find(owner->session);
  const bool told = other != sessions_.end() &&
                    other->second->tell_peer({owner->name, *own_slot, false, 0, std::move(asked)});
  // An end that nobody is told of is closed here, and the other sees it.
  if (told) {
    asker.tell_peer({name, slot, true, 0, std::move(asking)});
  } else {
    asker.tell_peer({name, slot, true, EAGAIN, {}});
  }
}

// Slot 0 is our own: QP1 is in it.
void Agent::open_gsi() {
  if (cm_.has_wire() || !wire_.has_sockets()) return;
  wire_.unmute(0);
  cm_.open_wire(wire_.socket(0));
}

bool Agent::is_qpn_of(uint32_t qpn, uid_t user) {
  const uint32_t slot = roce::Qpn(qpn).slot();
  const auto lent = slots_.find_lent(slot);
  return lent && lent->index == slot && lent->borrower.uid == user;
}

agent_client::AdminResult<void> Agent::add_link(std::string_view name, std::string_view netdev) {
  auto added = links_.add_link(name, netdev);
  if (added) publish_links();
  return added;
}

agent_client::AdminResult<void> Agent::delete_link(std::string_view name) {
  auto deleted = links_.delete_link(name);
  if (deleted) publish_links();
  return deleted;
}

// Whether anyone who has seen it is left.
void Agent::consider_loopback() {
  if (!awaiting_survivors_ && links_.has_automatic_loopback()) publish_links();
}

void Agent::publish_links() {
  const std::vector<agent_client::Link> before = links_.snapshot().links;
  links_.keep_loopback(!loopback_viewers_.empty() || !orphans_.empty());
  if (!links_.settle() && published_) return;
  count_downed(before, links_.snapshot().links);
  auto file = agent_client::write_link_file(links_.snapshot());
  published_ = file.has_value();
  if (!published_) {
    log_error("the link table cannot be written: errno {}", file.error().code);
    return;
  }
  link_file_ = std::move(*file);
  if (!vault_.put_links(link_file_.get()) || vault_.is_long()) rewrite_vault();
  if (state_) state_->show(links_.snapshot().links);
  cm_.links_changed(links_.snapshot().links);
  if (links_.has_automatic_loopback()) {
    for (const auto& [id, session] : sessions_) loopback_viewers_.insert(id);
  }
  collect_counters();
  for (const auto& [id, session] : sessions_) session->links_changed();
  consider_idle();
}

agent_client::SlotStatus Agent::numbers_of(const LentSlot& lent) {
  agent_client::SlotStatus slot;
  slot.index = lent.index;
  slot.pid = lent.borrower.pid;
  agent_client::read_status_page(lent.page, slot, agent_client::QpChoice::kAll);
  return slot;
}

void Agent::collect_counters() {
  const TimePoint now = MonotonicClock::now();
  if (now - counters_collected_ < kCounterPause) return;
  counters_collected_ = now;
  for (const LentSlot& lent : slots_.lent()) counters_.collect(numbers_of(lent));
  show_counters();
}

void Agent::show_counters() {
  if (!state_) return;
  std::map<std::string, DeviceCounters> by_link;
  for (const agent_client::Link& link : links_.snapshot().links) {
    const auto sums = counters_.devices().find(link.device_index);
    if (sums != counters_.devices().end()) by_link[link.name] = sums->second;
  }
  state_->show_counters(std::move(by_link));
}

agent_client::DeviceCounters Agent::device_counters(uint32_t device_index) {
  collect_counters();
  const auto sums = counters_.devices().find(device_index);
  return sums != counters_.devices().end() ? sums->second : agent_client::DeviceCounters{};
}

void Agent::collect_counters_regularly() {
  if (collecting_ || !slots_.find_lent(0)) return;
  const bool read = state_ && state_->readers().any();
  const Duration interval = read ? kCounterLifespan : kCounterInterval;
  collecting_ = loop_.at(MonotonicClock::now() + interval, [this] {
    collecting_.reset();
    collect_counters();
    collect_counters_regularly();
  });
}

void Agent::on_counter_readers() {
  const bool had_any = state_->readers().any();
  state_->readers().take_news();
  if (had_any || !state_->readers().any()) return;
  if (collecting_) loop_.cancel(*std::exchange(collecting_, std::nullopt));
  collect_counters();
  collect_counters_regularly();
}

void Agent::count_downed(const std::vector<agent_client::Link>& before,
                         const std::vector<agent_client::Link>& now) {
  for (const agent_client::Link& link : now) {
    const auto was = std::ranges::find(before, link.device_index, &agent_client::Link::device_index);
    if (was != before.end() && was->up && !link.up) counters_.link_downed(link.device_index);
  }
}

void Agent::record_slot(uint32_t index) {
  consider_keeper();
  if (!vault_.put_slot(slots_.record(index)) || vault_.is_long()) rewrite_vault();
}

void Agent::rewrite_vault() {
  if (const auto written = vault_.rewrite(slots_.records(), link_file_.get()); !written) {
    log_warning("clients would not survive the agent's end: errno {}", written.error().code);
  }
}

Session* Agent::find_keeper() const {
  for (const auto& [id, session] : sessions_) {
    if (session->is_keeper()) return session.get();
  }
  return nullptr;
}

// There shall be a keeper while slots are lent to other users, and no longer.
void Agent::consider_keeper() {
  const auto lent = slots_.lent();
  const bool wanted = std::any_of(lent.begin(), lent.end(), [](const LentSlot& slot) {
    return slot.socket >= 0 && slot.borrower.uid != ::geteuid();
  });
  const Session* keeper = find_keeper();
  if (keeper != nullptr && !wanted && keeper->pid() > 0) ::kill(keeper->pid(), SIGTERM);
  const TimePoint now = MonotonicClock::now();
  if (keeper != nullptr || !wanted || now < keeper_retry_) return;
  keeper_retry_ = now + kKeeperRetryInterval;
  const auto started = agent_client::start_agent("/proc/self/exe", {"--keep-vault"});
  if (!started) log_warning("no keeper can be started: errno {}", started.error().code);
}

bool Agent::is_idle() const {
  const bool has_clients = std::any_of(sessions_.begin(), sessions_.end(),
                                       [](const auto& entry) { return !entry.second->is_keeper(); });
  return !has_clients && orphans_.empty() && !links_.holds_user_changes() && !cm_.owes_farewells();
}

void Agent::consider_idle() {
  if (!options_.idle_timeout) return;
  if (!is_idle()) {
    if (idle_timer_) loop_.cancel(*std::exchange(idle_timer_, std::nullopt));
    return;
  }
  if (idle_timer_) return;
  idle_timer_ = loop_.at(MonotonicClock::now() + *options_.idle_timeout, [this] {
    idle_timer_.reset();
    end_if_idle();
  });
}

void Agent::end_if_idle() {
  while (accept_one()) {  // somebody may have come at this very moment
  }
  if (!is_idle()) return;
  log_info("idle: good-bye");
  loop_.stop();
}

}  // namespace verbena::agent
