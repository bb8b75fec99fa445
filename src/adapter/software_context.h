// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "adapter/async_events.h"
#include "adapter/command_file.h"
#include "adapter/objects.h"
#include "adapter/raw_objects.h"
#include "base/intrusive_list.h"
#include "base/unique_fd.h"
#include "control/link.h"
#include "engine/engine.h"
#include "provider/provider.h"

namespace verbena::adapter {

// An opened device of the software adapter: checks what the application asks as the kernel would, makes its
// objects and tells the engine. Calls may come from any thread.
class SoftwareContext : public provider::Context, private engine::LinkListener {
 public:
  static Result<std::unique_ptr<provider::Context>> open(const control::Link& link, uint64_t guid);
  // One that shares the objects of a command file. Takes the descriptor if it succeeds.
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
  Result<ibv_mr*> reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) override;

  Result<ibv_pd*> import_pd(uint32_t handle) override;
  void unimport_pd(ibv_pd* pd) override;
  Result<ibv_mr*> import_mr(ibv_pd* pd, uint32_t handle) override;
  void unimport_mr(ibv_mr* mr) override;
  Result<ibv_dm*> import_dm(uint32_t handle) override;
  void unimport_dm(ibv_dm* dm) override;

  Result<ibv_comp_channel*> create_comp_channel() override;
  int destroy_comp_channel(ibv_comp_channel* channel) override;
  Result<ibv_cq*> create_cq(int cqe, void* cq_context, ibv_comp_channel* channel, int comp_vector) override;
  Result<ibv_cq_ex*> create_cq_ex(ibv_cq_init_attr_ex* attr) override;
  int resize_cq(ibv_cq* cq, int cqe) override;
  int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) override;
  int destroy_cq(ibv_cq* cq) override;
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override;
  void ack_cq_events(ibv_cq* cq, unsigned count) override;
  int get_async_event(ibv_async_event* event) override;
  void ack_async_event(ibv_async_event* event) override;

  Result<ibv_qp*> create_qp(ibv_qp_init_attr_ex* attr) override;
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override;
  int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) override;
  int destroy_qp(ibv_qp* qp) override;
  ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) override;

  int modify_qp_rate_limit(ibv_qp* qp, const ibv_qp_rate_limit_attr* attr) override;
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

  Result<ibv_qp*> open_qp(ibv_qp_open_attr* attr) override;

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

  int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) override;
  int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) override;

  queues::EventChannel& events() { return *events_; }
  engine::Shard& shard() { return engine_->shard(); }

 private:
  template <class Object>
  using Objects = IntrusiveList<Object, &Object::owned>;

  SoftwareContext(std::shared_ptr<engine::Engine> engine, std::unique_ptr<queues::EventChannel> events,
                  std::shared_ptr<CommandFile> command_file, uint32_t device_index, uint64_t guid);
  static Result<std::unique_ptr<SoftwareContext>> make(const control::Link& link, uint64_t guid,
                                                       std::shared_ptr<CommandFile> file);

  void on_links(const std::vector<control::Link>& before, const std::vector<control::Link>& now) override;

  void disappear();
  bool is_gone() const { return gone_.load(std::memory_order_relaxed); }

  // The link as it is now; nullptr when it is gone.
  std::shared_ptr<const control::Link> link() const;
  // Whether packets can come and go.
  bool is_up(const control::Link& link) const { return link.up && engine_->no_wire_reason().empty(); }
  // The way to an address vector's destination. EINVAL when it names no GID of ours or no destination.
  Result<roce::Path> resolve(const ibv_ah_attr& attr) const;

  Result<ibv_qp*> create_raw_qp(ibv_qp_init_attr_ex* attr);
  void uproot(Flow& flow);

  int check_attributes(const Qp& qp, const ibv_qp_attr& attr, int mask) const;
  Result<void> apply(Qp& qp, const ibv_qp_attr& attr, int mask);

  Result<Cq*> make_cq(const ibv_cq_init_attr_ex& attr);

  uint32_t next_handle() { return command_file_->next_handle(); }
  ibv_pd* adopt(std::unique_ptr<Pd> pd, uint32_t handle);
  ibv_mr* adopt(std::shared_ptr<Registration> registration, ibv_pd* pd, void* addr, uint32_t handle);
  ibv_dm* adopt(std::shared_ptr<DeviceMemory> memory, uint32_t handle);
  // The object of a list with this handle, or what `state` takes of it; nothing when there is none.
  template <class List, class State>
  auto find_by_handle(List& list, uint32_t handle, State state) -> decltype(state(*list.begin()));
  // What the application was not told of yet it will not be told.
  void withdraw_events(Cq& cq);
  void withdraw_events(Qp& qp);
  void leave(Qp& qp, const MulticastBinding& binding);
  void withdraw_events(Wq& wq);
  // Takes what its CQs hold of the QP. REQUIRES: the shard's lock
  void forget_completions(Qp& qp);
  // No packet reaches the QP any more, nothing of it is left in its CQs.
  void retire(Qp& qp);
  void retire(Wq& wq);
  // Its key opens nothing any more, and is nobody's.
  void retire(Mw& mw);
  void fill_memory_attributes(ibv_device_attr_ex& attr) const;
  void retire(Srq& srq);

  const std::shared_ptr<engine::Engine> engine_;
  const std::unique_ptr<queues::EventChannel> events_;  // asynchronous ones
  const std::shared_ptr<CommandFile> command_file_;
  UniqueFd imported_fd_;  // the context's cmd_fd, unless it is the command file's own
  const uint32_t device_index_;
  const uint64_t guid_;
  AsyncEvents<kPortEvents.size()> port_events_;
  std::atomic<bool> gone_{false};  // with its link

  // All there is, to be destroyed with us; and the counts in channels of the CQs that use them.
  std::mutex objects_mutex_;
  Objects<Pd> pds_;
  Objects<Td> tds_;
  Objects<Mr> mrs_;
  Objects<Mw> mws_;
  Objects<Dm> dms_;
  Objects<CompChannel> channels_;
  Objects<Cq> cqs_;
  Objects<Qp> qps_;
  Objects<Srq> srqs_;
  Objects<Xrcd> xrcds_;
  Objects<Ah> ahs_;
  Objects<Flow> flows_;
  Objects<Wq> wqs_;
  Objects<RwqIndTable> rwq_tables_;
  Objects<Counters> counters_;
  int cq_count_ = 0;
};

// The calls that verbs.h makes directly through ibv_context::ops; data path, see data_path.cc.
void fill_data_path(ibv_context_ops& ops);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);

// The rights that a registration may ask for: 0, or the errno value that says why not.
int check_access(unsigned access, unsigned known);

// The path MTU that a netdev of this MTU can carry (as the kernel's rxe counts: IP, UDP and all headers off),
// as an enum value.
ibv_mtu path_mtu_of(uint32_t netdev_mtu);
// Bytes of an enum ibv_mtu, 0 for none such.
uint32_t mtu_bytes(ibv_mtu mtu);

}  // namespace verbena::adapter
