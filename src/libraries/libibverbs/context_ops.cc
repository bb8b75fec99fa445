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

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) {
  return call(dm, [&](auto& provider) -> Result<ibv_mr*> {
    if (owner(pd) == nullptr) return fail(EINVAL);
    if (owner(pd) != &provider) return fail(because(EINVAL, "dm and pd are of different ibv_contexts"));
    return provider.reg_dm_mr(pd, dm, offset, length, access);
  });
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list, uint32_t count) {
  return call(pd, {"sg_list", list}, [&](auto& provider) {
    return provider.advise_mr(pd, advice, flags, {list, count});
  });
}

// Calls the provider's method with the arguments of an operation, except a context.
template <class Method, class Object, class... Arguments>
auto invoke(provider::Context& context, Method method, Object* object, Arguments... arguments) {
  if constexpr (std::is_same_v<Object, ibv_context>) {
    return (context.*method)(arguments...);
  } else {
    return (context.*method)(object, arguments...);
  }
}

template <class Operation>
void fill(Operation& operation, std::type_identity_t<Operation> with) {
  if (operation == nullptr) operation = with;
}

// Make an operation pass its arguments on to the provider's `method`: WITH_ATTR if the second argument must
// not be null, DESTROY for those that destroy their argument.
#define PASS_ON(operation, method)                                              \
  fill(abi.operation, [](auto* object, auto... arguments) {                     \
    const auto action = [&](provider::Context& context) {                       \
      return invoke(context, &provider::Context::method, object, arguments...); \
    };                                                                          \
    return call(object, action, #method);                                       \
  })
#define PASS_ON_WITH_ATTR(operation, method)                                          \
  fill(abi.operation, [](auto* object, auto* attr, auto... arguments) {               \
    const auto action = [&](provider::Context& context) {                             \
      return invoke(context, &provider::Context::method, object, attr, arguments...); \
    };                                                                                \
    return call(object, {"attr", attr}, action, #method);                             \
  })
#define PASS_ON_DESTROY(operation, method)                                       \
  fill(abi.operation, [](auto* object) {                                         \
    return destroy(                                                              \
        object, [&](auto& context) { return context.method(object); }, #method); \
  })

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
  PASS_ON(create_cq_ex, create_cq_ex);
  PASS_ON(modify_cq, modify_cq);
  fill(abi.create_qp_ex, create_qp_ex);
  fill(abi.create_srq_ex, create_srq_ex);
  PASS_ON(post_srq_ops, post_srq_ops);
  PASS_ON(alloc_parent_domain, alloc_parent_domain);
  PASS_ON(alloc_td, alloc_td);
  PASS_ON_DESTROY(dealloc_td, dealloc_td);
  PASS_ON(get_srq_num, get_srq_num);
  PASS_ON(open_xrcd, open_xrcd);
  PASS_ON_DESTROY(close_xrcd, close_xrcd);
  PASS_ON(open_qp, open_qp);

  // Memory windows, device memory, null regions, advice
  PASS_ON(context.ops.alloc_mw, alloc_mw);
  PASS_ON_DESTROY(context.ops.dealloc_mw, dealloc_mw);
  PASS_ON_WITH_ATTR(alloc_dm, alloc_dm);
  PASS_ON_DESTROY(free_dm, free_dm);
  fill(abi.reg_dm_mr, reg_dm_mr);
  PASS_ON(alloc_null_mr, alloc_null_mr);
  fill(abi.advise_mr, advise_mr);

  // Flow rules, work queues and counters
  PASS_ON_WITH_ATTR(modify_qp_rate_limit, modify_qp_rate_limit);
  PASS_ON_WITH_ATTR(ibv_create_flow, create_flow);
  PASS_ON_DESTROY(ibv_destroy_flow, destroy_flow);
  PASS_ON_WITH_ATTR(create_wq, create_wq);
  PASS_ON_WITH_ATTR(modify_wq, modify_wq);
  PASS_ON_DESTROY(destroy_wq, destroy_wq);
  PASS_ON_WITH_ATTR(create_rwq_ind_table, create_rwq_ind_table);
  PASS_ON_DESTROY(destroy_rwq_ind_table, destroy_rwq_ind_table);
  PASS_ON_WITH_ATTR(create_counters, create_counters);
  PASS_ON_DESTROY(destroy_counters, destroy_counters);
  PASS_ON_WITH_ATTR(attach_counters_point_flow, attach_counters);
  PASS_ON(read_counters, read_counters);
}

}  // namespace verbena::verbs
