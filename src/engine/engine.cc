// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/log.h"
#include "net/udp/udp_port.h"

namespace verbena::engine {

// The page that `verbena status` reads; private memory when the agent gave none.
struct Engine::StatusMapping {
  static Result<std::unique_ptr<StatusMapping>> create(int fd) {
    const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* at = ::mmap(nullptr, sizeof(control::StatusPage), PROT_READ | PROT_WRITE, flags, fd, 0);
    if (at == MAP_FAILED) return fail(errno);
    return std::make_unique<StatusMapping>(static_cast<control::StatusPage*>(at));
  }
  explicit StatusMapping(control::StatusPage* p) : page(p) {
    page->magic.store(control::StatusPage::kMagic, std::memory_order_relaxed);
  }
  ~StatusMapping() { ::munmap(page, sizeof(control::StatusPage)); }
  StatusMapping(const StatusMapping&) = delete;
  StatusMapping& operator=(const StatusMapping&) = delete;

  control::StatusPage* const page;
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
      ::pthread_atfork(nullptr, nullptr, [] { in_child(); });
      std::atexit([] { at_exit(); });
    });
    Process* process = current_.load(std::memory_order_acquire);
    while (process == nullptr) {
      auto* fresh = new Process;  // for ever: threads of the application may outlive static objects
      if (current_.compare_exchange_strong(process, fresh)) return *fresh;
      delete fresh;
    }
    return *process;
  }

  Result<std::shared_ptr<control::Client>> control() {
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
    running_engine = started;
    return started;
  }

 private:
  Result<std::shared_ptr<control::Client>> connect() {
    if (client == nullptr) {
      auto connected = control::Client::connect();
      if (!connected) return tl::unexpected(connected.error());
      client = std::move(*connected);
    }
    return client;
  }

  static void in_child() {
    Process* parents = current_.exchange(nullptr);
    if (parents == nullptr) return;
    if (auto inherited = parents->running_engine.lock()) inherited->abandon();
    if (parents->client != nullptr) parents->client->abandon();
  }

  static void at_exit() {
    Process* process = current_.load();
    if (process == nullptr) return;
    if (auto running = process->running_engine.lock()) running->shard().flush_at_exit();
  }

  static inline std::atomic<Process*> current_{nullptr};

  std::mutex mutex;
  std::shared_ptr<control::Client> client;
  std::weak_ptr<Engine> running_engine;
};

Result<std::shared_ptr<Engine>> Engine::acquire() {
  return Process::current().engine();
}

Result<std::vector<control::Link>> Engine::list_links() {
  auto client = Process::current().control();
  if (!client) return tl::unexpected(client.error());
  return (*client)->links();
}

Engine::Engine(std::shared_ptr<control::Client> client) : client_(std::move(client)) {}

Result<void> Engine::start() {
  auto slot = client_->take_slot();
  if (!slot) return tl::unexpected(slot.error());
  slot_ = slot->index;
  has_slot_ = true;
  auto mapping = StatusMapping::create(slot->status_page.get());
  if (!mapping) return tl::unexpected(mapping.error());
  status_ = std::move(*mapping);

  std::unique_ptr<net::Port> port;
  if (slot->socket) {
    net::UdpPortOptions options;
    options.slot = slot_;
    auto opened = net::UdpPort::create(std::move(slot->socket), options);
    if (!opened) return tl::unexpected(opened.error());
    port = std::move(*opened);
  } else {
    no_wire_reason_ = slot->no_wire_reason.empty() ? "the agent gave no socket" : slot->no_wire_reason;
    log_warning("no wire, all ports are down: {}", no_wire_reason_);
  }
  shard_ = std::make_unique<Shard>(slot_, std::move(port), *status_->page, random_secret());

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
  shard_.reset();
  if (has_slot_) (void)client_->return_slot(slot_);
}

void Engine::set_links(std::vector<control::Link> links) {
  std::vector<std::shared_ptr<const control::Link>> fresh;
  fresh.reserve(links.size());
  for (auto& link : links) fresh.push_back(std::make_shared<const control::Link>(std::move(link)));
  const std::lock_guard guard(mutex_);
  links_ = std::move(fresh);
}

std::shared_ptr<const control::Link> Engine::link(uint32_t device_index) const {
  const std::lock_guard guard(mutex_);
  for (const auto& link : links_) {
    if (link->device_index == device_index) return link;
  }
  return nullptr;
}

void Engine::on_control() {
  auto news = client_->next_links();
  if (!news) return;
  std::vector<control::Link> before;
  {
    const std::lock_guard guard(mutex_);
    for (const auto& link : links_) before.push_back(*link);
  }
  const std::vector<control::Link> now = *news;
  set_links(std::move(*news));
  const std::lock_guard guard(listeners_mutex_);
  for (LinkListener& listener : listeners_) listener.on_links(before, now);
}

void Engine::subscribe(LinkListener& listener) {
  const std::lock_guard guard(listeners_mutex_);
  listeners_.push_back(listener);
}

void Engine::unsubscribe(LinkListener& listener) {
  const std::lock_guard guard(listeners_mutex_);
  listener.link_hook.unlink();
}

void Engine::abandon() {
  if (shard_ != nullptr) shard_->abandon();
  if (thread_ != nullptr) thread_->abandon();
  has_slot_ = false;
  inherited_ = true;
}

}  // namespace verbena::engine
