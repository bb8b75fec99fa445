// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibverbs/provider/provider.h"

#include <array>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <new>

#include <pthread.h>
#include <sys/mman.h>

namespace verbena::provider {

// A part of the table, with its own lock: a hash table chained through the objects. The part grows when
// chains get long; if there is no memory to grow, the chains stay long.
class LiveObjectTable {
 public:
  void add(LiveObject& entry) {
    const std::lock_guard guard(mutex_);
    if (++count_ > size_) grow();
    push(entry);
  }

  void remove(LiveObject& entry) {
    const std::lock_guard guard(mutex_);
    LiveObject** at = &bucket(entry.object_);
    while (*at != &entry) at = &(*at)->next_;
    *at = entry.next_;
    --count_;
  }

  Context* find(const void* object, ObjectKind kind, LiveObject::Identity& identity) {
    const std::lock_guard guard(mutex_);
    for (const LiveObject* entry = bucket(object); entry != nullptr; entry = entry->next_) {
      if (entry->object_ != object || entry->kind_ != kind) continue;
      identity = entry->identity_;
      return entry->owner_;
    }
    return nullptr;
  }

  std::mutex& mutex() { return mutex_; }

  // Drops 4 bits: objects have some hundred bytes and addresses that are multiples of 16.
  static size_t hash_of(const void* object) {
    return static_cast<size_t>((reinterpret_cast<uintptr_t>(object) >> 4) * 0x9e3779b97f4a7c15 >> 24);
  }

 private:
  static constexpr size_t kFirstBuckets = 256;

  LiveObject*& bucket(const void* object) { return buckets_[hash_of(object) & (size_ - 1)]; }

  void push(LiveObject& entry) {
    LiveObject*& first = bucket(entry.object_);
    entry.next_ = first;
    first = &entry;
  }

  // Doubles the buckets, in pages of their own. On the heap they would lie among the objects and outlive
  // them, and malloc returns no memory below a live block to the kernel.
  void grow() {
    void* const larger = ::mmap(nullptr, size_ * 2 * sizeof(LiveObject*), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (larger == MAP_FAILED) return;
    const std::span<LiveObject*> old(buckets_, size_);
    buckets_ = static_cast<LiveObject**>(larger);
    size_ *= 2;
    for (LiveObject* entry : old) {
      while (entry != nullptr) {
        LiveObject* const next = entry->next_;
        push(*entry);
        entry = next;
      }
    }
    if (old.data() != first_.data()) ::munmap(old.data(), old.size_bytes());
  }

  std::mutex mutex_;
  size_t count_ = 0;
  std::array<LiveObject*, kFirstBuckets> first_{};
  LiveObject** buckets_ = first_.data();
  size_t size_ = kFirstBuckets;
};

namespace {

// The number of parts: enough that threads which create and destroy objects seldom contend for a lock.
constexpr size_t kParts = 16;
using Parts = std::array<LiveObjectTable, kParts>;

// Returns the table, which is never destroyed: application threads may outlive all static objects. The table
// needs no heap memory, so entering an object never fails.
Parts& parts() {
  alignas(Parts) static std::byte place[sizeof(Parts)];
  static Parts* const the_parts = new (place) Parts;
  return *the_parts;
}

void lock_all() {
  for (LiveObjectTable& part : parts()) part.mutex().lock();
}

void unlock_all() {
  for (LiveObjectTable& part : parts()) part.mutex().unlock();
}

// Locks all parts around fork(), so that a child finds no part locked by a thread that it lacks. Registered
// when the library is loaded: the handler registered first locks last. Locks under which no other lock is
// taken must be locked last.
[[maybe_unused]] const int watched = ::pthread_atfork(lock_all, unlock_all, unlock_all);

LiveObjectTable& part_of(const void* object) {
  return parts()[LiveObjectTable::hash_of(object) >> 20 & (kParts - 1)];
}

}  // namespace

void LiveObject::enter(const void* object, ObjectKind kind, const Identity& identity, Context& owner) {
  object_ = object;
  kind_ = kind;
  identity_ = identity;
  owner_ = &owner;
  part_of(object).add(*this);
}

void LiveObject::leave() {
  if (object_ == nullptr) return;
  part_of(object_).remove(*this);
  object_ = nullptr;
}

Context* LiveObject::find(const void* object, ObjectKind kind, Identity& identity) {
  return object == nullptr ? nullptr : part_of(object).find(object, kind, identity);
}

const char* name_of(ObjectKind kind) {
  constexpr const char* kNames[] = {
      "ibv_context",       "ibv_pd",           "ibv_td",        "ibv_mr",  "ibv_mw",   "ibv_dm",
      "ibv_dmah",          "ibv_comp_channel", "ibv_cq",        "ibv_qp",  "ibv_flow", "ibv_wq",
      "ibv_rwq_ind_table", "ibv_counters",     "ibv_comp_cntr", "ibv_srq", "ibv_xrcd", "ibv_ah",
  };
  static_assert(std::size(kNames) == kind_of(static_cast<const ibv_ah*>(nullptr)) + size_t{1});
  return kNames[kind];
}

Context::Context() {
  ibv_context& context = abi_.context;
  context.cmd_fd = -1;
  context.async_fd = -1;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&context.mutex, nullptr);
  // verbs.h adds new operations at the front. The size covers the operations that we fill, up to query_port,
  // independently of the headers of the build.
  abi_.sz = sizeof abi_ - offsetof(verbs_context, query_port);
  abi_.priv = reinterpret_cast<verbs_ex_private*>(this);
  live_.enter(&context, *this);
}

Context::~Context() {
  live_.leave();
  pthread_mutex_destroy(&abi_.context.mutex);
}

Context& Context::of(ibv_context* context) {
  return *reinterpret_cast<Context*>(verbs_get_ctx(context)->priv);
}

std::atomic<uint64_t>& Context::comp_cntr_value(CompletionCounter*, bool) {
  std::abort();  // unreachable: no provider without counters created one
}

}  // namespace verbena::provider
