// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/log.h"
#include "engine/port_counters.h"
#include "net/port_factory.h"

namespace verbena::engine {
namespace {

// Longer than anybody holds these locks, unless it is the very thread that forks or exits, in a signal's
// handler.
constexpr Duration kPatience = std::chrono::milliseconds(100);
constexpr uint32_t kMostRegions = 1u << 23;  // memory regions and windows, 2^22 of each

// Whether a file can be mapped without ever giving SIGBUS: it is large enough and stays so.
bool is_safe_status_page(int fd) {
  struct stat file;
  if (::fstat(fd, &file) != 0 || file.st_size < static_cast<off_t>(sizeof(protocol::StatusPage)))
    return false;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

}  // namespace

// The page that `verbena status` reads; private memory when the agent gave none.
struct Engine::StatusMapping {
  static Result<std::unique_ptr<StatusMapping>> create(int fd) {
    const bool shared = is_safe_status_page(fd);
    if (!shared) log_warning("the agent gave no usable status page: this process is not shown in full");
    const int flags = shared ? MAP_SHARED : kPrivate;
    void* at =
        ::mmap(nullptr, sizeof(protocol::StatusPage), PROT_READ | PROT_WRITE, flags, shared ? fd : -1, 0);
    if (at == MAP_FAILED) return fail(errno);
    return std::make_unique<StatusMapping>(static_cast<protocol::StatusPage*>(at));
  }
  explicit StatusMapping(protocol::StatusPage* p) : page(p) {
    page->magic.store(protocol::StatusPage::kMagic, std::memory_order_relaxed);
  }
  ~StatusMapping() { ::munmap(page, sizeof(protocol::StatusPage)); }
  StatusMapping(const StatusMapping&) = delete;
  StatusMapping& operator=(const StatusMapping&) = delete;

  // Private from now on: what a child does to its inherited QPs is not to be seen in its parent's.
  void detach() {
    ::mmap(page, sizeof(protocol::StatusPage), PROT_READ | PROT_WRITE, kPrivate | MAP_FIXED, -1, 0);
  }

  static constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  protocol::StatusPage* const page;
};

namespace {

uint64_t random_secret() {
  uint64_t secret = 0;
  if (::getrandom(&secret, sizeof secret, 0) != sizeof secret) {
    secret = static_cast<uint64_t>(MonotonicClock::now().time_since_epoch().count()) ^
             reinterpret_cast<uintptr_t>(&secret);
  }
  return secret;
}

}  // namespace

// What there is once in a process. A child after fork() gets a fresh one: of the parent's it has neither the
// threads nor, by right, the descriptors.
struct Process {
  static Process& current() {
    static std::once_flag once;
    std::call_once(once, [] {
      ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
      std::atexit(at_exit);
    });
    Process* process = current_.load(std::memory_order_acquire);
    while (process == nullptr) {
      auto* fresh = new Process;  // for ever: threads of the application may outlive static objects
      if (current_.compare_exchange_strong(process, fresh)) return *fresh;
      delete fresh;
    }
    return *process;
  }

  Result<std::shared_ptr<agent_client::Client>> control() {
    const std::lock_guard guard(mutex);
    return connect();
  }

  Result<std::shared_ptr<Engine>> engine() {
    const std::lock_guard guard(mutex);
    if (auto running = running_engine.lock()) return running;
    auto connected = connect();
    if (!connected) return tl::unexpected(connected.error());
    std::shared_ptr<Engine> started(new Engine(*connected));
    if (auto result = started->start(); !result) return tl::unexpected(result.error());
    const std::lock_guard visible(pointers_lock);
    running_engine = started;
    return started;
  }

 private:
  Result<std::shared_ptr<agent_client::Client>> connect() {
    if (client == nullptr) {
      auto connected = agent_client::Client::connect();
      if (!connected) return tl::unexpected(connected.error());
      const std::lock_guard visible(pointers_lock);
      client = std::move(*connected);
    }
    return client;
  }

  // The mutex is not taken around fork(): it is held while an agent is started, which may fork.
  static void before_fork() {
    Process* process = current_.load(std::memory_order_acquire);
    if (process == nullptr || !process->pointers_lock.try_lock_for(kPatience)) return;
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
    // It may be the last reference by now; then the engine stops here, with no lock held.
    const std::shared_ptr<Engine> engine = std::move(process->forking_engine);
    process->pointers_lock.unlock();
  }

  static void after_fork_in_child() {
    current_.store(nullptr, std::memory_order_release);
    Process* parents = std::exchange(forking_, nullptr);
    if (parents == nullptr) return;
    // Our reference to it stays: it must never be stopped here.
    if (parents->forking_engine != nullptr) parents->forking_engine->abandon();
    if (parents->client != nullptr) parents->client->abandon();
  }

  static void at_exit() {
    Process* process = current_.load(std::memory_order_acquire);
    if (process == nullptr || !process->pointers_lock.try_lock_for(kPatience)) return;
    const std::shared_ptr<Engine> running = process->running_engine.lock();
    process->pointers_lock.unlock();
    if (running != nullptr) running->shard().flush_at_exit();
  }

  static inline std::atomic<Process*> current_{nullptr};
  static inline thread_local Process* forking_ = nullptr;  // whose pointers_lock this thread holds

  std::mutex mutex;  // nobody starts what somebody else is starting
  SpinLock pointers_lock;
  std::shared_ptr<agent_client::Client> client;
  std::weak_ptr<Engine> running_engine;
  std::shared_ptr<Engine> forking_engine;
  bool engine_is_locked = false;
};

Result<std::shared_ptr<Engine>> Engine::acquire() {
  return Process::current().engine();
}

Result<std::vector<agent_client::Link>> Engine::list_links() {
  auto client = Process::current().control();
  if (!client) return tl::unexpected(client.error());
  return (*client)->links();
}

Engine::Engine(std::shared_ptr<agent_client::Client> client)
    : client_(std::move(client)), keys_(random_secret(), kMostRegions) {}

Result<void> Engine::start() {
  auto slot = client_->take_slot();
  if (!slot) return tl::unexpected(slot.error());
  slot_ = slot->index;
  has_slot_ = true;
  auto mapping = StatusMapping::create(slot->status_page.get());
  if (!mapping) return tl::unexpected(mapping.error());
  status_ = std::move(*mapping);

  auto ports = net::open_ports({.slot = slot_, .udp_socket = std::move(slot->socket)},
                               port_counters_in(*status_->page));
  if (!ports) return tl::unexpected(ports.error());
  if (ports->empty()) {
    no_wire_reason_ = slot->no_wire_reason.empty() ? "the agent gave no socket" : slot->no_wire_reason;
    log_warning("no wire, all ports are down: {}", no_wire_reason_);
  }
  shard_ = std::make_unique<Shard>(slot_, std::move(*ports), *status_->page, random_secret());
  keys_.readers().add(shard_->sections());
  multicast_ = std::make_unique<MulticastGroups>(*shard_, surroundings());
  domain_peers_ = std::make_unique<DomainPeers>(
      *shard_, keys_, [this](const Peer::Key& owner) { client_->ask_for_peer(owner.domain, owner.slot); });

  auto links = client_->links();
  if (!links) return tl::unexpected(links.error());
  set_links(std::move(*links));
  auto thread = EngineThread::start(*shard_, client_->event_fd(), [this] { on_control(); });
  if (!thread) return tl::unexpected(thread.error());
  thread_ = std::move(*thread);
  return {};
}

Engine::~Engine() {
  thread_.reset();
  multicast_.reset();
  domain_peers_.reset();
  shard_.reset();
  if (has_slot_) (void)client_->return_slot(slot_);
}

void Engine::set_links(std::vector<agent_client::Link> links) {
  std::vector<std::shared_ptr<const agent_client::Link>> fresh;
  fresh.reserve(links.size());
  for (auto& link : links) fresh.push_back(std::make_shared<const agent_client::Link>(std::move(link)));
  const std::lock_guard guard(links_lock_);
  links_.swap(fresh);
}

std::shared_ptr<const agent_client::Link> Engine::link(uint32_t device_index) const {
  const std::lock_guard guard(links_lock_);
  for (const auto& link : links_) {
    if (link->device_index == device_index) return link;
  }
  return nullptr;
}

MulticastGroups::Surroundings Engine::surroundings() {
  using Key = MulticastGroups::Key;
  return {[this](const Key& key) { return client_->join_group(key.device_index, key.group); },
          [this](uint32_t device) {
            const auto known = link(device);
            return known == nullptr ? 0 : known->interface_index;
          },
          [this](uint32_t device, const roce::Address& address) {
            const auto known = link(device);
            return known != nullptr &&
                   std::ranges::find(known->gids, address, &agent_client::GidEntry::gid) != known->gids.end();
          }};
}

void Engine::close_domain(uint64_t domain) {
  if (inherited_) return;  // it is open in the parent
  domain_peers_->leave(domain);
  client_->close_domain(domain);
}

void Engine::on_control() {
  auto news = client_->next_links();
  for (agent_client::DomainPeer& peer : client_->next_peers()) domain_peers_->connect(std::move(peer));
  if (!news) return;
  std::vector<agent_client::Link> before;
  for (const auto& link : links_) before.push_back(*link);  // nobody else changes them
  const std::vector<agent_client::Link> now = *news;
  set_links(std::move(*news));
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

// ---- fork()

// Takes our locks, so that the child finds everything whole and nothing locked for ever. False: none of them.
bool Engine::before_fork() {
  if (!shard_->before_fork()) return false;  // first: who has it may want the others
  if (keys_.lock_for_fork(kPatience)) {
    if (links_lock_.try_lock_for(kPatience)) {
      if (listeners_lock_.try_lock_for(kPatience)) return true;
      links_lock_.unlock();
    }
    keys_.unlock_in_parent();
  }
  shard_->after_fork_in_parent();
  return false;
}

void Engine::after_fork_in_parent() {
  listeners_lock_.unlock();
  links_lock_.unlock();
  keys_.unlock_in_parent();
  shard_->after_fork_in_parent();
}

// In the child. Nobody else is left who could hold a lock.
void Engine::abandon() {
  listeners_lock_.unlock();
  links_lock_.unlock();
  keys_.free_in_child();
  shard_->abandon();
  thread_->abandon();
  status_->detach();
  has_slot_ = false;
  inherited_ = true;
}

}  // namespace verbena::engine
