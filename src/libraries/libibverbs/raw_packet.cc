// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibverbs/abi.h"
#include "libraries/libibverbs/context_ops.h"

namespace verbena::verbs {
namespace {

int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) {
  return answer_code([&] {
    auto* provider = owner(qp);
    if (provider != nullptr && attr == nullptr) return is_null("attr");
    return provider != nullptr ? provider->modify_qp_rate_limit(qp, attr) : EINVAL;
  });
}

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr) {
  return answer_pointer([&]() -> Result<ibv_flow*> {
    auto* provider = owner(qp);
    if (provider == nullptr) return fail(EINVAL);
    if (attr == nullptr) return fail(is_null("attr"));
    return provider->create_flow(qp, attr);
  });
}

int destroy_flow(ibv_flow* flow) {
  return answer_code(
      [&] { return destroy(flow, [&](auto& provider) { return provider.destroy_flow(flow); }); });
}

ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr) {
  return answer_pointer([&]() -> Result<ibv_wq*> {
    if (attr == nullptr) return fail(is_null("attr"));
    return with_owner(context, [&](auto& provider) { return provider.create_wq(attr); });
  });
}

int modify_wq(ibv_wq* wq, ibv_wq_attr* attr) {
  return answer_code([&] {
    auto* provider = owner(wq);
    if (provider != nullptr && attr == nullptr) return is_null("attr");
    return provider != nullptr ? provider->modify_wq(wq, attr) : EINVAL;
  });
}

int destroy_wq(ibv_wq* wq) {
  return answer_code([&] { return destroy(wq, [&](auto& provider) { return provider.destroy_wq(wq); }); });
}

ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* context, ibv_rwq_ind_table_init_attr* attr) {
  return answer_pointer([&]() -> Result<ibv_rwq_ind_table*> {
    if (attr == nullptr) return fail(is_null("attr"));
    return with_owner(context, [&](auto& provider) { return provider.create_rwq_ind_table(attr); });
  });
}

int destroy_rwq_ind_table(ibv_rwq_ind_table* table) {
  return answer_code(
      [&] { return destroy(table, [&](auto& provider) { return provider.destroy_rwq_ind_table(table); }); });
}

ibv_counters* create_counters(ibv_context* context, ibv_counters_init_attr* attr) {
  return answer_pointer([&]() -> Result<ibv_counters*> {
    if (attr == nullptr) return fail(is_null("attr"));
    return with_owner(context, [&](auto& provider) { return provider.create_counters(attr); });
  });
}

int destroy_counters(ibv_counters* counters) {
  return answer_code(
      [&] { return destroy(counters, [&](auto& provider) { return provider.destroy_counters(counters); }); });
}

int attach_counters(ibv_counters* counters, ibv_counter_attach_attr* attr, ibv_flow* flow) {
  return answer_code([&] {
    auto* provider = owner(counters);
    if (provider != nullptr && attr == nullptr) return is_null("attr");
    return provider != nullptr ? provider->attach_counters(counters, attr, flow) : EINVAL;
  });
}

int read_counters(ibv_counters* counters, uint64_t* values, uint32_t count, uint32_t flags) {
  return answer_code([&] {
    auto* provider = owner(counters);
    return provider != nullptr ? provider->read_counters(counters, values, count, flags) : EINVAL;
  });
}

}  // namespace

void fill_raw_packet_operations(verbs_context& abi) {
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
