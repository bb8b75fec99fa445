// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <infiniband/verbs.h>

#include "adapter/engine/ethernet_link.h"
#include "adapter/engine/shown_objects.h"
#include "adapter/memory/file_mapping.h"
#include "adapter/memory/key_table.h"
#include "adapter/memory/region.h"
#include "adapter/objects/async_events.h"
#include "adapter/objects/command_file.h"
#include "adapter/objects/cq_shards.h"
#include "adapter/objects/object_table.h"
#include "adapter/process/engine.h"
#include "adapter/queues/completion_queue.h"
#include "adapter/queues/event_channel.h"
#include "adapter/queues/mapped_array.h"
#include "adapter/queues/shared_receive_queue.h"
#include "adapter/transport/counters.h"
#include "adapter/transport/raw.h"
#include "base/cache_line.h"
#include "base/result.h"
#include "libraries/libibverbs/provider/newer_objects.h"
#include "wire/roce/path.h"

// The objects of a context as the application knows them, except for queue pairs (queue_pairs.h).
// SoftwareContext creates and destroys these objects. If the application closes the context and leaves
// objects behind, ObjectTable destroys each of them, and first calls retire() if the object's class has this
// function.
namespace verbena::adapter {

struct Cq;
struct PdState;
struct Qp;
struct QpCore;

// A piece of allocated device memory. The ibv_dm that allocated the memory shares the object with every
// ibv_dm that imports the memory (ibv_import_dm(3)), and with registrations of the memory. Thread-safe.
class DeviceMemory {
 public:
  // If `ours`, this process allocated the memory, and the destructor frees it unless free() was called.
  DeviceMemory(std::shared_ptr<DeviceMemoryFile> from, const DeviceMemoryFile::Allocation& what,
               memory::FileMapping mapped, bool ours)
      : allocation(what), mapping(std::move(mapped)), file_(std::move(from)), allocated_(true), ours_(ours) {}
  ~DeviceMemory() {
    if (ours_) free();
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Frees the memory's pages in the file; mappings stay valid. Returns false if free() was called before.
  bool free() {
    if (!allocated_.exchange(false)) return false;
    file_->free(allocation);
    return true;
  }
  // Leaves the memory to the parent, so that the destructor does not free it. Called in a child after fork().
  void abandon() { ours_ = false; }

  // Exports the pages as a dma-buf, for other devices. Errors: those of DeviceMemoryFile::export_dma_buf(),
  // such as EOPNOTSUPP if /dev/udmabuf cannot be opened.
  Result<UniqueFd> export_dma_buf() const { return file_->export_dma_buf(allocation); }

  const DeviceMemoryFile::Allocation allocation;
  const memory::FileMapping mapping;
  std::atomic<uint32_t> users{0};  // MRs that register this memory

 private:
  const std::shared_ptr<DeviceMemoryFile> file_;
  std::atomic<bool> allocated_;
  std::atomic<bool> ours_;
};

// A registered memory region. The ibv_mr that registered the region shares the Registration with every ibv_mr
// that imports the region (ibv_import_mr(3)). The region stays usable until one of these ibv_mr is
// deregistered (leave()), or until the last of them is destroyed.
class Registration {
 public:
  // The origin of the memory, which decides how ibv_rereg_mr(3) may change the region.
  enum class Kind : uint8_t { kUser, kOnDemand, kNull, kDmaBuf, kDeviceMemory };

  Registration(memory::KeyTable& keys, Kind kind, std::shared_ptr<PdState> pd);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // Enters the region into the key table, so that requests can use its keys. Returns ENOMEM if the key table
  // is full. REQUIRES: `region` is filled in
  Result<void> enter();
  // Removes the region from the key table, and waits until no thread uses the region. Returns ENOENT if the
  // region was removed before, EBUSY while windows are bound to it, else 0.
  int leave();

  Kind kind;
  // After enter(), guarded by the key table's lock.
  memory::Region region;
  std::shared_ptr<PdState> pd;
  memory::FileMapping dma_buf;
  std::shared_ptr<DeviceMemory> device_memory;
  Uses::Use dma_handle;               // marks the DMA handle of ibv_reg_mr_ex(3) as used, or null
  engine::ShownObjects::Entry shown;  // set after enter()

 private:
  memory::KeyTable& keys_;
  bool entered_ = false;  // guarded by the key table's lock
};

// ---- domains

// A thread domain (ibv_alloc_td(3)): the application promises that only one thread at a time uses the objects
// in the domain. So posting to and polling these objects takes no lock of a queue.
struct Td : VerbsObject<Td, ibv_td> {
  using VerbsObject::VerbsObject;

  std::atomic<uint32_t> users{0};  // parent domains
};

// The state of a protection domain. The ibv_pd that allocated the domain shares the state with every ibv_pd
// that imports the domain (ibv_import_pd(3)).
struct PdState {
  memory::PdId id = 0;
  engine::ShownObjects::Entry shown;
  UserCount users;  // MRs, MWs, QPs, AHs, SRQs, WQs, CQs and parent domains
};

// Allocates the rings of CQs, QPs and other queues with the functions that the application gave to a parent
// domain (ibv_alloc_parent_domain(3)).
class CustomMemory final : public queues::RingMemory {
 public:
  using Allocate = decltype(ibv_parent_domain_init_attr::alloc);
  using Free = decltype(ibv_parent_domain_init_attr::free);

  // REQUIRES: both functions are set, and the domain outlives the rings
  CustomMemory(ibv_pd* domain, Allocate allocator, Free deallocator, void* context)
      : domain_(domain), allocate_(allocator), free_(deallocator), context_(context) {}

  std::byte* allocate(size_t bytes, size_t alignment, queues::RingKind kind) override {
    return static_cast<std::byte*>(allocate_(domain_, context_, bytes, alignment, resource_type(kind)));
  }
  void release(std::byte* at, queues::RingKind kind) override {
    free_(domain_, context_, at, resource_type(kind));
  }

 private:
  // Returns the resource type that is passed to the application's functions. The upper 32 bits are the
  // driver's number (enum rdma_driver_id), here 0 because this adapter has none. The lower 32 bits are the
  // kind of ring.
  static uint64_t resource_type(queues::RingKind kind) { return static_cast<uint64_t>(kind); }

  ibv_pd* const domain_;
  const Allocate allocate_;
  const Free free_;
  void* const context_;
};

// A protection domain, or a parent domain, which extends a protection domain (ibv_alloc_parent_domain(3)). A
// parent domain has the id of the protection domain that it extends, and so the same rights. To compare
// domains, compare ids, never pointers.
struct Pd : VerbsObject<Pd, ibv_pd> {
  Pd(OpenDevice& device, std::shared_ptr<PdState> shared)
      : VerbsObject(device), state(std::move(shared)), id(state->id), users(state->users) {}

  const std::shared_ptr<PdState> state;
  const memory::PdId id;
  UserCount& users;
  // The following members are set in parent domains only.
  Pd* parent_of = nullptr;
  Td* thread = nullptr;
  std::unique_ptr<CustomMemory> memory;  // allocates rings of the objects in the domain, or null
};

// An extended reliable connection (XRC) domain: its XRC target QPs may deliver to its shared receive queues
// (IBTA volume 1, annex A14). All handles that were opened on the same inode for the same device share one
// domain, in this process and, through the agent, in other processes. A handle without a file descriptor has
// a domain of its own. Thread-safe.
class XrcDomain {
 public:
  using File = control::Client::DomainFile;

  // Returns the domain of the inode of `file.fd`. Creates a domain if there is none and `file.create` is set.
  // As in the kernel, returns EAGAIN if there is none and `file.create` is not set, and EINVAL if there is
  // one and `file.exclusive` is set. Other errors: EBADF and others of fstat(2); those of the agent.
  static Result<std::shared_ptr<XrcDomain>> of_file(const std::shared_ptr<engine::Engine>& engine,
                                                    const File& file);
  // Returns a new domain for a handle without a file descriptor.
  static std::shared_ptr<XrcDomain> anonymous();

  // `shared_by` is the engine through which other processes share the domain, or null if none does.
  XrcDomain(uint64_t id, std::shared_ptr<engine::Engine> shared_by)
      : id_(id), shared_by_(std::move(shared_by)) {}
  ~XrcDomain();
  XrcDomain(const XrcDomain&) = delete;
  XrcDomain& operator=(const XrcDomain&) = delete;

  uint64_t id() const { return id_; }  // never 0
  // Returns the object that forwards requests to the domain's queues in other processes, or null if the
  // domain is not shared.
  transport::QueueOwners* owners() const {
    return shared_by_ != nullptr ? &shared_by_->domain_peers() : nullptr;
  }

  // Add, remove and find the XRC target QPs of this domain in this process, by QP number, for ibv_open_qp(3).
  // target() returns null if there is none.
  void add_target(uint32_t qpn, const std::shared_ptr<QpCore>& core) {
    const std::lock_guard guard(mutex_);
    targets_[qpn] = core;
  }
  void remove_target(uint32_t qpn) {
    const std::lock_guard guard(mutex_);
    targets_.erase(qpn);
  }
  std::shared_ptr<QpCore> target(uint32_t qpn);

 private:
  const uint64_t id_;
  const std::shared_ptr<engine::Engine> shared_by_;
  std::mutex mutex_;
  std::map<uint32_t, std::weak_ptr<QpCore>> targets_;
};

// An extended reliable connection domain (ibv_open_xrcd(3)).
struct Xrcd : VerbsObject<Xrcd, ibv_xrcd> {
  using VerbsObject::VerbsObject;

  std::shared_ptr<XrcDomain> domain;
  std::atomic<uint32_t> users{0};  // SRQs and QPs that were created or opened with this handle
};

// An address handle (ibv_create_ah(3)).
struct Ah : VerbsObject<Ah, ibv_ah> {
  using VerbsObject::VerbsObject;

  Pd* domain = nullptr;
  roce::Path path;
};

// ---- memory

// Device memory (ibv_alloc_dm(3)).
struct Dm : VerbsObject<Dm, ibv_dm> {
  using VerbsObject::VerbsObject;
  void retire() {
    if (owner.inherited()) memory->abandon();
  }

  std::shared_ptr<DeviceMemory> memory;
};

// A DMA handle (ibv_alloc_dmah(3)), with which a program asks for PCIe processing hints. The handle has no
// effect here, because the CPU writes the memory and needs no hints.
struct Dmah : VerbsObject<Dmah, provider::DmaHandle> {
  using VerbsObject::VerbsObject;

  Uses uses;  // one for each memory region with this handle
};

// A memory region. With ibv_import_mr(3), several Mr share one Registration.
struct Mr : VerbsObject<Mr, ibv_mr> {
  using VerbsObject::VerbsObject;

  std::shared_ptr<Registration> registration;
  bool imported = false;
};

// A memory window (ibv_alloc_mw(3)). Send requests bind and invalidate it, by the rules in
// adapter/memory/window.h.
struct Mw : VerbsObject<Mw, ibv_mw> {
  using VerbsObject::VerbsObject;
  // Unbinds the window and frees its key. When retire() returns, no thread uses the window.
  void retire();

  Pd* domain = nullptr;
  memory::Region window;
};

// ---- completions

// A completion channel (ibv_create_comp_channel(3)).
struct CompChannel : VerbsObject<CompChannel, ibv_comp_channel> {
  using VerbsObject::VerbsObject;

  // Count the completion queues that report their events to this channel; while there are any, the channel
  // cannot be destroyed. The count is the C struct's `refcnt`, because programs may read that field.
  void add_user() { std::atomic_ref(refcnt).fetch_add(1); }
  void remove_user() { std::atomic_ref(refcnt).fetch_sub(1); }
  bool has_users() { return std::atomic_ref(refcnt).load() != 0; }

  // Called before the channel is destroyed. If a thread waits for the channel's events by a shard's wake-up
  // (engine::EventWait), wakes the thread and waits up to a second until it has left, because the shard may
  // soon end. Logs a warning if the thread stays. Does nothing in a child after fork(), which has no such
  // thread.
  void retire();

  std::shared_ptr<queues::EventChannel> events;
  CqShards shards;  // the shards that add completions to the channel's CQs
};

// A completion counter (ibv_create_comp_cntr(3)) adds up the requests, or the bytes, of completed SENDs, RDMA
// READs, RDMA WRITEs and receive requests of its QPs, signaled or not. READs and WRITEs that the peer
// requests are not counted, because on one host the peer carries them out without this process.
struct CompletionCounter : VerbsObject<CompletionCounter, provider::CompletionCounter> {
  using VerbsObject::VerbsObject;

  std::shared_ptr<transport::CompletionCount> count;  // shared with the transport of each attached QP
  Uses uses;                                          // one for each attachment, held by the QP
};

// ---- receive queues that are not part of a QP

// A shared receive queue: basic, for XRC, or with tag matching.
struct Srq : VerbsObject<Srq, ibv_srq>, queues::LimitListener {
  explicit Srq(OpenDevice& device);

  void on_limit_reached() override { async_events.post(IBV_EVENT_SRQ_LIMIT_REACHED, owner.events()); }
  // Removes the SRQ's pending events. For XRC, also removes the SRQ from the table of XRC queues, so that no
  // QP and no other process can find it.
  void retire();

  engine::ShownObjects::Entry shown;
  EventAccount account;
  AsyncEvents<kSrqEvents.size()> async_events;
  ibv_srq_type type = IBV_SRQT_BASIC;
  std::unique_ptr<queues::SharedReceiveQueue> queue;
  Pd* domain = nullptr;
  ibv_cq* cq = nullptr;            // set for XRC and tag matching
  ibv_xrcd* xrcd = nullptr;        // set for XRC
  std::atomic<uint32_t> users{0};  // QPs that receive from the SRQ
};

// A receive work queue (ibv_create_wq(3)). Indirection tables refer to such queues.
struct Wq : VerbsObject<Wq, ibv_wq>, transport::WorkQueueListener {
  explicit Wq(OpenDevice& device);

  void on_work_queue_fatal() override { async_events.post(IBV_EVENT_WQ_FATAL, owner.events()); }
  // Releases the queue's number, removes the queue's completions from the CQ, and drops the queue's pending
  // events.
  void retire();

  engine::Shard& shard;
  EventAccount account;
  AsyncEvents<kWqEvents.size()> async_events;
  std::unique_ptr<transport::ReceiveWorkQueue> queue;
  Pd* domain = nullptr;
  Cq* completions = nullptr;
  uint32_t max_sge = 0;
  std::mutex modifying;
  std::atomic<uint32_t> users{0};  // entries of indirection tables that refer to this queue
};

// A table of the receive queues over which a raw QP spreads its packets (ibv_create_rwq_ind_table(3)).
struct RwqIndTable : VerbsObject<RwqIndTable, ibv_rwq_ind_table> {
  using VerbsObject::VerbsObject;

  std::vector<Wq*> queues;         // their number is a power of two
  std::atomic<uint32_t> users{0};  // QPs that spread packets over this table
};

// ---- flow rules

// A set of packet and byte counters to which flow rules add (ibv_create_counters(3)).
struct Counters : VerbsObject<Counters, ibv_counters> {
  using VerbsObject::VerbsObject;

  // One counter and the index at which ibv_read_counters(3) returns its value.
  struct Point {
    ibv_counter_description what;
    uint32_t index;
  };

  engine::FlowTotals totals;
  std::mutex attaching;
  std::vector<Point> points;
  std::atomic<uint32_t> users{0};  // flow rules that count here
};

// An installed flow rule (ibv_create_flow(3)), which steers received frames to a raw QP or drops them.
struct Flow : VerbsObject<Flow, ibv_flow> {
  using VerbsObject::VerbsObject;
  // Removes the rule from the steering table.
  void retire();

  engine::FlowTarget target;
  Qp* qp = nullptr;
  Counters* counters = nullptr;
};

// A completion queue as the application knows it. The C struct is an ibv_cq_ex. An ibv_cq_ex begins with the
// fields of an ibv_cq, so the same pointer serves as an ibv_cq*.
struct alignas(kCacheLine) Cq : ibv_cq_ex, queues::EventSource, queues::CompletionListener, TableEntry {
  explicit Cq(OpenDevice& device);
  static Cq& of(ibv_cq* cq) { return *static_cast<Cq*>(reinterpret_cast<ibv_cq_ex*>(cq)); }
  static Cq& of(queues::EventSource& source) { return static_cast<Cq&>(source); }
  ibv_cq* abi() { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(this)); }

  void on_completion_event() override;
  void on_overflow() override {
    shown.set(protocol::kCqOverrun, 1);
    async_events.post(IBV_EVENT_CQ_ERR, owner.events());
  }
  void on_event_held() override;

  // Delays completion events until `count` completions have come or `microseconds` have passed
  // (ibv_modify_cq(3)). With a `count` of 0, events are not delayed.
  void moderate(uint32_t count, uint32_t microseconds);

  // Cancels the queue's delayed events and removes pending ones, which the application has not taken yet.
  void retire();

  // Add or remove the shard of one QP, SRQ or work queue that completes into this queue. The queue's
  // completion channel gets or loses the shard, too. Each joined_by() is undone by one left_by() with the
  // same shard.
  void joined_by(engine::Shard& shard) {
    shards.join(shard);
    if (comp_channel != nullptr) comp_channel->shards.join(shard);
  }
  void left_by(engine::Shard& shard) {
    if (comp_channel != nullptr) comp_channel->shards.leave(shard);
    shards.leave(shard);
  }

  // Starts the delay of an event for which CompletionQueue::arm() returned kHeld: entries are waiting, but
  // moderate() delays their event. Calls on_event_held() with the lock of a shard that fills the queue, or of
  // the home shard if there is none.
  void hold_event() {
    engine::Shard* shard = shards.first();
    (shard != nullptr ? *shard : owner.home()).exclusively([&] { on_event_held(); });
  }

  // Polls all shards that fill the queue, so that they process arrived packets. Called by an application
  // thread that found the queue empty.
  void drive() {
    shards.for_each(owner.home(), [](engine::Shard& shard) { shard.poll(); });
  }

  EventAccount account;
  // Events that the application has taken. The C struct counts the acknowledged events.
  std::atomic<uint32_t> comp_events_taken{0};
  AsyncEvents<kCqEvents.size()> async_events;
  CompChannel* comp_channel = nullptr;
  Pd* parent_domain = nullptr;
  std::unique_ptr<queues::CompletionQueue> queue;
  const queues::Completion* current = nullptr;  // the completion that ibv_wc_read_*() read
  std::atomic<int64_t> moderation_ns{0};        // maximum delay of an event; 0 if events are not delayed
  CqShards shards;
  engine::ShownObjects::Entry shown;
  UserCount users;  // QPs (counted once per role), SRQs and work queues
};

}  // namespace verbena::adapter
