// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibverbs/abi.h"

#undef ibv_query_port

namespace verbena::verbs {
namespace {

int refuse_bind_mw(ibv_qp*, ibv_mw*, ibv_mw_bind*) {
  return EOPNOTSUPP;
}

// Negative, because a positive result would be a number of completions.
int refuse_poll_cq(ibv_cq*, int, ibv_wc*) {
  return -EOPNOTSUPP;
}

int refuse_req_notify_cq(ibv_cq*, int) {
  return EOPNOTSUPP;
}

template <class Object, class Wr>
int refuse_post(Object*, Wr* wr, Wr** bad_wr) {
  *bad_wr = wr;
  return EOPNOTSUPP;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t attr_size) {
  return call(context, [&](auto& provider) {
    if (input != nullptr && input->comp_mask != 0)
      return because(EINVAL, "comp_mask {:#x} of the input is not 0", input->comp_mask);
    return query_device(provider, attr, attr_size);
  });
}

int query_port_of_any_size(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t attr_size) {
  return call(
      context, [&](auto& provider) { return query_port(provider, port, attr, attr_size); }, "ibv_query_port");
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  return call(context, [&](auto& provider) { return provider.create_cq_ex(attr); });
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
  return call(cq, [&](auto& provider) { return provider.modify_cq(cq, attr); });
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) {
  return call(
      context, [&](auto& provider) { return provider.query_rt_values(values); }, "ibv_query_rt_values_ex");
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  return call(context, [&](auto& provider) { return create_qp(provider, *attr); });
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  return call(context, [&](auto& provider) { return provider.create_srq(attr); });
}

int post_srq_ops(ibv_srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) {
  return call(srq, [&](auto& provider) { return provider.post_srq_ops(srq, wr, bad_wr); });
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  return call(context, [&](auto& provider) { return provider.alloc_parent_domain(attr); });
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  return call(context, [&](auto& provider) { return provider.alloc_td(attr); });
}

int dealloc_td(ibv_td* td) {
  return destroy(td, [&](auto& provider) { return provider.dealloc_td(td); });
}

int get_srq_num(ibv_srq* srq, uint32_t* number) {
  return call(srq, [&](auto& provider) { return provider.get_srq_num(srq, number); });
}

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
  return call(context, [&](auto& provider) { return provider.open_xrcd(attr); });
}

int close_xrcd(ibv_xrcd* xrcd) {
  return destroy(xrcd, [&](auto& provider) { return provider.close_xrcd(xrcd); });
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
  return call(context, [&](auto& provider) { return provider.open_qp(attr); });
}

// ---- memory windows, device memory, null regions, advice

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  return call(pd, [&](auto& provider) { return provider.alloc_mw(pd, type); });
}

int dealloc_mw(ibv_mw* mw) {
  return destroy(mw, [&](auto& provider) { return provider.dealloc_mw(mw); });
}

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  return call(context, {"attr", attr}, [&](auto& provider) { return provider.alloc_dm(attr); });
}

int free_dm(ibv_dm* dm) {
  return destroy(dm, [&](auto& provider) { return provider.free_dm(dm); });
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) {
  return call(dm, [&](auto& provider) -> Result<ibv_mr*> {
    if (owner(pd) == nullptr) return fail(EINVAL);
    if (owner(pd) != &provider) return fail(because(EINVAL, "dm and pd are of different ibv_contexts"));
    return provider.reg_dm_mr(pd, dm, offset, length, access);
  });
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
  return call(pd, [&](auto& provider) { return provider.alloc_null_mr(pd); });
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list, uint32_t count) {
  return call(pd, {"sg_list", list}, [&](auto& provider) {
    return provider.advise_mr(pd, advice, flags, {list, count});
  });
}

// ---- flow rules, work queues and counters

int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) {
  return call(qp, {"attr", attr}, [&](auto& provider) { return provider.modify_qp_rate_limit(qp, attr); });
}

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr) {
  return call(qp, {"attr", attr}, [&](auto& provider) { return provider.create_flow(qp, attr); });
}

int destroy_flow(ibv_flow* flow) {
  return destroy(flow, [&](auto& provider) { return provider.destroy_flow(flow); });
}

ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr) {
  return call(context, {"attr", attr}, [&](auto& provider) { return provider.create_wq(attr); });
}

int modify_wq(ibv_wq* wq, ibv_wq_attr* attr) {
  return call(wq, {"attr", attr}, [&](auto& provider) { return provider.modify_wq(wq, attr); });
}

int destroy_wq(ibv_wq* wq) {
  return destroy(wq, [&](auto& provider) { return provider.destroy_wq(wq); });
}

ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* context, ibv_rwq_ind_table_init_attr* attr) {
  return call(context, {"attr", attr}, [&](auto& provider) { return provider.create_rwq_ind_table(attr); });
}

int destroy_rwq_ind_table(ibv_rwq_ind_table* table) {
  return destroy(table, [&](auto& provider) { return provider.destroy_rwq_ind_table(table); });
}

ibv_counters* create_counters(ibv_context* context, ibv_counters_init_attr* attr) {
  return call(context, {"attr", attr}, [&](auto& provider) { return provider.create_counters(attr); });
}

int destroy_counters(ibv_counters* counters) {
  return destroy(counters, [&](auto& provider) { return provider.destroy_counters(counters); });
}

int attach_counters(ibv_counters* counters, ibv_counter_attach_attr* attr, ibv_flow* flow) {
  return call(counters, {"attr", attr},
              [&](auto& provider) { return provider.attach_counters(counters, attr, flow); });
}

int read_counters(ibv_counters* counters, uint64_t* values, uint32_t count, uint32_t flags) {
  return call(counters,
              [&](auto& provider) { return provider.read_counters(counters, values, count, flags); });
}

template <class Operation>
void fill(Operation& operation, std::type_identity_t<Operation> with) {
  if (operation == nullptr) operation = with;
}

}  // namespace

void fill_operations(verbs_context& abi) {
  ibv_context_ops& ops = abi.context.ops;
  fill(ops.bind_mw, refuse_bind_mw);
  fill(ops.poll_cq, refuse_poll_cq);
  fill(ops.req_notify_cq, refuse_req_notify_cq);
  fill(ops.post_srq_recv, refuse_post);
  fill(ops.post_send, refuse_post);
  fill(ops.post_recv, refuse_post);
  ops._compat_query_device = ibv_query_device;
  ops._compat_query_port = ibv_query_port;

  fill(abi.query_device_ex, query_device_ex);
  fill(abi.query_port, query_port_of_any_size);
  fill(abi.query_rt_values, query_rt_values);
  fill(abi.create_cq_ex, create_cq_ex);
  fill(abi.modify_cq, modify_cq);
  fill(abi.create_qp_ex, create_qp_ex);
  fill(abi.create_srq_ex, create_srq_ex);
  fill(abi.post_srq_ops, post_srq_ops);
  fill(abi.alloc_parent_domain, alloc_parent_domain);
  fill(abi.alloc_td, alloc_td);
  fill(abi.dealloc_td, dealloc_td);
  fill(abi.get_srq_num, get_srq_num);
  fill(abi.open_xrcd, open_xrcd);
  fill(abi.close_xrcd, close_xrcd);
  fill(abi.open_qp, open_qp);

  abi.context.ops.alloc_mw = alloc_mw;
  abi.context.ops.dealloc_mw = dealloc_mw;
  abi.alloc_dm = alloc_dm;
  abi.free_dm = free_dm;
  abi.reg_dm_mr = reg_dm_mr;
  abi.alloc_null_mr = alloc_null_mr;
  abi.advise_mr = advise_mr;

  abi.modify_qp_rate_limit = modify_qp_rate_limit;
  abi.ibv_create_flow = create_flow;
  abi.ibv_destroy_flow = destroy_flow;
  abi.create_wq = create_wq;
  abi.modify_wq = modify_wq;
  abi.destroy_wq = destroy_wq;
  abi.create_rwq_ind_table = create_rwq_ind_table;
  abi.destroy_rwq_ind_table = destroy_rwq_ind_table;
  abi.create_counters = create_counters;
  abi.destroy_counters = destroy_counters;
  abi.attach_counters_point_flow = attach_counters;
  abi.read_counters = read_counters;
}

}  // namespace verbena::verbs
