// SPDX-License-Identifier: Apache-2.0
#include "adapter/process/engine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include <ifaddrs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/types.h>
#include <unistd.h>

#include "adapter/engine/secret.h"
#include "base/detached_thread.h"
#include "base/foreign_socket.h"
#include "base/log.h"
#include "base/mutex_at_fork.h"
#include "base/only_one.h"
#include "control/model/agent_process.h"

namespace verbena::engine {
namespace {

// How long fork() and exit wait for locks. No thread holds them longer, except the forking or exiting thread
// itself, in a signal handler.
constexpr Duration kPatience = std::chrono::milliseconds(100);
// How long to wait for a new engine thread to run. On a busy machine Linux 6.18 let one wait 480 ms for its
// first turn, in which a peer with usual retries has given up.
constexpr Duration kThreadPatience = std::chrono::seconds(2);
// Interval of attempts to start another shard, after the agent had no further slot or no thread could be
// started.
constexpr Duration kSlotInterval = std::chrono::seconds(1);

size_t processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<size_t>(CPU_COUNT(&set)) : 1;
}

size_t max_shards_here() {
  const char* wish = ::secure_getenv("VERBENA_SHARDS");
  if (wish == nullptr) return max_shards(std::nullopt, processors());
  const size_t most = max_shards(wish, processors());
  if (wish != std::to_string(most)) {
    log_warning("VERBENA_SHARDS={} has no effect: it has to be a number from 1 to {}", wish, kMaxShards);
  }
  return most;
}

// The shard for a thread's QPs.
struct Dealt {
  uint64_t engine = 0;  // Engine::id_; 0: not chosen yet
  Shard* shard = nullptr;
};
thread_local Dealt dealt;

uint64_t next_engine() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// The link-local addresses of this host's interfaces, as the kernel reports them.
std::vector<roce::Address> assigned_link_local() {
  std::vector<roce::Address> assigned;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return assigned;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET6) continue;
    roce::Address address;
    std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr,
                address.bytes.size());
    if (address.is_link_local()) assigned.push_back(address);
  }
  ::freeifaddrs(list);
  return assigned;
}

// The GIDs of this host's links.
struct HostAddresses {
  // GIDs of links that are up. A default GID is made from a MAC address, and the host may not have it as an
  // address: packets to it then do not arrive. So a link-local GID counts only if an interface has that
  // address.
  std::vector<roce::Address> reachable;
  std::vector<roce::Address> unreachable;  // all others
};

HostAddresses host_addresses(const std::vector<control::Link>& links) {
  const std::vector<roce::Address> assigned = assigned_link_local();
  HostAddresses addresses;
  for (const control::Link& link : links) {
    for (const control::GidEntry& entry : link.gids) {
      const bool is_assigned =
          !entry.gid.is_link_local() || std::ranges::find(assigned, entry.gid) != assigned.end();
      (link.up && is_assigned ? addresses.reachable : addresses.unreachable).push_back(entry.gid);
    }
  }
  return addresses;
}

}  // namespace

// The objects that exist once per process. A child after fork() gets new ones: it has none of the parent's
// threads, and no right to its descriptors.
struct Process {
  static Process& current() {
    // A child that is forked during this call repeats it (pthread_once(3)); there the handlers are called
    // twice.
    static std::once_flag once;
    std::call_once(once, [] {
      ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
      call_at_exit(at_exit);
    });
    Process& process = current_.get([] { return new Process; });
    if (process.id == ::getpid()) return process;
    // fork() was already under way when the handlers were registered, so none was called in this child (glibc
    // calls there those that it has called before). Another thread of the parent may hold the mutex.
    current_.forget(process);
    return current_.get([] { return new Process; });
  }

  Result<std::shared_ptr<control::Client>> control() {
    const std::lock_guard guard(mutex);
    return connect();
  }

  Result<std::shared_ptr<Engine>> engine() {
    const std::lock_guard guard(mutex);
    if (auto running = running_engine.lock(); running && !running->is_lost()) return running;
    auto connected = connect();
    if (!connected) return tl::unexpected(connected.error());
    auto started = Engine::start_with(*connected, open_ports);
    if (!started) return started;
    const std::lock_guard visible(pointers_lock);
    running_engine = *started;
    return started;
  }

  void set_port_factory(net::PortFactory factory) {
    const std::lock_guard guard(mutex);
    open_ports = std::move(factory);
  }

 private:
  Result<std::shared_ptr<control::Client>> connect() {
    if (client == nullptr) {
      auto connected = control::Client::connect();
      if (!connected) return tl::unexpected(connected.error());
      control::show_devices_here({});
      const std::lock_guard visible(pointers_lock);
      client = std::move(*connected);
    }
    return client;
  }

  // The mutex is not taken around fork(): it is held while an agent is started, which may fork.
  static void before_fork() {
    Process* process = current_.made();
    if (process == nullptr || forking_ != nullptr || !process->pointers_lock.try_lock_for(kPatience)) return;
    forking_ = process;
    process->forking_engine = process->running_engine.lock();
    if (process->forking_engine != nullptr) {
      process->engine_is_locked = process->forking_engine->before_fork();
    }
  }

  static void after_fork_in_parent() {
    Process* process = std::exchange(forking_, nullptr);
    if (process == nullptr) return;
    if (std::exchange(process->engine_is_locked, false)) process->forking_engine->after_fork_in_parent();
    // This may be the last reference by now; then the engine stops here, with no lock held.
    const std::shared_ptr<Engine> engine = std::move(process->forking_engine);
    process->pointers_lock.unlock();
  }

  static void after_fork_in_child() {
    current_.forget();
    Process* parents = std::exchange(forking_, nullptr);
    if (parents == nullptr) return;
    // The parent's reference to its engine stays: the engine must never be stopped here.
    if (parents->forking_engine != nullptr) parents->forking_engine->abandon();
    if (parents->client != nullptr) parents->client->abandon();
  }

  static void at_exit() {
    Process* process = current_.made();
    if (process == nullptr || process->id != ::getpid()) return;  // a child for which no fork handler ran
    if (!process->pointers_lock.try_lock_for(kPatience)) return;
    const std::shared_ptr<Engine> running = process->running_engine.lock();
    process->pointers_lock.unlock();
    if (running != nullptr) running->for_each([](RunningShard& each) { each.shard().flush_at_exit(); });
  }

  static inline constinit OnlyOne<Process> current_;
  static inline thread_local Process* forking_ = nullptr;  // whose pointers_lock this thread holds

  const pid_t id = ::getpid();
  std::mutex mutex;  // held while the client or the engine is being started
  net::PortFactory open_ports = net::open_ports;
  SpinLock pointers_lock;
  std::shared_ptr<control::Client> client;
  std::weak_ptr<Engine> running_engine;
  std::shared_ptr<Engine> forking_engine;
  bool engine_is_locked = false;
};

Result<std::shared_ptr<Engine>> Engine::acquire() {
  return Process::current().engine();
}

Result<std::shared_ptr<Engine>> Engine::start_with(std::shared_ptr<control::Client> client,
                                                   net::PortFactory open_ports) {
  std::shared_ptr<Engine> engine(new Engine(std::move(client), std::move(open_ports)));
  if (auto started = engine->start(); !started) return tl::unexpected(started.error());
  return engine;
}

void Engine::set_port_factory(net::PortFactory open_ports) {
  Process::current().set_port_factory(std::move(open_ports));
}

Result<std::vector<control::Link>> Engine::list_links() {
  return Process::current().control().and_then([](const auto& client) { return client->links(); });
}

Engine::Engine(std::shared_ptr<control::Client> client, net::PortFactory open_ports)
    : client_(std::move(client)),
      open_ports_(std::move(open_ports)),
      id_(next_engine()),
      max_(max_shards_here()),
      board_(LocalPeers::is_wanted() ? OwnBoard::make() : nullptr),
      keys_(random_secret(), memory::kMaxRegions) {
  if (board_ != nullptr) keys_.set_publisher(*board_);
}

Result<void> Engine::start() {
  auto first = RunningShard::create(surroundings());
  if (!first) return tl::unexpected(first.error());
  Shard& home = (*first)->shard();
  shards_[0] = std::move(*first);
  xrc_queues_.emplace(home.slot());
  domain_peers_ = std::make_unique<DomainPeers>(home, keys_, *xrc_queues_, [this](const Peer::Key& owner) {
    client_->ask_for_peer(owner.domain, owner.slot);
  });

  auto links = client_->links();
  if (!links) return tl::unexpected(links.error());
  set_links(std::move(*links));
  tell_addresses(*shards_[0]);
  auto started = shards_[0]->start_thread(client_->event_fd(), [this] { return on_control(); });
  if (!started) return started;
  started_.store(1, std::memory_order_release);
  capture_early(*shards_[0]);
  return {};
}

Engine::~Engine() {
  {
    const std::lock_guard guard(loss_mutex_);
    lost_ = true;  // nobody needs to be told any more
  }
  if (undertaker_.joinable()) undertaker_.join();
  for (const auto& each : shards_) {
    if (each != nullptr) each->stop_thread();
  }
  domain_peers_.reset();
}

// ---- shards

Shard& Engine::shard_for_new_qp() {
  if (inherited_ || lost_) return home();
  if (max_ == 1 && may_take_qps(home())) return home();
  if (dealt.engine != id_ || !may_take_qps(*dealt.shard)) {
    Shard& shard = deal_shard();
    dealt = {id_, &shard};
  }
  return *dealt.shard;
}

// Locked, because two threads that come at once would choose the same shard: the second sees the first one's
// choice only when its QP exists. Among equal shards, threads take turns by the number of threads that came
// before.
Shard& Engine::deal_shard() {
  const std::lock_guard guard(dealing_);
  std::vector<size_t> candidates;
  const size_t running = started_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < running; ++i) {
    if (may_take_qps(shards_[i]->shard())) candidates.push_back(i);
  }
  const TimePoint now = MonotonicClock::now();
  size_t chosen = deal_among(candidates, now >= next_start_ && running < kMaxShards);
  if (chosen == running && !start_another()) {
    next_start_ = now + kSlotInterval;
    chosen = deal_among(candidates, false);
  }
  ++threads_[chosen];
  return shards_[chosen]->shard();
}

// Chooses one of the candidates. Returns the number of running shards for one that is yet to be started.
// Returns the first shard if there is no candidate; new QPs then have no wire.
size_t Engine::deal_among(std::span<const size_t> candidates, bool may_start) {
  std::array<uint32_t, kMaxShards> loads{};
  for (size_t i = 0; i < candidates.size(); ++i) {
    loads[i] = shards_[candidates[i]]->shard().qp_count() + threads_[candidates[i]];
  }
  if (candidates.empty() && !may_start) return 0;
  const size_t chosen = deal({loads.data(), candidates.size()}, may_start ? max_ : candidates.size());
  return chosen == candidates.size() ? started_.load(std::memory_order_relaxed) : candidates[chosen];
}

bool Engine::start_another() {
  const size_t index = started_.load(std::memory_order_relaxed);
  auto made = RunningShard::create(surroundings());
  if (!made) return false;
  // A further shard is of use only if it has a wire exactly when the engine reaches one.
  if ((*made)->no_wire_reason().empty() != reaches_wire()) return false;
  if (!(*made)->start_thread(-1, [] { return -1; })) return false;
  shards_[index] = std::move(*made);
  started_.store(index + 1, std::memory_order_release);
  tell_addresses(*shards_[index]);
  capture_early(*shards_[index]);
  if (traces_details_) trace_details(true);
  return true;
}

RunningShard& Engine::running(const Shard& shard) {
  const size_t count = started_.load(std::memory_order_acquire);
  for (size_t i = 1; i < count; ++i) {
    if (&shards_[i]->shard() == &shard) return *shards_[i];
  }
  return *shards_[0];
}

void Engine::set_links(std::vector<control::Link> links) {
  if (!links.empty()) {
    const bool has_wire = links.front().has_wire;  // the same for all links
    if (has_wire && lacked_wire_ && !no_wire_reason().empty()) {
      wire_came_.store(true, std::memory_order_release);
    }
    lacked_wire_ = !has_wire;
  }
  std::vector<std::shared_ptr<const control::Link>> fresh;
  fresh.reserve(links.size());
  for (auto& link : links) fresh.push_back(std::make_shared<const control::Link>(std::move(link)));
  {
    const std::lock_guard guard(links_lock_);
    links_.swap(fresh);
  }
  for_each([&](RunningShard& each) { tell_addresses(each); });
}

// Needed also without a wire: shared memory needs none.
void Engine::tell_addresses(RunningShard& shard) const {
  if (shard.local_peers() == nullptr) return;
  std::vector<control::Link> links;
  {
    const std::lock_guard guard(links_lock_);
    for (const auto& link : links_) links.push_back(*link);
  }
  HostAddresses addresses = host_addresses(links);
  shard.local_peers()->set_addresses(std::move(addresses.reachable), std::move(addresses.unreachable));
}

void Engine::connect(control::SlotChannel news) {
  const size_t count = started_.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    if (shards_[i]->shard().slot() != news.own_slot || shards_[i]->local_peers() == nullptr) continue;
    shards_[i]->local_peers()->connect(std::move(news));
    return;
  }
  // The other process may have written to the socket already.
  discard_socket(std::move(news.socket), news.peer_user);
}

void Engine::capture(control::SlotCapture news) {
  const std::lock_guard guard(captures_mutex_);
  const bool is_for_all = news.slot == control::SlotCapture::kAllSlots;
  std::erase_if(early_captures_, [&](const auto& early) { return is_for_all || early.slot == news.slot; });
  bool known = is_for_all;
  for_each([&](RunningShard& each) {
    if (!is_for_all && each.shard().slot() != news.slot) return;
    known = true;
    if (each.local_peers() != nullptr) each.local_peers()->capture(news.ring);
  });
  if (!known && news.ring) early_captures_.push_back(std::move(news));
}

// The agent announces a capture as soon as it leases the slot, perhaps before the shard is counted in
// started_.
void Engine::capture_early(RunningShard& shard) {
  const std::lock_guard guard(captures_mutex_);
  const auto early = std::ranges::find(early_captures_, shard.shard().slot(), &control::SlotCapture::slot);
  if (early == early_captures_.end()) return;
  if (shard.local_peers() != nullptr) shard.local_peers()->capture(early->ring);
  early_captures_.erase(early);
}

// A shard that is being started looks at traces_details_ after it is counted, so it misses no change.
void Engine::trace_details(bool on) {
  traces_details_ = on;
  for_each([&](RunningShard& each) {
    each.shard().exclusively([&] { each.shard().trace_details(traces_details_); });
  });
}

void Engine::settle() {
  if (inherited_) return;
  for_each([](RunningShard& each) { each.shard().exclusively([&] { each.shard().settle(); }); });
}

void Engine::await_readiness(const Shard& shard, const roce::Path& path, roce::Qpn destination) {
  if (inherited_) return;
  RunningShard& of = running(shard);
  of.await_thread(kThreadPatience);
  if (LocalPeers* const peers = of.local_peers()) peers->await(path, destination);
}

std::shared_ptr<const control::Link> Engine::link(uint32_t device_index) const {
  const std::lock_guard guard(links_lock_);
  for (const auto& link : links_) {
    if (link->device_index == device_index) return link;
  }
  return nullptr;
}

RunningShard::Surroundings Engine::surroundings() {
  using Key = MulticastGroups::Key;
  MulticastGroups::Surroundings groups{
      [this](const Key& key) { return client_->join_group(key.device_index, key.group); },
      [this](uint32_t device) {
        const auto known = link(device);
        return known == nullptr ? 0 : known->interface_index;
      },
      [this](uint32_t device, const roce::Address& address) {
        const auto known = link(device);
        return known != nullptr &&
               std::ranges::find(known->gids, address, &control::GidEntry::gid) != known->gids.end();
      }};
  return {*client_,     keys_.readers(), std::move(groups),    open_ports_,
          board_.get(), &guests_,        [this] { on_loss(); }};
}

void Engine::close_domain(uint64_t domain) {
  if (inherited_) return;  // the domain is open in the parent
  domain_peers_->leave(domain);
  client_->close_domain(domain);
}

// Returns the descriptor that is readable when the agent has sent more.
int Engine::on_control() {
  auto news = client_->next_links();
  for (control::DomainPeer& peer : client_->next_peers()) domain_peers_->connect(std::move(peer));
  auto channels = client_->next_channels();
  for (control::SlotCapture& each : client_->next_captures()) capture(std::move(each));
  for (control::SlotChannel& channel : channels) connect(std::move(channel));
  if (const auto details = client_->next_trace_details()) trace_details(*details);
  if (news) change_links(std::move(*news));
  return client_->checked_event_fd();
}

// No other thread changes links_.
void Engine::change_links(std::vector<control::Link> now) {
  std::vector<control::Link> before;
  for (const auto& link : links_) before.push_back(*link);
  set_links(now);
  const std::lock_guard guard(listeners_lock_);
  for (LinkListener& listener : listeners_) listener.on_links(before, now);
}

void Engine::subscribe(LinkListener& listener) {
  const std::lock_guard guard(listeners_lock_);
  listeners_.push_back(listener);
}

void Engine::unsubscribe(LinkListener& listener) {
  const std::lock_guard guard(listeners_lock_);
  listener.link_hook.unlink();
}

// ---- descriptors that the application has closed

bool Engine::is_lost() {
  if (!inherited_) for_each([](RunningShard& each) { each.shard().exclusively([] {}); });
  return lost_;
}

// Called by a thread that is making progress on a shard. A new thread does the rest, as it takes other locks.
void Engine::on_loss() {
  const std::lock_guard guard(loss_mutex_);
  if (lost_.exchange(true)) return;
  log_error("the application has closed descriptors that are not its own: its RDMA devices are gone");
  try {
    const SignalsBlocked blocked;  // inherited by the new thread
    undertaker_ = std::thread([this] { end_links(); });
  } catch (const std::system_error&) {
    log_error("no thread could be started, so the application gets no event");
  }
}

// Acts as if the agent had reported that there are no links any more: queue pairs go to their error state,
// and the application is told that its devices are gone.
void Engine::end_links() {
  for_each([](RunningShard& each) { each.lose(); });
  std::vector<control::Link> before;
  {
    const std::lock_guard guard(links_lock_);
    for (const auto& link : links_) before.push_back(*link);
  }
  set_links({});
  const std::lock_guard guard(listeners_lock_);
  for (LinkListener& listener : listeners_) listener.on_links(before, {});
}

// ---- fork()

// Takes the engine's locks, so that the child finds consistent data and no lock held. False: none was taken.
bool Engine::before_fork() {
  if (!lock_shards()) return false;  // first: the holder of a shard's lock may want the others
  if (keys_.lock_for_fork(kPatience)) {
    if (links_lock_.try_lock_for(kPatience)) {
      if (listeners_lock_.try_lock_for(kPatience)) return true;
      links_lock_.unlock();
    }
    keys_.unlock_in_parent();
  }
  unlock_shards();
  return false;
}

// Locks all shards or none. Shards that are started meanwhile have no objects of the application yet.
bool Engine::lock_shards() {
  const size_t count = started_.load(std::memory_order_acquire);
  for (locked_shards_ = 0; locked_shards_ < count; ++locked_shards_) {
    RunningShard& each = *shards_[locked_shards_];
    each.await_thread(kPatience);
    if (each.shard().before_fork()) continue;
    unlock_shards();
    return false;
  }
  return true;
}

void Engine::unlock_shards() {
  while (locked_shards_ > 0) shards_[--locked_shards_]->shard().after_fork_in_parent();
}

void Engine::after_fork_in_parent() {
  listeners_lock_.unlock();
  links_lock_.unlock();
  keys_.unlock_in_parent();
  unlock_shards();
}

// In the child: releases the locks, as no other thread is left, and leaves everything to the parent.
void Engine::abandon() {
  listeners_lock_.unlock();
  links_lock_.unlock();
  keys_.free_in_child();
  if (board_ != nullptr) board_->abandon();
  for_each([](RunningShard& each) { each.abandon(); });
  inherited_ = true;
}

}  // namespace verbena::engine
