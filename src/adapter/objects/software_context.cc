// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/software_context.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "adapter/memory/guarded.h"
#include "adapter/objects/async_events.h"
#include "adapter/objects/data_path.h"
#include "adapter/objects/device_queries.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/multicast.h"
#include "adapter/objects/raw_queue_pairs.h"
#include "base/failed_call.h"

namespace verbena::adapter {

using control::Link;

namespace {

// Returns EBUSY, and records for the error message which objects use this one. `users`: some of them; empty:
// they are of kinds that are not searched.
template <class Abi>
int say_busy(const Abi* object, const std::string& users) {
  concerning(EBUSY, "{} {}", provider::name_of(provider::kind_of(object)), verbena::ptr(object));
  return users.empty() ? EBUSY : because(EBUSY, "{} use it: destroy what uses it first", users);
}

}  // namespace

Result<std::unique_ptr<provider::Context>> SoftwareContext::open(const Link& link, uint64_t guid) {
  auto file = CommandFile::create(link.name);
  if (!file) return tl::unexpected(file.error());
  return make(link, guid, std::move(*file));
}

Result<std::unique_ptr<provider::Context>> SoftwareContext::import(const Link& link, uint64_t guid,
                                                                   std::shared_ptr<CommandFile> file,
                                                                   int cmd_fd) {
  auto context = make(link, guid, std::move(file));
  if (!context) return tl::unexpected(context.error());
  (*context)->imported_fd_ = OwnFd::with_known_number(UniqueFd(cmd_fd));
  (*context)->abi().context.cmd_fd = cmd_fd;
  return std::unique_ptr<provider::Context>(std::move(*context));
}

Result<std::unique_ptr<SoftwareContext>> SoftwareContext::make(const Link& link, uint64_t guid,
                                                               std::shared_ptr<CommandFile> file) {
  auto device = OpenDevice::open(link.device_index, guid, std::move(file));
  if (!device) return tl::unexpected(device.error());
  memory::install_fault_guard();
  std::unique_ptr<SoftwareContext> context(new SoftwareContext(std::move(*device)));
  context->device_->command_file().join(*context);
  return context;
}

SoftwareContext::SoftwareContext(std::unique_ptr<OpenDevice> device)
    : device_(std::move(device)),
      threads_(*device_),
      domains_(*device_),
      device_memories_(*device_),
      dma_handles_(*device_),
      regions_(*device_),
      windows_(*device_),
      channels_(*device_),
      completion_queues_(*device_),
      address_handles_(*device_),
      xrc_domains_(*device_),
      shared_queues_(*device_),
      counters_(*device_),
      completion_counters_(*device_),
      work_queues_(*device_),
      indirection_tables_(*device_),
      queue_pairs_(*device_),
      flows_(*device_),
      link_watch_(*device_, [this] { queue_pairs_.fail_all(); }) {
  ibv_context& abi_context = abi().context;
  device_->set_context(abi_context);
  device_->show_context();
  abi_context.async_fd = device_->events().fd();
  // Nothing is ever signalled by it, but programs poll, dup and keep it as they would /dev/infiniband's.
  abi_context.cmd_fd = device_->command_file().device_memory()->fd();
  abi_context.num_comp_vectors = kCompletionVectors;
  fill_data_path(abi_context.ops);
}

SoftwareContext::~SoftwareContext() {
  device_->command_file().leave(*this);
}

// ---- queries

int SoftwareContext::query_device(ibv_device_attr_ex* attr, size_t attr_size) {
  if (device_->is_gone()) return EIO;
  ibv_device_attr_ex all = DeviceQueries(*device_).device();
  regions_.fill_attributes(all);
  fill_raw_packet_capabilities(all);
  std::memcpy(attr, &all, std::min(attr_size, sizeof all));
  return 0;
}

int SoftwareContext::query_port(uint8_t port, ibv_port_attr* attr) {
  return DeviceQueries(*device_).port(port, *attr);
}

int SoftwareContext::query_gid(uint8_t port, int index, ibv_gid* gid) {
  return DeviceQueries(*device_).gid(port, index, *gid);
}

int SoftwareContext::query_gid_entry(uint8_t port, uint32_t index, ibv_gid_entry* entry) {
  return DeviceQueries(*device_).gid_entry(port, index, *entry);
}

int SoftwareContext::query_pkey(uint8_t port, int index, __be16* pkey) {
  return DeviceQueries(*device_).pkey(port, index, *pkey);
}

std::vector<ibv_gid_entry> SoftwareContext::gid_table() {
  return DeviceQueries(*device_).gid_table();
}

int SoftwareContext::query_rt_values(ibv_values_ex* values) {
  return DeviceQueries::clock(*values);
}

void SoftwareContext::settle() {
  device_->engine()->settle();
}

// ---- domains and memory

Result<ibv_pd*> SoftwareContext::alloc_pd() {
  return domains_.alloc();
}

int SoftwareContext::dealloc_pd(ibv_pd* pd) {
  const int code = domains_.dealloc(pd);
  if (code != EBUSY || log_level() < LogLevel::kError) return code;
  const std::string regions = regions_.regions_of(pd), qps = queue_pairs_.users_of(&Pd::of(pd));
  return say_busy(pd, regions + (regions.empty() || qps.empty() ? "" : ", ") + qps);
}

Result<ibv_pd*> SoftwareContext::alloc_parent_domain(ibv_parent_domain_init_attr* attr) {
  return domains_.alloc_parent(*attr);
}

Result<ibv_td*> SoftwareContext::alloc_td(ibv_td_init_attr* attr) {
  return threads_.alloc(*attr);
}

int SoftwareContext::dealloc_td(ibv_td* td) {
  return threads_.dealloc(td);
}

Result<ibv_mr*> SoftwareContext::reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                        unsigned access) {
  return regions_.reg(pd, addr, length, iova, access);
}

int SoftwareContext::rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) {
  return regions_.rereg(mr, flags, pd, addr, length, access);
}

Result<ibv_mr*> SoftwareContext::reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                               int fd, int access) {
  return regions_.reg_dmabuf(pd, offset, length, iova, fd, access);
}

int SoftwareContext::dereg_mr(ibv_mr* mr) {
  return regions_.dereg(mr);
}

Result<ibv_mr*> SoftwareContext::alloc_null_mr(ibv_pd* pd) {
  return regions_.alloc_null(pd);
}

int SoftwareContext::advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags,
                               std::span<const ibv_sge> list) {
  return regions_.advise(pd, advice, flags, list);
}

Result<ibv_mw*> SoftwareContext::alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  return windows_.alloc(pd, type);
}

int SoftwareContext::dealloc_mw(ibv_mw* mw) {
  return windows_.dealloc(mw);
}

Result<ibv_dm*> SoftwareContext::alloc_dm(ibv_alloc_dm_attr* attr) {
  return device_memories_.alloc(*attr);
}

int SoftwareContext::free_dm(ibv_dm* dm) {
  return device_memories_.free(dm);
}

Result<UniqueFd> SoftwareContext::export_dm(ibv_dm* dm) {
  return Dm::of(dm).memory->export_dma_buf();
}

Result<provider::DmaHandle*> SoftwareContext::alloc_dmah(const provider::DmaHandleInitAttr& attr) {
  return dma_handles_.alloc(attr);
}

int SoftwareContext::dealloc_dmah(provider::DmaHandle* handle) {
  return dma_handles_.dealloc(handle);
}

void SoftwareContext::use_dmah(ibv_mr* mr, provider::DmaHandle* handle) {
  Mr::of(mr).registration->dma_handle = Dmah::of(handle).uses.add();
}

int SoftwareContext::query_comp_cntr_caps(provider::CompletionCounterCaps& caps) {
  caps = CompletionCounters::caps();
  return 0;
}

Result<provider::CompletionCounter*> SoftwareContext::create_comp_cntr(
    const provider::CompletionCounterInitAttr& attr) {
  return completion_counters_.create(attr);
}

int SoftwareContext::destroy_comp_cntr(provider::CompletionCounter* counter) {
  return completion_counters_.destroy(counter);
}

std::atomic<uint64_t>& SoftwareContext::comp_cntr_value(provider::CompletionCounter* counter, bool errors) {
  transport::CompletionCount& count = *CompletionCounter::of(counter).count;
  return errors ? count.failed : count.completed;
}

int SoftwareContext::attach_comp_cntr(ibv_qp* qp, provider::CompletionCounter* counter, uint32_t requests) {
  return completion_counters_.attach(qp, counter, requests);
}

Result<ibv_mr*> SoftwareContext::reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length,
                                           unsigned access) {
  return regions_.reg_device_memory(pd, dm, offset, length, access);
}

// The imports are in imports.cc.

void SoftwareContext::unimport_pd(ibv_pd* pd) {
  domains_.unimport(pd);
}

void SoftwareContext::unimport_mr(ibv_mr* mr) {
  regions_.unimport(mr);
}

void SoftwareContext::unimport_dm(ibv_dm* dm) {
  device_memories_.unimport(dm);
}

// ---- completion

Result<ibv_comp_channel*> SoftwareContext::create_comp_channel() {
  return channels_.create();
}

int SoftwareContext::destroy_comp_channel(ibv_comp_channel* channel) {
  return channels_.destroy(channel);
}

Result<ibv_cq*> SoftwareContext::create_cq(int cqe, void* cq_context, ibv_comp_channel* channel,
                                           int comp_vector) {
  return completion_queues_.create(cqe, cq_context, channel, comp_vector);
}

Result<ibv_cq_ex*> SoftwareContext::create_cq_ex(ibv_cq_init_attr_ex* attr) {
  return completion_queues_.create_ex(*attr);
}

int SoftwareContext::resize_cq(ibv_cq* cq, int cqe) {
  return completion_queues_.resize(cq, cqe);
}

int SoftwareContext::modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
  return completion_queues_.modify(cq, *attr);
}

int SoftwareContext::destroy_cq(ibv_cq* cq) {
  const int code = completion_queues_.destroy(cq);
  if (code != EBUSY || log_level() < LogLevel::kError) return code;
  return say_busy(cq, queue_pairs_.users_of(&Cq::of(cq)));
}

int SoftwareContext::get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  return CompletionQueues::get_event(channel, cq, cq_context);
}

void SoftwareContext::ack_cq_events(ibv_cq* cq, unsigned count) {
  CompletionQueues::acknowledge_events(cq, count);
}

int SoftwareContext::get_async_event(ibv_async_event* event) {
  return adapter::get_async_event(device_->events(), event);
}

void SoftwareContext::ack_async_event(ibv_async_event* event) {
  acknowledge_async_event(*event);
}

// ---- queue pairs

Result<ibv_qp*> SoftwareContext::create_qp(ibv_qp_init_attr_ex* attr) {
  return queue_pairs_.create(*attr);
}

Result<ibv_qp*> SoftwareContext::open_qp(ibv_qp_open_attr* attr) {
  return queue_pairs_.open(*attr);
}

int SoftwareContext::modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return concerning_qp(Qp::of(qp), queue_pairs_.modify(qp, *attr, mask));
}

int SoftwareContext::query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
  return concerning_qp(Qp::of(qp), queue_pairs_.query(qp, *attr, mask, *init_attr));
}

int SoftwareContext::destroy_qp(ibv_qp* qp) {
  const int error = queue_pairs_.destroy(qp);
  return error == 0 ? 0 : concerning_qp(Qp::of(qp), error);
}

// Null for a QP that was not created for ibv_wr_* (ibv_create_qp_ex(3)).
ibv_qp_ex* SoftwareContext::qp_to_qp_ex(ibv_qp* qp) {
  return Qp::of(qp).extended ? &Qp::of(qp) : nullptr;
}

int SoftwareContext::attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return concerning_qp(Qp::of(qp), attach_to_group(Qp::of(qp), *gid, lid));
}

int SoftwareContext::detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return concerning_qp(Qp::of(qp), detach_from_group(Qp::of(qp), *gid, lid));
}

// ---- raw packets

int SoftwareContext::modify_qp_rate_limit(ibv_qp* qp, const ibv_qp_rate_limit_attr* attr) {
  return concerning_qp(Qp::of(qp), queue_pairs_.modify_rate_limit(qp, *attr));
}

Result<ibv_flow*> SoftwareContext::create_flow(ibv_qp* qp, const ibv_flow_attr* attr) {
  return flows_.create(qp, *attr);
}

int SoftwareContext::destroy_flow(ibv_flow* flow) {
  return flows_.destroy(flow);
}

Result<ibv_wq*> SoftwareContext::create_wq(ibv_wq_init_attr* attr) {
  return work_queues_.create(*attr);
}

int SoftwareContext::modify_wq(ibv_wq* wq, const ibv_wq_attr* attr) {
  return work_queues_.modify(wq, *attr);
}

int SoftwareContext::destroy_wq(ibv_wq* wq) {
  return work_queues_.destroy(wq);
}

Result<ibv_rwq_ind_table*> SoftwareContext::create_rwq_ind_table(const ibv_rwq_ind_table_init_attr* attr) {
  return indirection_tables_.create(*attr);
}

int SoftwareContext::destroy_rwq_ind_table(ibv_rwq_ind_table* table) {
  return indirection_tables_.destroy(table);
}

Result<ibv_counters*> SoftwareContext::create_counters(const ibv_counters_init_attr* attr) {
  return counters_.create(*attr);
}

int SoftwareContext::destroy_counters(ibv_counters* counters) {
  return counters_.destroy(counters);
}

int SoftwareContext::attach_counters(ibv_counters* counters, const ibv_counter_attach_attr* attr,
                                     ibv_flow* flow) {
  return counters_.attach(counters, *attr, flow);
}

int SoftwareContext::read_counters(ibv_counters* counters, uint64_t* values, uint32_t count, uint32_t flags) {
  return counters_.read(counters, values, count, flags);
}

// ---- shared receive queues, XRC domains, addresses

Result<ibv_srq*> SoftwareContext::create_srq(ibv_srq_init_attr_ex* attr) {
  return shared_queues_.create(*attr);
}

int SoftwareContext::modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return shared_queues_.modify(srq, *attr, mask);
}

int SoftwareContext::query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return shared_queues_.query(srq, *attr);
}

int SoftwareContext::post_srq_ops(ibv_srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) {
  return shared_queues_.post_operations(srq, wr, bad_wr);
}

int SoftwareContext::get_srq_num(ibv_srq* srq, uint32_t* number) {
  return shared_queues_.number(srq, *number);
}

int SoftwareContext::destroy_srq(ibv_srq* srq) {
  const int code = shared_queues_.destroy(srq);
  if (code != EBUSY || log_level() < LogLevel::kError) return code;
  return say_busy(srq, queue_pairs_.users_of(&Srq::of(srq)));
}

Result<ibv_xrcd*> SoftwareContext::open_xrcd(ibv_xrcd_init_attr* attr) {
  return xrc_domains_.open(*attr);
}

int SoftwareContext::close_xrcd(ibv_xrcd* xrcd) {
  return xrc_domains_.close(xrcd);
}

Result<ibv_ah*> SoftwareContext::create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return address_handles_.create(pd, *attr);
}

int SoftwareContext::destroy_ah(ibv_ah* ah) {
  return address_handles_.destroy(ah);
}

int SoftwareContext::resolve_eth_l2_from_gid(ibv_ah_attr* attr, uint8_t mac[6], uint16_t* vlan) {
  return address_handles_.resolve_ethernet(*attr, mac, vlan);
}

}  // namespace verbena::adapter
