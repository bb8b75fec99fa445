// SPDX-License-Identifier: Apache-2.0
// ibv_modify_qp(3) and ibv_query_qp(3).
#include <optional>

#include "adapter/objects/limits.h"
#include "adapter/objects/queue_pairs.h"
#include "adapter/queues/status_words.h"
#include "adapter/transport/qp_state.h"
#include "base/failed_call.h"

namespace verbena::adapter {
namespace {

// PSNs have 24 bits; like the kernel, the adapter masks larger numbers. A larger QPN is an error.
constexpr uint32_t kPsnMask = 0xffffff;
constexpr uint32_t kMaxQpn = 0xffffff;
// All attributes but rate limits, which are for raw packets only, and which cannot be queried (nor in
// rdma-core).
constexpr int kPlainMask = IBV_QP_RATE_LIMIT - 1;

// The maximum of each attribute, as in ib_modify_qp_is_ok() and modify_qp() of the kernel's uverbs and rxe.
struct Bound {
  int mask;
  const char* name;
  uint32_t (*value)(const ibv_qp_attr&);
  uint32_t most;
  const char* limit = "";  // its name among the device's attributes
};
constexpr Bound kBounds[] = {
    {IBV_QP_PKEY_INDEX, "pkey_index", [](const ibv_qp_attr& a) { return uint32_t{a.pkey_index}; },
     kPkeyTableLength - 1, " (pkey_tbl_len - 1)"},
    {IBV_QP_DEST_QPN, "dest_qp_num", [](const ibv_qp_attr& a) { return a.dest_qp_num; }, kMaxQpn},
    {IBV_QP_TIMEOUT, "timeout", [](const ibv_qp_attr& a) { return uint32_t{a.timeout}; }, 31},
    {IBV_QP_RETRY_CNT, "retry_cnt", [](const ibv_qp_attr& a) { return uint32_t{a.retry_cnt}; }, 7},
    {IBV_QP_RNR_RETRY, "rnr_retry", [](const ibv_qp_attr& a) { return uint32_t{a.rnr_retry}; }, 7},
    {IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", [](const ibv_qp_attr& a) { return uint32_t{a.min_rnr_timer}; },
     31},
    {IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", [](const ibv_qp_attr& a) { return uint32_t{a.max_rd_atomic}; },
     kMaxReadAtomic, " (max_qp_init_rd_atom)"},
    {IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic",
     [](const ibv_qp_attr& a) { return uint32_t{a.max_dest_rd_atomic}; }, kMaxReadAtomic,
     " (max_qp_rd_atom)"},
};

bool is_connected(ibv_qp_type type) {
  return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

// Removes the attributes that only the other half of XRC has: programs set those of an RC QP on both halves.
// The kernel's uverbs ignore them, too (modify_qp_mask()).
int without_the_other_half(ibv_qp_type type, int mask) {
  if (type == IBV_QPT_XRC_SEND) return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (type == IBV_QPT_XRC_RECV)
    return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  return mask;
}

}  // namespace

int QueuePairs::check_attributes(const Qp& qp, const ibv_qp_attr& attr, int mask) const {
  const ibv_qp_state from = qp.transport->state();
  const ibv_qp_state assumed = (mask & IBV_QP_CUR_STATE) != 0 ? attr.cur_qp_state : from;
  if (assumed != from) {
    return because(EINVAL, "cur_qp_state is {}, but the queue pair is in {}", transport::name_of(assumed),
                   transport::name_of(from));
  }
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
  if (const int error = transport::check_transition(qp.init.qp_type, from, to, mask); error != 0)
    return error;
  if ((mask & IBV_QP_PORT) != 0 && (attr.port_num < 1 || attr.port_num > kPorts))
    return because(EINVAL, "port_num is {}, and the device has port 1 only", attr.port_num);
  for (const Bound& bound : kBounds) {
    if ((mask & bound.mask) != 0 && bound.value(attr) > bound.most)
      return because(EINVAL, "{} {} exceeds {}{}", bound.name, bound.value(attr), bound.most, bound.limit);
  }
  if ((mask & IBV_QP_PATH_MTU) != 0) {
    // As in the kernel's rxe (rxe_qp_chk_attr()), path_mtu may exceed active_mtu, up to max_mtu. Shared
    // memory has no limit, and on the wire longer packets leave in IP fragments.
    if (mtu_bytes(attr.path_mtu) == 0)
      return because(EINVAL,
                     "path_mtu is {}, and has to be of enum ibv_mtu: IBV_MTU_256 (1) to IBV_MTU_4096 (5)",
                     static_cast<int>(attr.path_mtu));
  }
  // RoCE has no alternate paths: the kernel refuses them, and only stores the migration state.
  if ((mask & IBV_QP_ALT_PATH) != 0) return because(EINVAL, "RoCE has no alternate paths");
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && attr.path_mig_state > IBV_MIG_ARMED)
    return because(EINVAL, "there is no path_mig_state {}", static_cast<int>(attr.path_mig_state));
  return 0;
}

// Sets the attributes. Nothing is changed when one of them is wrong.
Result<void> QueuePairs::apply(Qp& qp, const ibv_qp_attr& attr, int mask) {
  transport::QpAttributes& t = qp.transport->attributes();
  ibv_qp_attr& kept = qp.attributes;
  if ((mask & IBV_QP_AV) != 0) {
    auto path = device_.resolve(attr.ah_attr);
    if (!path) return tl::unexpected(path.error());
    if ((mask & IBV_QP_PATH_MTU) != 0) {
      const transport::Route& route = qp.shard.routes().find(*path, roce::Qpn(attr.dest_qp_num));
      if (mtu_bytes(attr.path_mtu) > route.traits.max_payload) {
        return fail(because(EINVAL, "path_mtu is {} bytes, and the way to {} carries packets of {}",
                            mtu_bytes(attr.path_mtu), roce::text_of(path->destination),
                            route.traits.max_payload));
      }
    }
    t.path = *path;
    kept.ah_attr = attr.ah_attr;
  }
  if ((mask & IBV_QP_PORT) != 0) kept.port_num = attr.port_num;
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0) kept.path_mig_state = attr.path_mig_state;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) kept.pkey_index = attr.pkey_index;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) t.access = attr.qp_access_flags;
  if ((mask & IBV_QP_QKEY) != 0) t.qkey = attr.qkey;
  if ((mask & IBV_QP_PATH_MTU) != 0) t.path_mtu = mtu_bytes(kept.path_mtu = attr.path_mtu);
  if ((mask & IBV_QP_TIMEOUT) != 0) t.timeout = attr.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) t.retry_count = attr.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) t.rnr_retry = attr.rnr_retry;
  if ((mask & IBV_QP_RQ_PSN) != 0) t.receive_psn = roce::Psn(attr.rq_psn & kPsnMask);
  if ((mask & IBV_QP_SQ_PSN) != 0) t.send_psn = roce::Psn(attr.sq_psn & kPsnMask);
  if ((mask & IBV_QP_DEST_QPN) != 0) t.destination = roce::Qpn(attr.dest_qp_num);
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) t.max_rd_atomic = attr.max_rd_atomic;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) t.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) t.min_rnr_timer = attr.min_rnr_timer;
  if ((mask & IBV_QP_RATE_LIMIT) != 0) qp.raw->limit_rate(qp, attr.rate_limit, 0);
  if ((mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_SQD) {
    t.notify_drained = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && attr.en_sqd_async_notify != 0;
  }
  return {};
}

// Checks the route, as the kernel's RDMA core does when a program gives an address vector to a connected QP
// (_ib_modify_qp()). The kernel's answer takes system calls, so the shard is not locked meanwhile.
int QueuePairs::check_route(Qp& qp, const ibv_qp_attr& attr, int mask) const {
  if ((mask & IBV_QP_AV) == 0 || !is_connected(qp.init.qp_type)) return 0;
  if (const int wrong = qp.shard.exclusively([&] { return check_attributes(qp, attr, mask); }); wrong != 0)
    return wrong;
  const auto path = device_.resolve(attr.ah_attr);
  if (!path) return path.error().code;
  const auto checked = qp.shard.routes().check(*path, transport::kNeighbourPatience);
  return checked ? 0 : checked.error().code;
}

int QueuePairs::modify(ibv_qp* abi_qp, const ibv_qp_attr& attr, int mask) {
  if (device_.is_gone()) return EIO;
  Qp& qp = Qp::of(abi_qp);
  mask = without_the_other_half(qp.init.qp_type, mask);
  if ((mask & ~(qp.raw != nullptr ? kPlainMask | IBV_QP_RATE_LIMIT : kPlainMask)) != 0)
    return because(EOPNOTSUPP, "attr_mask {:#x} has bits that are not supported on {}", mask,
                   queues::name_of(qp.init.qp_type));
  const std::lock_guard modifying(qp.modifying);
  if (const int unreachable = check_route(qp, attr, mask); unreachable != 0) return unreachable;
  std::optional<transport::QpAttributes> connected;
  const int error = qp.shard.exclusively([&]() -> int {
    if (const int wrong = check_attributes(qp, attr, mask); wrong != 0) return wrong;
    if (auto applied = apply(qp, attr, mask); !applied) return applied.error().code;
    if (qp.init.qp_type == IBV_QPT_UD && (mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_RTR) {
      // A datagram is one packet of at most the port's MTU.
      const auto now = device_.link();
      qp.transport->attributes().path_mtu = mtu_bytes(path_mtu_of(now != nullptr ? now->mtu : 0));
    }
    const bool ends =
        (mask & IBV_QP_STATE) != 0 && (attr.qp_state == IBV_QPS_ERR || attr.qp_state == IBV_QPS_RESET);
    if (ends) qp.shard.settle();
    const ibv_qp_state from = qp.transport->state();
    const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
    if (to == IBV_QPS_RESET) {
      qp.transport->attributes() = {};
      qp.attributes = {};
    }
    if (to != from || to == IBV_QPS_RESET) qp.transport->enter(to);
    // After a reset no completion of the QP is left, as with hardware drivers (pyverbs relies on it).
    if (to == IBV_QPS_RESET) forget_completions(qp);
    if ((mask & IBV_QP_STATE) != 0) abi_qp->state = to;
    auto& details = qp.shard.details_of(qp.transport->config().qpn).numbers;
    details[protocol::kQpPort].store(qp.attributes.port_num, std::memory_order_relaxed);
    details[protocol::kQpMigration].store(qp.attributes.path_mig_state, std::memory_order_relaxed);
    qp.shard.touched(*qp.transport);
    if (to == IBV_QPS_RTR && to != from && is_connected(qp.init.qp_type))
      connected = qp.transport->attributes();
    return 0;
  });
  // Both calls wait, so they are made outside of exclusively(). Other processes may still be writing by the
  // QP's old rights.
  if (error == 0) device_.engine()->await_direct_accesses();
  if (connected) device_.engine()->await_readiness(qp.shard, connected->path, connected->destination);
  return error;
}

// Writes the fields that ibv_cmd_query_qp() of libibverbs writes, and leaves en_sqd_async_notify and
// rate_limit alone.
int QueuePairs::query(ibv_qp* abi_qp, ibv_qp_attr& attr, int mask, ibv_qp_init_attr& init_attr) {
  Qp& qp = Qp::of(abi_qp);
  if ((mask & ~kPlainMask) != 0)
    return because(EOPNOTSUPP, "attr_mask {:#x} has bits that cannot be queried", mask);
  const std::lock_guard modifying(qp.modifying);
  qp.shard.exclusively([&] {
    const transport::QpAttributes& t = qp.transport->attributes();
    const ibv_qp_attr& kept = qp.attributes;
    attr.ah_attr = kept.ah_attr;
    attr.alt_ah_attr = kept.alt_ah_attr;
    attr.path_mtu = kept.path_mtu;
    attr.path_mig_state = kept.path_mig_state;
    attr.pkey_index = kept.pkey_index;
    attr.alt_pkey_index = kept.alt_pkey_index;
    attr.port_num = kept.port_num;
    attr.alt_port_num = kept.alt_port_num;
    attr.alt_timeout = kept.alt_timeout;
    attr.qp_state = attr.cur_qp_state = qp.transport->state();
    attr.qkey = t.qkey;
    attr.rq_psn = qp.transport->next_receive_psn().value();
    attr.sq_psn = qp.transport->next_send_psn().value();
    attr.dest_qp_num = t.destination.value();
    attr.qp_access_flags = t.access;
    attr.cap = qp.init.cap;
    attr.max_rd_atomic = t.max_rd_atomic;
    attr.max_dest_rd_atomic = t.max_dest_rd_atomic;
    attr.min_rnr_timer = t.min_rnr_timer;
    attr.timeout = t.timeout;
    attr.retry_cnt = t.retry_count;
    attr.rnr_retry = t.rnr_retry;
    attr.sq_draining = attr.qp_state == IBV_QPS_SQD && qp.transport->has_outstanding();
  });
  init_attr = {abi_qp->qp_context, abi_qp->send_cq, abi_qp->recv_cq,   abi_qp->srq,
               qp.init.cap,        abi_qp->qp_type, qp.init.sq_sig_all};
  return 0;
}

}  // namespace verbena::adapter
