// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibverbs/provider/provider.h"

#include <cerrno>
#include <cstddef>
#include <cstdlib>

namespace verbena::provider {

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

Result<ibv_pd*> Context::alloc_parent_domain(ibv_parent_domain_init_attr*) {
  return fail(EOPNOTSUPP);
}

Result<ibv_td*> Context::alloc_td(ibv_td_init_attr*) {
  return fail(EOPNOTSUPP);
}

int Context::dealloc_td(ibv_td*) {
  return EOPNOTSUPP;
}

int Context::rereg_mr(ibv_mr*, int, ibv_pd*, void*, size_t, int) {
  return EOPNOTSUPP;
}

Result<ibv_mr*> Context::reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) {
  return fail(EOPNOTSUPP);
}

Result<ibv_mr*> Context::alloc_null_mr(ibv_pd*) {
  return fail(EOPNOTSUPP);
}

int Context::advise_mr(ibv_pd*, ibv_advise_mr_advice, uint32_t, std::span<const ibv_sge>) {
  return EOPNOTSUPP;
}

Result<ibv_mw*> Context::alloc_mw(ibv_pd*, ibv_mw_type) {
  return fail(EOPNOTSUPP);
}

int Context::dealloc_mw(ibv_mw*) {
  return EOPNOTSUPP;
}

Result<ibv_dm*> Context::alloc_dm(ibv_alloc_dm_attr*) {
  return fail(EOPNOTSUPP);
}

int Context::free_dm(ibv_dm*) {
  return EOPNOTSUPP;
}

Result<ibv_mr*> Context::reg_dm_mr(ibv_pd*, ibv_dm*, uint64_t, size_t, unsigned) {
  return fail(EOPNOTSUPP);
}

Result<UniqueFd> Context::export_dm(ibv_dm*) {
  return fail(EOPNOTSUPP);
}

Result<DmaHandle*> Context::alloc_dmah(const DmaHandleInitAttr&) {
  return fail(EOPNOTSUPP);
}

int Context::dealloc_dmah(DmaHandle*) {
  return EOPNOTSUPP;
}

void Context::use_dmah(ibv_mr*, DmaHandle*) {}

int Context::query_comp_cntr_caps(CompletionCounterCaps&) {
  return EOPNOTSUPP;
}

Result<CompletionCounter*> Context::create_comp_cntr(const CompletionCounterInitAttr&) {
  return fail(EOPNOTSUPP);
}

int Context::destroy_comp_cntr(CompletionCounter*) {
  return EOPNOTSUPP;
}

std::atomic<uint64_t>& Context::comp_cntr_value(CompletionCounter*, bool) {
  std::abort();  // unreachable: no provider without counters created one
}

int Context::attach_comp_cntr(ibv_qp*, CompletionCounter*, uint32_t) {
  return EOPNOTSUPP;
}

Result<ibv_pd*> Context::import_pd(uint32_t) {
  return fail(EOPNOTSUPP);
}

void Context::unimport_pd(ibv_pd*) {}

Result<ibv_mr*> Context::import_mr(ibv_pd*, uint32_t) {
  return fail(EOPNOTSUPP);
}

void Context::unimport_mr(ibv_mr*) {}

Result<ibv_dm*> Context::import_dm(uint32_t) {
  return fail(EOPNOTSUPP);
}

void Context::unimport_dm(ibv_dm*) {}

Result<Provider::Imported> Provider::import(int) {
  return fail(EOPNOTSUPP);
}

int Context::query_rt_values(ibv_values_ex*) {
  return EOPNOTSUPP;
}

Result<ibv_cq_ex*> Context::create_cq_ex(ibv_cq_init_attr_ex*) {
  return fail(EOPNOTSUPP);
}

int Context::modify_cq(ibv_cq*, ibv_modify_cq_attr*) {
  return EOPNOTSUPP;
}

ibv_qp_ex* Context::qp_to_qp_ex(ibv_qp*) {
  return nullptr;
}

int Context::modify_qp_rate_limit(ibv_qp*, const ibv_qp_rate_limit_attr*) {
  return EOPNOTSUPP;
}

Result<ibv_flow*> Context::create_flow(ibv_qp*, const ibv_flow_attr*) {
  return fail(EOPNOTSUPP);
}

int Context::destroy_flow(ibv_flow*) {
  return EOPNOTSUPP;
}

Result<ibv_wq*> Context::create_wq(ibv_wq_init_attr*) {
  return fail(EOPNOTSUPP);
}

int Context::modify_wq(ibv_wq*, const ibv_wq_attr*) {
  return EOPNOTSUPP;
}

int Context::destroy_wq(ibv_wq*) {
  return EOPNOTSUPP;
}

Result<ibv_rwq_ind_table*> Context::create_rwq_ind_table(const ibv_rwq_ind_table_init_attr*) {
  return fail(EOPNOTSUPP);
}

int Context::destroy_rwq_ind_table(ibv_rwq_ind_table*) {
  return EOPNOTSUPP;
}

Result<ibv_counters*> Context::create_counters(const ibv_counters_init_attr*) {
  return fail(EOPNOTSUPP);
}

int Context::destroy_counters(ibv_counters*) {
  return EOPNOTSUPP;
}

int Context::attach_counters(ibv_counters*, const ibv_counter_attach_attr*, ibv_flow*) {
  return EOPNOTSUPP;
}

int Context::read_counters(ibv_counters*, uint64_t*, uint32_t, uint32_t) {
  return EOPNOTSUPP;
}

Result<ibv_srq*> Context::create_srq(ibv_srq_init_attr_ex*) {
  return fail(EOPNOTSUPP);
}

int Context::modify_srq(ibv_srq*, ibv_srq_attr*, int) {
  return EOPNOTSUPP;
}

int Context::query_srq(ibv_srq*, ibv_srq_attr*) {
  return EOPNOTSUPP;
}

int Context::post_srq_ops(ibv_srq*, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) {
  *bad_wr = wr;
  return EOPNOTSUPP;
}

int Context::get_srq_num(ibv_srq*, uint32_t*) {
  return EOPNOTSUPP;
}

int Context::destroy_srq(ibv_srq*) {
  return EOPNOTSUPP;
}

Result<ibv_xrcd*> Context::open_xrcd(ibv_xrcd_init_attr*) {
  return fail(EOPNOTSUPP);
}

int Context::close_xrcd(ibv_xrcd*) {
  return EOPNOTSUPP;
}

Result<ibv_qp*> Context::open_qp(ibv_qp_open_attr*) {
  return fail(EOPNOTSUPP);
}

int Context::resolve_eth_l2_from_gid(ibv_ah_attr*, uint8_t[6], uint16_t*) {
  return EOPNOTSUPP;
}

int Context::attach_mcast(ibv_qp*, const ibv_gid*, uint16_t) {
  return EOPNOTSUPP;
}

int Context::detach_mcast(ibv_qp*, const ibv_gid*, uint16_t) {
  return EOPNOTSUPP;
}

}  // namespace verbena::provider
