// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/service.h"

#include <algorithm>
#include <csignal>
#include <exception>

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/detached_thread.h"
#include "base/log.h"
#include "base/plain_calls.h"
#include "base/section_lock.h"

namespace verbena::rsockets {
namespace {

thread_local bool in_service = false;  // whether this is the service's thread

constinit SectionLock making;
constinit std::atomic<Service*> made{nullptr};

// Forgets the service, whose thread does not exist in the child, and releases the lock. The parent's memory
// for it leaks.
void after_fork_in_child() {
  made.store(nullptr, std::memory_order_relaxed);
  making.free_in_child();
}

[[maybe_unused]] const int service_watched = ::pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

Result<Service*> Service::instance() {
  if (Service* service = made.load(std::memory_order_acquire)) return service;
  const std::lock_guard lock(making);
  if (Service* service = made.load(std::memory_order_acquire)) return service;
  auto started = start();
  if (started) made.store(*started, std::memory_order_release);
  return started;
}

Result<Service*> Service::start() {
  std::unique_ptr<Service> service(new Service);
  if (const auto opened = service->open(); !opened) return fail(opened.error().code);
  const SignalsBlocked signals({SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP});
  std::thread([self = service.get()] { self->run(); }).detach();
  return service.release();
}

Result<void> Service::open() {
  epoll_ = UniqueFd(plain_epoll_create());
  wakeup_ = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll_ || !wakeup_) return fail(errno);
  channel_ = ::rdma_create_event_channel();
  if (channel_ == nullptr) return fail(errno);
  ::fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
  auto polled = poll(wakeup_.get());
  if (polled) polled = poll(channel_->fd);
  if (!polled) ::rdma_destroy_event_channel(channel_);
  return polled;
}

// Adds a descriptor to those that run() waits for.
Result<void> Service::poll(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return plain_epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? Result<void>() : fail(errno);
}

Result<void> Service::watch(int fd, std::weak_ptr<ServiceClient> client) {
  const std::lock_guard lock(mutex_);
  auto polled = poll(fd);
  if (polled) clients_[fd] = std::move(client);
  return polled;
}

void Service::forget(int fd) {
  const std::lock_guard lock(mutex_);
  if (clients_.erase(fd) == 0) return;
  plain_epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Service::set_timer(const std::shared_ptr<ServiceClient>& client, Duration period, TimePoint next) {
  {
    const std::lock_guard lock(mutex_);
    // Compares owners without locking the weak_ptr: a client must not be destroyed here, under the lock.
    std::erase_if(timers_, [&](const Timer& timer) {
      return timer.client.expired() ||
             (!timer.client.owner_before(client) && !client.owner_before(timer.client));
    });
    if (next != kNever) timers_.push_back({client, period, next});
  }
  if (wakeup_.is_ours()) ::eventfd_write(wakeup_.get(), 1);
}

void Service::retire(std::shared_ptr<void> what) {
  if (what && in_service) retired_.push_back(std::move(what));
}

void Service::run() {
  in_service = true;
  pthread_setname_np(pthread_self(), "rsocket");
  for (;;) {
    epoll_event events[16];
    const int count = plain_epoll_wait(epoll_.get(), events, 16, milliseconds_to_timer());
    // The application may have closed our descriptors (base/own_fd.h), and their numbers may be other files
    // now.
    if (!epoll_.is_ours() || !wakeup_.is_ours()) return log_error("rsocket: closed by the application");
    if (count < 0 && errno != EINTR) return log_error("rsocket: epoll_wait: error {}", errno);
    try {
      for (int i = 0; i < count; ++i) {
        const int fd = events[i].data.fd;
        if (fd == wakeup_.get()) {
          eventfd_t unused;
          ::eventfd_read(fd, &unused);
        } else if (fd == channel_->fd) {
          handle_cm_events();
        } else {
          handle_readable(fd);
        }
        retired_.clear();
      }
      handle_timers();
      retired_.clear();
    } catch (const std::exception& error) {
      log_error("rsocket: {}", error.what());
    }
  }
}

// Handles at most 64 events: other hosts can cause any number of them, and there are other clients to serve.
// The channel's descriptor stays readable for the rest.
void Service::handle_cm_events() {
  constexpr int kEventsInATurn = 64;
  rdma_cm_event* event;
  for (int i = 0; i < kEventsInATurn && ::rdma_get_cm_event(channel_, &event) == 0; ++i) {
    rdma_cm_id* id = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->listen_id : event->id;
    if (auto* handler = static_cast<CmHandler*>(id->context)) {
      try {
        handler->on_cm_event(*event);
      } catch (const std::exception& error) {
        log_error("rsocket: a connection event: {}", error.what());
      }
    }
    ::rdma_ack_cm_event(event);
    retired_.clear();
  }
}

void Service::handle_readable(int fd) {
  std::shared_ptr<ServiceClient> client;
  {
    const std::lock_guard lock(mutex_);
    const auto found = clients_.find(fd);
    if (found != clients_.end()) client = found->second.lock();
  }
  if (client) client->on_readable();
}

void Service::handle_timers() {
  std::vector<std::shared_ptr<ServiceClient>> due;
  {
    const std::lock_guard lock(mutex_);
    const TimePoint now = MonotonicClock::now();
    for (Timer& timer : timers_) {
      if (timer.next > now) continue;
      timer.next = timer.period > Duration::zero() ? now + timer.period : kNever;
      if (auto client = timer.client.lock()) due.push_back(std::move(client));
    }
    std::erase_if(timers_, [](const Timer& timer) { return timer.next == kNever || timer.client.expired(); });
  }
  for (const auto& client : due) client->on_timer();
}

int Service::milliseconds_to_timer() {
  const std::lock_guard lock(mutex_);
  TimePoint first = kNever;
  for (const Timer& timer : timers_) first = std::min(first, timer.next);
  if (first == kNever) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - MonotonicClock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

}  // namespace verbena::rsockets
