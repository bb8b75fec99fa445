// SPDX-License-Identifier: Apache-2.0
// XRC domains, and further handles of their targets.
#include <fcntl.h>

#include "adapter/software_context.h"

namespace verbena::adapter {

Result<ibv_xrcd*> SoftwareContext::open_xrcd(ibv_xrcd_init_attr* attr) {
  if (is_gone()) return fail(EIO);
  constexpr uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED) return fail(EOPNOTSUPP);
  if ((attr->comp_mask & kNeeded) != kNeeded || (attr->oflags & ~(O_CREAT | O_EXCL)) != 0)
    return fail(EINVAL);
  const bool create = (attr->oflags & O_CREAT) != 0;
  std::shared_ptr<XrcDomain> domain;
  if (attr->fd == -1) {
    if (!create) return fail(EINVAL);
    domain = XrcDomain::anonymous();
  } else {
    auto found = XrcDomain::of_file(engine_, {.fd = attr->fd,
                                              .device_index = device_index_,
                                              .create = create,
                                              .exclusive = (attr->oflags & O_EXCL) != 0});
    if (!found) return tl::unexpected(found.error());
    domain = std::move(*found);
  }
  auto xrcd = std::make_unique<Xrcd>();
  xrcd->context = &abi().context;
  xrcd->domain = std::move(domain);
  const std::lock_guard guard(objects_mutex_);
  xrcds_.push_back(*xrcd);
  return xrcd.release();
}

int SoftwareContext::close_xrcd(ibv_xrcd* xrcd) {
  if (Xrcd::of(xrcd).users.load() != 0) return EBUSY;
  {
    const std::lock_guard guard(objects_mutex_);
    Xrcd::of(xrcd).owned.unlink();
  }
  delete &Xrcd::of(xrcd);  // may ask the agent, so under no lock
  return 0;
}

Result<ibv_qp*> SoftwareContext::open_qp(ibv_qp_open_attr* attr) {
  if (is_gone()) return fail(EIO);
  constexpr uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED) return fail(EOPNOTSUPP);
  if ((attr->comp_mask & kNeeded) != kNeeded || attr->qp_type != IBV_QPT_XRC_RECV || attr->xrcd == nullptr ||
      attr->xrcd->context != &abi().context) {
    return fail(EINVAL);
  }
  if (attr->qp_num > roce::Qpn::kMask) return fail(EINVAL);
  // A number of another process's share: its targets are not to be had here (docs/using.md).
  if (roce::Qpn(attr->qp_num).slot() != shard().slot()) return fail(EOPNOTSUPP);
  std::shared_ptr<QpCore> core = Xrcd::of(attr->xrcd).domain->target(attr->qp_num);
  if (core == nullptr) return fail(EINVAL);
  auto qp = std::make_unique<Qp>(*this, std::move(core));
  if (!qp->core->add(*qp)) return fail(EINVAL);  // its last handle was just closed
  ibv_qp& abi_qp = *qp->abi();
  abi_qp.context = &abi().context;
  abi_qp.qp_context = (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0 ? attr->qp_context : nullptr;
  abi_qp.qp_num = attr->qp_num;
  abi_qp.qp_type = IBV_QPT_XRC_RECV;
  abi_qp.state = qp->transport->state();
  abi_qp.handle = next_handle();
  qp->init.qp_type = IBV_QPT_XRC_RECV;
  qp->init.qp_context = abi_qp.qp_context;
  qp->xrcd = attr->xrcd;
  ++Xrcd::of(attr->xrcd).users;
  const std::lock_guard guard(objects_mutex_);
  qps_.push_back(*qp);
  return qp.release()->abi();
}

}  // namespace verbena::adapter
