// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "libraries/libibverbs/provider/newer_objects.h"

namespace verbena::provider {

class Context;

// The table of live verbs objects: tells whether a pointer that a program passes points to a live object. The
// table plays the role that the kernel's table of handles has for rdma-core. An object that was destroyed or
// never existed is recognized without reading its memory, so a second destruction is an error and not a
// crash. Too slow for the data path. Thread-safe.

// The C types of verbs objects. An object's kind is the index of its type, or its type's base, in this list.
template <class... Types>
struct TypeList {};
using ObjectTypes =
    TypeList<ibv_context, ibv_pd, ibv_td, ibv_mr, ibv_mw, ibv_dm, DmaHandle, ibv_comp_channel, ibv_cq, ibv_qp,
             ibv_flow, ibv_wq, ibv_rwq_ind_table, ibv_counters, CompletionCounter, ibv_srq, ibv_xrcd, ibv_ah>;
using ObjectKind = uint8_t;

template <class Abi, class... Types>
constexpr ObjectKind index_in(TypeList<Types...>) {
  ObjectKind index = 0;
  const bool is_there = ((std::is_base_of_v<Types, Abi> || (++index, false)) || ...);
  return is_there ? index : throw "no verbs object";
}
template <class Abi>
constexpr ObjectKind kind_of(const Abi*) {
  constexpr ObjectKind kKind = index_in<Abi>(ObjectTypes());
  return kKind;
}

// Returns the name of a kind's C type, such as "ibv_qp", for error messages.
const char* name_of(ObjectKind kind);

// The entry of one object in the table of live objects, from enter() to leave(). The entry is a member of the
// object, so that enter() needs no memory and cannot fail.
class LiveObject {
 public:
  LiveObject() = default;
  LiveObject(const LiveObject&) = delete;
  LiveObject& operator=(const LiveObject&) = delete;
  ~LiveObject() { leave(); }

  // Enters `object`, which the context `owner` has made, into the table. REQUIRES: no other object is entered
  // under this pointer
  template <class Abi>
  void enter(const Abi* object, Context& owner);
  // Removes the entry: from now on, find_owner() does not find the object. Call before freeing the object.
  void leave();

 private:
  friend class LiveObjectTable;

  // The public fields by which rdma-core would name an object to the kernel: `context` and `handle`. Programs
  // can change both, so find_owner() compares them with their values at enter().
  struct Identity {
    const ibv_context* context = nullptr;
    uint32_t handle = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  template <class Abi>
  static Identity identity_in(const Abi& object);
  void enter(const void* object, ObjectKind kind, const Identity& identity, Context& owner);
  template <class Abi>
  friend Context* find_owner(const Abi* object);
  // Returns the owner, and sets `identity` to the object's identity at enter(). Returns null if no object of
  // this kind is entered under this pointer.
  static Context* find(const void* object, ObjectKind kind, Identity& identity);

  const void* object_ = nullptr;  // null if not entered
  Context* owner_ = nullptr;
  LiveObject* next_ = nullptr;
  Identity identity_;
  ObjectKind kind_ = 0;
};

// Reads the identity fields; a struct without one of them has null or 0 for it.
template <class Abi>
LiveObject::Identity LiveObject::identity_in(const Abi& object) {
  Identity identity;
  if constexpr (requires { object.context; }) identity.context = object.context;
  if constexpr (requires { object.handle; }) identity.handle = object.handle;
  if constexpr (requires { object.ind_tbl_handle; })
    identity.handle = static_cast<uint32_t>(object.ind_tbl_handle);
  return identity;
}

template <class Abi>
void LiveObject::enter(const Abi* object, Context& owner) {
  enter(object, kind_of(object), identity_in(*object), owner);
}

// Returns the context that made this object. Returns null if there is no live object of this kind at the
// pointer, or if the object's `context` or handle has changed since enter().
template <class Abi>
Context* find_owner(const Abi* object) {
  LiveObject::Identity identity;
  Context* const owner = LiveObject::find(object, kind_of(object), identity);
  return owner != nullptr && LiveObject::identity_in(*object) == identity ? owner : nullptr;
}

// The interface between the C ABI (libraries/libibverbs/) and device implementations. The software adapter is
// the first provider. Any thread may make any call. Destroying an object while another call uses it is an
// error of the application, as with libibverbs.
//
// Objects are the ABI's own structs (ibv_pd, ibv_cq, ...), inside larger structs that the provider allocates.
// The provider fills all public fields and enters the object in the table of live objects (LiveObject).
// Apart from the data path, a call reaches the provider only while the call's object is in that table. The
// provider checks the other objects that a call names, such as the CQ of a new QP. An int result is 0 or an
// errno value. The default implementations return EOPNOTSUPP.

struct DeviceInfo {
  std::string name;        // ibv_device::name, for example rxe_eth0
  std::string dev_name;    // for example uverbs0
  std::string dev_path;    // for example /sys/class/infiniband_verbs/uverbs0
  std::string ibdev_path;  // for example /sys/class/infiniband/rxe_eth0
  uint64_t guid = 0;       // in network byte order
  int index = 0;           // the result of ibv_get_device_index(3)
  ibv_node_type node_type = IBV_NODE_CA;
  ibv_transport_type transport = IBV_TRANSPORT_IB;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // Opens the device. The caller sets verbs_context::context.device.
  virtual Result<std::unique_ptr<Context>> open() = 0;
};

class Context {
 public:
  Context();
  virtual ~Context();  // destroys what the application left behind
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Returns the C struct of this context. `priv` points back to this object, and `sz` covers the operations
  // from query_port on. The provider sets the operations that it supports: the data path's in `context.ops`
  // (such as poll_cq), and extended ones. fill_operations() (context_ops.cc) sets the others.
  verbs_context& abi() { return abi_; }
  // Returns the object behind an application's ibv_context. REQUIRES: this library opened the context
  static Context& of(ibv_context* context);

  // ---- queries
  virtual int query_device(ibv_device_attr_ex* attr, size_t attr_size) = 0;  // fills attr_size bytes at most
  virtual int query_port(uint8_t port, ibv_port_attr* attr) = 0;
  virtual int query_gid(uint8_t port, int index, ibv_gid* gid) = 0;  // an empty index: 0, with a GID of zeros
  virtual int query_gid_entry(uint8_t port, uint32_t index,
                              ibv_gid_entry* entry) = 0;  // ENODATA for an empty index
  virtual int query_pkey(uint8_t port, int index, __be16* pkey) = 0;
  virtual std::vector<ibv_gid_entry> gid_table() = 0;  // only entries that are in use
  // Fills the values that comp_mask requests. On return, comp_mask names the filled values.
  virtual int query_rt_values(ibv_values_ex*) { return EOPNOTSUPP; }

  // Processes all packets that have already arrived for the context's queue pairs. librdmacm, for example,
  // calls settle() before it reports a disconnect. A hardware adapter processes packets without this call.
  virtual void settle() {}

  // Returns false if the hardware address of the next hop is unknown, and makes the kernel search for it. A
  // QP or an address handle with this address vector would wait for the hardware address. Never waits.
  virtual bool search_route(const ibv_ah_attr&) { return true; }

  // ---- protection domains and memory
  virtual Result<ibv_pd*> alloc_pd() = 0;
  virtual int dealloc_pd(ibv_pd* pd) = 0;  // `pd` may be a parent domain
  virtual Result<ibv_pd*> alloc_parent_domain(ibv_parent_domain_init_attr*) { return fail(EOPNOTSUPP); }
  virtual Result<ibv_td*> alloc_td(ibv_td_init_attr*) { return fail(EOPNOTSUPP); }
  virtual int dealloc_td(ibv_td*) { return EOPNOTSUPP; }
  virtual Result<ibv_mr*> reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) = 0;
  virtual int rereg_mr(ibv_mr*, int /*flags*/, ibv_pd*, void* /*addr*/, size_t /*length*/, int /*access*/) {
    return EOPNOTSUPP;
  }
  virtual Result<ibv_mr*> reg_dmabuf_mr(ibv_pd*, uint64_t /*offset*/, size_t /*length*/, uint64_t /*iova*/,
                                        int /*fd*/, int /*access*/) {
    return fail(EOPNOTSUPP);
  }
  virtual int dereg_mr(ibv_mr* mr) = 0;
  virtual Result<ibv_mr*> alloc_null_mr(ibv_pd*) { return fail(EOPNOTSUPP); }
  virtual int advise_mr(ibv_pd*, ibv_advise_mr_advice /*advice*/, uint32_t /*flags*/,
                        std::span<const ibv_sge> /*list*/) {
    return EOPNOTSUPP;
  }
  virtual Result<ibv_mw*> alloc_mw(ibv_pd*, ibv_mw_type /*type*/) { return fail(EOPNOTSUPP); }
  virtual int dealloc_mw(ibv_mw*) { return EOPNOTSUPP; }
  // Allocates device memory, and sets memcpy_to_dm and memcpy_from_dm of the ibv_dm.
  virtual Result<ibv_dm*> alloc_dm(ibv_alloc_dm_attr*) { return fail(EOPNOTSUPP); }
  virtual int free_dm(ibv_dm*) { return EOPNOTSUPP; }
  virtual Result<ibv_mr*> reg_dm_mr(ibv_pd*, ibv_dm*, uint64_t /*offset*/, size_t /*length*/,
                                    unsigned /*access*/) {
    return fail(EOPNOTSUPP);
  }
  virtual Result<UniqueFd> export_dm(ibv_dm*) { return fail(EOPNOTSUPP); }  // returns a dma-buf
  virtual Result<DmaHandle*> alloc_dmah(const DmaHandleInitAttr&) { return fail(EOPNOTSUPP); }
  virtual int dealloc_dmah(DmaHandle*) { return EOPNOTSUPP; }
  // Records that the region uses the handle, until the region is deregistered.
  virtual void use_dmah(ibv_mr*, DmaHandle*) {}

  // Import an object by its handle from any context that was opened on this context's cmd_fd. Unimporting
  // ends only the importer's use of the object.
  virtual Result<ibv_pd*> import_pd(uint32_t /*handle*/) { return fail(EOPNOTSUPP); }
  virtual void unimport_pd(ibv_pd*) {}
  virtual Result<ibv_mr*> import_mr(ibv_pd*, uint32_t /*handle*/) { return fail(EOPNOTSUPP); }
  virtual void unimport_mr(ibv_mr*) {}
  virtual Result<ibv_dm*> import_dm(uint32_t /*handle*/) { return fail(EOPNOTSUPP); }
  virtual void unimport_dm(ibv_dm*) {}

  // ---- completions
  virtual Result<ibv_comp_channel*> create_comp_channel() = 0;
  virtual int destroy_comp_channel(ibv_comp_channel* channel) = 0;
  virtual Result<ibv_cq*> create_cq(int cqe, void* cq_context, ibv_comp_channel* channel,
                                    int comp_vector) = 0;
  virtual Result<ibv_cq_ex*> create_cq_ex(ibv_cq_init_attr_ex*) { return fail(EOPNOTSUPP); }
  virtual int resize_cq(ibv_cq* cq, int cqe) = 0;
  virtual int modify_cq(ibv_cq*, ibv_modify_cq_attr*) { return EOPNOTSUPP; }
  virtual int destroy_cq(ibv_cq* cq) = 0;
  // Waits for an event; if the channel's descriptor is O_NONBLOCK, returns EAGAIN instead. A thread may be
  // cancelled while it sleeps in this call or in get_async_event() (CancellationAllowed), and in no other
  // call.
  virtual int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) = 0;
  virtual void ack_cq_events(ibv_cq* cq, unsigned count) = 0;
  virtual int get_async_event(ibv_async_event* event) = 0;
  virtual void ack_async_event(ibv_async_event* event) = 0;

  // ---- queue pairs
  virtual Result<ibv_qp*> create_qp(ibv_qp_init_attr_ex* attr) = 0;  // attr->cap is updated
  virtual int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) = 0;
  virtual int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) = 0;
  virtual int destroy_qp(ibv_qp* qp) = 0;
  virtual ibv_qp_ex* qp_to_qp_ex(ibv_qp*) { return nullptr; }
  virtual Result<ibv_qp*> open_qp(ibv_qp_open_attr*) { return fail(EOPNOTSUPP); }

  // ---- raw packets: pacing, flow rules, receive queues outside of QPs, counters of flows
  virtual int modify_qp_rate_limit(ibv_qp*, const ibv_qp_rate_limit_attr*) { return EOPNOTSUPP; }
  virtual Result<ibv_flow*> create_flow(ibv_qp*, const ibv_flow_attr*) { return fail(EOPNOTSUPP); }
  virtual int destroy_flow(ibv_flow*) { return EOPNOTSUPP; }
  // Updates max_wr and max_sge of the attributes to the granted values.
  virtual Result<ibv_wq*> create_wq(ibv_wq_init_attr*) { return fail(EOPNOTSUPP); }
  virtual int modify_wq(ibv_wq*, const ibv_wq_attr*) { return EOPNOTSUPP; }
  virtual int destroy_wq(ibv_wq*) { return EOPNOTSUPP; }
  virtual Result<ibv_rwq_ind_table*> create_rwq_ind_table(const ibv_rwq_ind_table_init_attr*) {
    return fail(EOPNOTSUPP);
  }
  virtual int destroy_rwq_ind_table(ibv_rwq_ind_table*) { return EOPNOTSUPP; }
  virtual Result<ibv_counters*> create_counters(const ibv_counters_init_attr*) { return fail(EOPNOTSUPP); }
  virtual int destroy_counters(ibv_counters*) { return EOPNOTSUPP; }
  virtual int attach_counters(ibv_counters*, const ibv_counter_attach_attr*, ibv_flow*) { return EOPNOTSUPP; }
  virtual int read_counters(ibv_counters*, uint64_t* /*values*/, uint32_t /*count*/, uint32_t /*flags*/) {
    return EOPNOTSUPP;
  }

  // ---- completion counters
  virtual int query_comp_cntr_caps(CompletionCounterCaps&) { return EOPNOTSUPP; }
  virtual Result<CompletionCounter*> create_comp_cntr(const CompletionCounterInitAttr&) {
    return fail(EOPNOTSUPP);
  }
  virtual int destroy_comp_cntr(CompletionCounter*) { return EOPNOTSUPP; }
  // Returns the counter's value, in completions or bytes; with `errors`, the counter's number of errors.
  // REQUIRES: create_comp_cntr() made the counter
  virtual std::atomic<uint64_t>& comp_cntr_value(CompletionCounter* counter, bool errors);
  virtual int attach_comp_cntr(ibv_qp*, CompletionCounter*, uint32_t /*requests*/) { return EOPNOTSUPP; }

  // ---- shared receive queues
  virtual Result<ibv_srq*> create_srq(ibv_srq_init_attr_ex*) { return fail(EOPNOTSUPP); }
  virtual int modify_srq(ibv_srq*, ibv_srq_attr*, int /*mask*/) { return EOPNOTSUPP; }
  virtual int query_srq(ibv_srq*, ibv_srq_attr*) { return EOPNOTSUPP; }
  virtual int post_srq_ops(ibv_srq*, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) {
    *bad_wr = wr;
    return EOPNOTSUPP;
  }
  virtual int get_srq_num(ibv_srq*, uint32_t*) { return EOPNOTSUPP; }
  virtual int destroy_srq(ibv_srq*) { return EOPNOTSUPP; }
  virtual Result<ibv_xrcd*> open_xrcd(ibv_xrcd_init_attr*) { return fail(EOPNOTSUPP); }
  virtual int close_xrcd(ibv_xrcd*) { return EOPNOTSUPP; }

  // ---- addresses
  virtual Result<ibv_ah*> create_ah(ibv_pd* pd, ibv_ah_attr* attr) = 0;
  virtual int destroy_ah(ibv_ah* ah) = 0;
  virtual int resolve_eth_l2_from_gid(ibv_ah_attr*, uint8_t /*mac*/[6], uint16_t* /*vlan*/) {
    return EOPNOTSUPP;
  }
  virtual int attach_mcast(ibv_qp*, const ibv_gid*, uint16_t /*lid*/) { return EOPNOTSUPP; }
  virtual int detach_mcast(ibv_qp*, const ibv_gid*, uint16_t /*lid*/) { return EOPNOTSUPP; }

 private:
  verbs_context abi_{};
  LiveObject live_;
};

class Provider {
 public:
  virtual ~Provider() = default;
  // Returns the current devices, in the order in which programs see them.
  virtual Result<std::vector<std::shared_ptr<Device>>> devices() = 0;
  struct Imported {
    std::shared_ptr<Device> device;
    std::unique_ptr<Context> context;
  };
  // Opens the device behind another context's cmd_fd, to share that context's objects. The new context owns
  // the descriptor. Errors: EBADF; EINVAL if the descriptor is not this provider's; ENODEV.
  virtual Result<Imported> import(int /*cmd_fd*/) { return fail(EOPNOTSUPP); }
};

}  // namespace verbena::provider
