// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/socket_table.h"

#include <pthread.h>
#include <unistd.h>

#include "base/only_one.h"

namespace verbena::rsockets {
namespace {

std::atomic<pid_t> process{0};

void note_process() {
  process.store(::getpid(), std::memory_order_relaxed);
}

void note_process_in_child() {
  note_process();
  SocketTable::instance().free_in_child();
}

// Registered when the library is loaded: later another thread could already be forking.
const bool is_watched = [] {
  note_process();
  return ::pthread_atfork(nullptr, nullptr, note_process_in_child) == 0;
}();

}  // namespace

pid_t current_process() {
  return is_watched ? process.load(std::memory_order_relaxed) : ::getpid();
}

SocketTable& SocketTable::instance() {
  static constinit OnlyOne<SocketTable> table;
  return table.get([] { return new SocketTable; });
}

void SocketTable::free_in_child() {
  for (const std::atomic<Page*>& page : pages_) {
    Page* const entries = page.load(std::memory_order_acquire);
    if (entries == nullptr) continue;
    for (Entry& each : *entries) each.lock.unlock();
  }
}

SocketTable::Entry* SocketTable::entry(int number) {
  const auto page = static_cast<size_t>(number) / kPageEntries;
  if (number < 0 || page >= kPages) return nullptr;
  Page* entries = pages_[page].load(std::memory_order_acquire);
  return entries != nullptr ? &(*entries)[static_cast<size_t>(number) % kPageEntries] : nullptr;
}

Result<void> SocketTable::insert(std::shared_ptr<Socket> socket) {
  const int number = socket->number();
  const auto page = static_cast<size_t>(number) / kPageEntries;
  if (number < 0 || page >= kPages) return fail(EMFILE);
  if (pages_[page].load(std::memory_order_acquire) == nullptr) {
    auto fresh = std::make_unique<Page>();
    Page* expected = nullptr;
    if (pages_[page].compare_exchange_strong(expected, fresh.get(), std::memory_order_acq_rel)) {
      (void)fresh.release();  // owned by the table from now on
    }
  }
  Entry& place = *entry(number);
  const std::lock_guard lock(place.lock);
  place.socket.swap(socket);
  place.owner = current_process();
  return {};
}

std::shared_ptr<Socket> SocketTable::find(int number) {
  Entry* place = entry(number);
  if (place == nullptr) return nullptr;
  const std::lock_guard lock(place->lock);
  if (!place->socket || place->owner != current_process()) return nullptr;
  return place->socket;
}

std::shared_ptr<Socket> SocketTable::remove(int number) {
  Entry* place = entry(number);
  if (place == nullptr) return nullptr;
  const std::lock_guard lock(place->lock);
  if (!place->socket || place->owner != current_process()) return nullptr;
  return std::move(place->socket);
}

bool SocketTable::remove_inherited(int number) {
  Entry* place = entry(number);
  if (place == nullptr) return false;
  const std::lock_guard lock(place->lock);
  if (!place->socket || place->owner == current_process()) return false;
  // Leaks the reference: the socket's resources belong to the parent, and its destructor must not run here.
  (void)new std::shared_ptr<Socket>(std::move(place->socket));
  return true;
}

}  // namespace verbena::rsockets
