// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adapter/objects/async_events.h"
#include "adapter/objects/command_file.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/objects.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/queue_pairs.h"
#include "base/own_fd.h"
#include "control/model/link.h"
#include "libraries/libibverbs/provider/provider.h"

namespace verbena::adapter {

// An opened device of the software adapter: makes the checks that the kernel would make, owns the objects and
// calls the engine. Each call is in the file of its kind of object, for example reg_mr() in
// memory_regions.cc. Thread-safe.
class SoftwareContext : public provider::Context, private engine::LinkListener {
 public:
  static Result<std::unique_ptr<provider::Context>> open(const control::Link& link, uint64_t guid);
  // Opens a context that shares the objects of the command file `file` (ibv_import_device(3)). On success the
  // context owns the descriptor `cmd_fd`; on failure the caller keeps it.
  static Result<std::unique_ptr<provider::Context>> import(const control::Link& link, uint64_t guid,
                                                           std::shared_ptr<CommandFile> file, int cmd_fd);
  ~SoftwareContext() override;

  int query_device(ibv_device_attr_ex* attr, size_t attr_size) override;
  int query_port(uint8_t port, ibv_port_attr* attr) override;
  int query_gid(uint8_t port, int index, ibv_gid* gid) override;
  int query_gid_entry(uint8_t port, uint32_t index, ibv_gid_entry* entry) override;
  int query_pkey(uint8_t port, int index, __be16* pkey) override;
  std::vector<ibv_gid_entry> gid_table() override;
  int query_rt_values(ibv_values_ex* values) override;
  void settle() override { device_->engine()->settle(); }
  bool search_route(const ibv_ah_attr& attr) override;

  Result<ibv_pd*> alloc_pd() override;
  int dealloc_pd(ibv_pd* pd) override;
  Result<ibv_pd*> alloc_parent_domain(ibv_parent_domain_init_attr* attr) override;
  Result<ibv_td*> alloc_td(ibv_td_init_attr* attr) override;
  int dealloc_td(ibv_td* td) override;
  Result<ibv_mr*> reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) override;
  int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) override;
  Result<ibv_mr*> reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                                int access) override;
  int dereg_mr(ibv_mr* mr) override;
  Result<ibv_mr*> alloc_null_mr(ibv_pd* pd) override;
  int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags,
                std::span<const ibv_sge> list) override;
  Result<ibv_mw*> alloc_mw(ibv_pd* pd, ibv_mw_type type) override;
  int dealloc_mw(ibv_mw* mw) override;
  Result<ibv_dm*> alloc_dm(ibv_alloc_dm_attr* attr) override;
  int free_dm(ibv_dm* dm) override;
  Result<UniqueFd> export_dm(ibv_dm* dm) override { return Dm::of(dm).memory->export_dma_buf(); }
  Result<provider::DmaHandle*> alloc_dmah(const provider::DmaHandleInitAttr& attr) override;
  int dealloc_dmah(provider::DmaHandle* handle) override;
  void use_dmah(ibv_mr* mr, provider::DmaHandle* handle) override {
    Mr::of(mr).registration->dma_handle = Dmah::of(handle).uses.add();
  }
  Result<ibv_mr*> reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) override;

  Result<ibv_pd*> import_pd(uint32_t handle) override;
  void unimport_pd(ibv_pd* pd) override { domains_.destroy(Pd::of(pd)); }
  Result<ibv_mr*> import_mr(ibv_pd* pd, uint32_t handle) override;
  void unimport_mr(ibv_mr* mr) override { regions_.destroy(Mr::of(mr)); }
  Result<ibv_dm*> import_dm(uint32_t handle) override;
  void unimport_dm(ibv_dm* dm) override { device_memories_.destroy(Dm::of(dm)); }

  Result<ibv_comp_channel*> create_comp_channel() override;
  int destroy_comp_channel(ibv_comp_channel* channel) override;
  Result<ibv_cq*> create_cq(int cqe, void* cq_context, ibv_comp_channel* channel, int comp_vector) override;
  Result<ibv_cq_ex*> create_cq_ex(ibv_cq_init_attr_ex* attr) override;
  int resize_cq(ibv_cq* cq, int cqe) override;
  int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) override;
  int destroy_cq(ibv_cq* cq) override;
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override;
  void ack_cq_events(ibv_cq* cq, unsigned count) override {
    Cq::of(cq).account.acknowledge(cq->comp_events_completed, count);
  }
  int get_async_event(ibv_async_event* event) override;
  void ack_async_event(ibv_async_event* event) override;

  Result<ibv_qp*> create_qp(ibv_qp_init_attr_ex* attr) override { return queue_pairs_.create(*attr); }
  Result<ibv_qp*> open_qp(ibv_qp_open_attr* attr) override { return queue_pairs_.open(*attr); }
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override {
    return concerning_qp(Qp::of(qp), queue_pairs_.modify(qp, *attr, mask));
  }
  int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) override {
    return concerning_qp(Qp::of(qp), queue_pairs_.query(qp, *attr, mask, *init_attr));
  }
  int destroy_qp(ibv_qp* qp) override {
    const int error = queue_pairs_.destroy(qp);
    return error == 0 ? 0 : concerning_qp(Qp::of(qp), error);
  }
  // Returns null for a QP that was not created for ibv_wr_* (ibv_create_qp_ex(3)).
  ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) override { return Qp::of(qp).extended ? &Qp::of(qp) : nullptr; }
  int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) override;
  int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) override;

  int modify_qp_rate_limit(ibv_qp* qp, const ibv_qp_rate_limit_attr* attr) override {
    return concerning_qp(Qp::of(qp), queue_pairs_.modify_rate_limit(qp, *attr));
  }
  Result<ibv_flow*> create_flow(ibv_qp* qp, const ibv_flow_attr* attr) override;
  int destroy_flow(ibv_flow* flow) override;
  Result<ibv_wq*> create_wq(ibv_wq_init_attr* attr) override;
  int modify_wq(ibv_wq* wq, const ibv_wq_attr* attr) override;
  int destroy_wq(ibv_wq* wq) override;
  Result<ibv_rwq_ind_table*> create_rwq_ind_table(const ibv_rwq_ind_table_init_attr* attr) override;
  int destroy_rwq_ind_table(ibv_rwq_ind_table* table) override;
  Result<ibv_counters*> create_counters(const ibv_counters_init_attr* attr) override;
  int destroy_counters(ibv_counters* counters) override;
  int attach_counters(ibv_counters* counters, const ibv_counter_attach_attr* attr, ibv_flow* flow) override;
  int read_counters(ibv_counters* counters, uint64_t* values, uint32_t count, uint32_t flags) override;

  int query_comp_cntr_caps(provider::CompletionCounterCaps& caps) override;
  Result<provider::CompletionCounter*> create_comp_cntr(
      const provider::CompletionCounterInitAttr& attr) override;
  int destroy_comp_cntr(provider::CompletionCounter* counter) override;
  std::atomic<uint64_t>& comp_cntr_value(provider::CompletionCounter* counter, bool errors) override {
    transport::CompletionCount& count = *CompletionCounter::of(counter).count;
    return errors ? count.failed : count.completed;
  }
  int attach_comp_cntr(ibv_qp* qp, provider::CompletionCounter* counter, uint32_t requests) override;

  Result<ibv_srq*> create_srq(ibv_srq_init_attr_ex* attr) override;
  int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) override;
  int query_srq(ibv_srq* srq, ibv_srq_attr* attr) override;
  int post_srq_ops(ibv_srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) override;
  int get_srq_num(ibv_srq* srq, uint32_t* number) override;
  int destroy_srq(ibv_srq* srq) override;
  Result<ibv_xrcd*> open_xrcd(ibv_xrcd_init_attr* attr) override;
  int close_xrcd(ibv_xrcd* xrcd) override;

  Result<ibv_ah*> create_ah(ibv_pd* pd, ibv_ah_attr* attr) override;
  int destroy_ah(ibv_ah* ah) override;
  int resolve_eth_l2_from_gid(ibv_ah_attr* attr, uint8_t mac[6], uint16_t* vlan) override;

 private:
  explicit SoftwareContext(std::unique_ptr<OpenDevice> device);
  static Result<std::unique_ptr<SoftwareContext>> make(const control::Link& link, uint64_t guid,
                                                       std::shared_ptr<CommandFile> file);

  // Posts events of the port, GID changes, and IBV_EVENT_DEVICE_FATAL when the link is deleted. After a
  // deletion, posted requests are flushed, and most calls that create or modify objects return EIO, as when
  // the kernel removes a device. Objects that exist can still be destroyed.
  void on_links(const std::vector<control::Link>& before, const std::vector<control::Link>& now) override;
  void on_device_gone();
  // Fills in the memory attributes of the device: limits, on-demand paging and the size of device memory.
  void fill_memory_attributes(ibv_device_attr_ex& attr) const;
  // Enters the registration into the key table and creates the application's ibv_mr for it. REQUIRES:
  // registration->region is filled in
  Result<ibv_mr*> enter_mr(std::shared_ptr<Registration> registration, ibv_pd* pd, void* addr);
  ibv_mr* add_mr(std::unique_ptr<Mr> mr, std::shared_ptr<Registration> registration, ibv_pd* pd, void* addr,
                 uint32_t handle);
  ibv_dm* add_dm(std::shared_ptr<DeviceMemory> memory, uint32_t handle);
  // Imports memory that another process has allocated in this context's command file. Returns ENOENT if no
  // memory in the file has this handle.
  Result<ibv_dm*> import_foreign_dm(uint32_t handle);
  Result<Cq*> make_cq(const ibv_cq_init_attr_ex& attr);
  // Lists up to three regions of this PD for an error message, as "MR with lkey 0x11, MR with lkey 0x12".
  std::string regions_of(const ibv_pd* pd);
  // Returns EBUSY, and records for the error message which objects use this one. `users` lists some of them;
  // it is empty if they are of kinds that are not searched.
  template <class Abi>
  static int say_busy(const Abi* object, const std::string& users) {
    return say_busy_object(provider::name_of(provider::kind_of(object)), object, users);
  }
  static int say_busy_object(const char* kind, const void* object, const std::string& users);

  const std::unique_ptr<OpenDevice> device_;
  OwnFd imported_fd_;  // set if the context was imported; else the command file owns cmd_fd

  // Objects that the application has not destroyed are destroyed with the context. C++ destroys the members
  // in reverse order, so an object is destroyed after the objects that use it. The destructor does not wait
  // for acknowledgements of events, because a program that closes a device no longer acknowledges them.
  ObjectTable<Td> threads_;
  ObjectTable<Pd> domains_{object_limits().pds};
  ObjectTable<Dm> device_memories_;
  ObjectTable<Dmah> dma_handles_;
  ObjectTable<Mr> regions_{object_limits().mrs};
  ObjectTable<Mw> windows_{object_limits().mws};
  ObjectTable<CompChannel> channels_;
  ObjectTable<Cq> completion_queues_{object_limits().cqs};
  ObjectTable<Ah> address_handles_{object_limits().ahs};
  ObjectTable<Xrcd> xrc_domains_;
  ObjectTable<Srq> shared_queues_{object_limits().srqs};
  ObjectTable<Counters> counters_;
  ObjectTable<CompletionCounter> completion_counters_{object_limits().comp_counters};
  ObjectTable<Wq> work_queues_{object_limits().wqs};
  ObjectTable<RwqIndTable> indirection_tables_{object_limits().rwq_tables};
  QueuePairs queue_pairs_;
  ObjectTable<Flow> flows_;
  AsyncEvents<kPortEvents.size()> port_events_;
};

}  // namespace verbena::adapter
