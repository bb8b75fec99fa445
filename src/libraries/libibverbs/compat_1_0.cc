// SPDX-License-Identifier: Apache-2.0
// The functions of the IBVERBS_1.0 ABI: each unwraps its objects and calls the current function. Built only
// into the shared library, because a program cannot define versioned symbols.
#include "libraries/libibverbs/compat_1_0.h"

#include <array>
#include <cstdlib>

#include "base/symbol_version.h"
#include "libraries/libibverbs/abi.h"

#undef ibv_query_port
#undef ibv_reg_mr

// COMPAT_1_0(query_gid) precedes the definition of query_gid_1_0(), the older version of ibv_query_gid().
#define COMPAT_1_0(name) VERBENA_SYMBOL_VERSION(name##_1_0, "ibv_" #name "@IBVERBS_1.0")

// Defines an older version that calls the current function with the arguments behind `parameters`.
#define FORWARD_1_0(result, name, parameters, ...) \
  COMPAT_1_0(name) result name##_1_0 parameters {  \
    return ibv_##name(__VA_ARGS__);                \
  }
// Defines an older version that destroys an object and its wrapper.
#define DESTROY_1_0(name, Wrapper)                    \
  COMPAT_1_0(name) int name##_1_0(Wrapper* wrapper) { \
    return unmake(wrapper, ibv_##name);               \
  }

namespace verbena::verbs::compat_1_0 {
namespace {

// Returns a zeroed wrapper, or null with errno set.
template <class Wrapper>
std::unique_ptr<Wrapper> make() {
  std::unique_ptr<Wrapper> wrapper(new (std::nothrow) Wrapper{});
  if (wrapper == nullptr) errno = ENOMEM;
  return wrapper;
}

// Makes a wrapper of the object that create(wrapper) returns. Returns null, with errno set, if either fails.
template <class Wrapper, class Create>
Wrapper* wrap(Context* context, Create create) {
  auto wrapper = make<Wrapper>();
  if (wrapper == nullptr) return nullptr;
  wrapper->real = create(*wrapper);
  if (wrapper->real == nullptr) return nullptr;
  wrapper->context = context;
  wrapper->handle = wrapper->real->handle;
  return wrapper.release();
}

// Destroys the real object with `destroy`, and the wrapper if that succeeds.
template <class Wrapper, class Destroy>
int unmake(Wrapper* wrapper, Destroy destroy) {
  const int code = destroy(wrapper->real);
  if (code == 0) delete wrapper;
  return code;
}

int poll_cq(CompletionQueue* cq, int count, ibv_wc* wc) {
  return ibv_poll_cq(cq->real, count, wc);
}

int req_notify_cq(CompletionQueue* cq, int solicited_only) {
  return ibv_req_notify_cq(cq->real, solicited_only);
}

ibv_recv_wr current(const RecvWr& old) {
  ibv_recv_wr wr{};
  wr.wr_id = old.wr_id;
  wr.sg_list = old.sg_list;
  wr.num_sge = old.num_sge;
  return wr;
}

ibv_send_wr current(const SendWr& old, ibv_qp_type qp_type) {
  ibv_send_wr wr{};
  wr.wr_id = old.wr_id;
  wr.sg_list = old.sg_list;
  wr.num_sge = old.num_sge;
  wr.opcode = old.opcode;
  wr.send_flags = static_cast<unsigned>(old.send_flags);
  wr.imm_data = old.imm_data;
  static_assert(sizeof wr.wr == sizeof old.wr);
  std::memcpy(&wr.wr, &old.wr, sizeof wr.wr);
  if (qp_type == IBV_QPT_UD && old.wr.ud.ah != nullptr) wr.wr.ud.ah = old.wr.ud.ah->real;
  return wr;
}

// Posts a list of 1.0 work requests in portions that fit on the stack. Portions are posted in order and stop
// at the first failure, like a whole list.
template <class OldWr, class Convert, class Post>
int post_in_portions(OldWr* list, OldWr** bad, Convert convert, Post post) {
  using Wr = decltype(convert(*list));
  constexpr size_t kPortion = 32;
  std::array<Wr, kPortion> portion;
  std::array<OldWr*, kPortion> originals;
  while (list != nullptr) {
    size_t count = 0;
    for (; list != nullptr && count < kPortion; list = list->next, ++count) {
      originals[count] = list;
      portion[count] = convert(*list);
      if (count > 0) portion[count - 1].next = &portion[count];
    }
    Wr* bad_wr = nullptr;
    if (const int code = post(portion.data(), &bad_wr)) {
      *bad = originals[bad_wr != nullptr ? static_cast<size_t>(bad_wr - portion.data()) : 0];
      return code;
    }
  }
  return 0;
}

int post_srq_recv(SharedReceiveQueue* srq, RecvWr* wr, RecvWr** bad) {
  return post_in_portions(
      wr, bad, [](const RecvWr& old) { return current(old); },
      [&](ibv_recv_wr* list, ibv_recv_wr** bad_wr) { return ibv_post_srq_recv(srq->real, list, bad_wr); });
}

int post_send(QueuePair* qp, SendWr* wr, SendWr** bad) {
  return post_in_portions(
      wr, bad, [&](const SendWr& old) { return current(old, qp->qp_type); },
      [&](ibv_send_wr* list, ibv_send_wr** bad_wr) { return ibv_post_send(qp->real, list, bad_wr); });
}

int post_recv(QueuePair* qp, RecvWr* wr, RecvWr** bad) {
  return post_in_portions(
      wr, bad, [](const RecvWr& old) { return current(old); },
      [&](ibv_recv_wr* list, ibv_recv_wr** bad_wr) { return ibv_post_recv(qp->real, list, bad_wr); });
}

}  // namespace

// Returns wrappers of the current device list. The entry before the first remembers the current list.
COMPAT_1_0(get_device_list) Device** get_device_list_1_0(int* num_devices) {
  int count = 0;
  ibv_device** real = ibv_get_device_list(&count);
  if (real == nullptr) return nullptr;
  const auto size = static_cast<size_t>(count);
  auto** list = static_cast<Device**>(std::calloc(size + 2, sizeof(void*)));
  bool complete = list != nullptr;
  for (size_t i = 0; complete && i < size; ++i) {
    list[i + 1] = make<Device>().release();
    complete = list[i + 1] != nullptr;
    if (complete) list[i + 1]->real = real[i];
  }
  if (!complete) {
    for (size_t i = 0; list != nullptr && i < size; ++i) delete list[i + 1];
    std::free(list);
    ibv_free_device_list(real);
    errno = ENOMEM;
    return nullptr;
  }
  list[0] = reinterpret_cast<Device*>(real);
  if (num_devices != nullptr) *num_devices = count;
  return list + 1;
}

COMPAT_1_0(free_device_list) void free_device_list_1_0(Device** list) {
  for (Device** device = list; *device != nullptr; ++device) delete *device;
  ibv_free_device_list(reinterpret_cast<ibv_device**>(list[-1]));
  std::free(list - 1);
}

FORWARD_1_0(const char*, get_device_name, (Device * device), device->real)
FORWARD_1_0(__be64, get_device_guid, (Device * device), device->real)

COMPAT_1_0(open_device) Context* open_device_1_0(Device* device) {
  auto context = make<Context>();
  if (context == nullptr) return nullptr;
  context->real = ibv_open_device(device->real);
  if (context->real == nullptr) return nullptr;
  context->device = device;
  context->cmd_fd = context->real->cmd_fd;
  context->async_fd = context->real->async_fd;
  context->num_comp_vectors = context->real->num_comp_vectors;
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = req_notify_cq;
  context->ops.post_srq_recv = post_srq_recv;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  return context.release();
}

DESTROY_1_0(close_device, Context)

// Each object's context pointer (cq_context and so on) is its wrapper, so an event's object leads to its
// wrapper. Events of work queues are unknown to the 1.0 ABI.
COMPAT_1_0(get_async_event) int get_async_event_1_0(Context* context, ibv_async_event* event) {
  if (const int code = ibv_get_async_event(context->real, event)) return code;
  const EventElement kind = element_of(event->event_type);
  auto& element = event->element;
  if (kind == EventElement::kCq) element.cq = static_cast<ibv_cq*>(element.cq->cq_context);
  if (kind == EventElement::kQp) element.qp = static_cast<ibv_qp*>(element.qp->qp_context);
  if (kind == EventElement::kSrq) element.srq = static_cast<ibv_srq*>(element.srq->srq_context);
  return 0;
}

COMPAT_1_0(ack_async_event) void ack_async_event_1_0(ibv_async_event* event) {
  ibv_async_event real = *event;
  const EventElement kind = element_of(event->event_type);
  auto& element = real.element;
  if (kind == EventElement::kCq) element.cq = reinterpret_cast<CompletionQueue*>(element.cq)->real;
  if (kind == EventElement::kQp) element.qp = reinterpret_cast<QueuePair*>(element.qp)->real;
  if (kind == EventElement::kSrq) element.srq = reinterpret_cast<SharedReceiveQueue*>(element.srq)->real;
  ibv_ack_async_event(&real);
}

FORWARD_1_0(int, query_device, (Context * context, ibv_device_attr* attr), context->real, attr)
FORWARD_1_0(int, query_port, (Context * context, uint8_t port, _compat_ibv_port_attr* attr), context->real,
            port, attr)
FORWARD_1_0(int, query_gid, (Context * context, uint8_t port, int index, ibv_gid* gid), context->real, port,
            index, gid)
FORWARD_1_0(int, query_pkey, (Context * context, uint8_t port, int index, __be16* pkey), context->real, port,
            index, pkey)

COMPAT_1_0(alloc_pd) Pd* alloc_pd_1_0(Context* context) {
  return wrap<Pd>(context, [&](Pd&) { return ibv_alloc_pd(context->real); });
}

DESTROY_1_0(dealloc_pd, Pd)

COMPAT_1_0(reg_mr) Mr* reg_mr_1_0(Pd* pd, void* addr, size_t length, int access) {
  Mr* const mr = wrap<Mr>(pd->context, [&](Mr&) { return ibv_reg_mr(pd->real, addr, length, access); });
  if (mr == nullptr) return nullptr;
  mr->pd = pd;
  mr->lkey = mr->real->lkey;
  mr->rkey = mr->real->rkey;
  return mr;
}

DESTROY_1_0(dereg_mr, Mr)

COMPAT_1_0(create_cq)
CompletionQueue* create_cq_1_0(Context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                               int comp_vector) {
  auto* const cq = wrap<CompletionQueue>(context, [&](CompletionQueue& wrapper) {
    return ibv_create_cq(context->real, cqe, &wrapper, channel, comp_vector);
  });
  if (cq == nullptr) return nullptr;
  cq->cq_context = cq_context;
  cq->cqe = cq->real->cqe;
  return cq;
}

COMPAT_1_0(resize_cq) int resize_cq_1_0(CompletionQueue* cq, int cqe) {
  const int code = ibv_resize_cq(cq->real, cqe);
  if (code == 0) cq->cqe = cq->real->cqe;
  return code;
}

DESTROY_1_0(destroy_cq, CompletionQueue)

COMPAT_1_0(get_cq_event)
int get_cq_event_1_0(ibv_comp_channel* channel, CompletionQueue** cq, void** cq_context) {
  ibv_cq* real = nullptr;
  void* wrapper = nullptr;
  if (const int code = ibv_get_cq_event(channel, &real, &wrapper)) return code;
  *cq = static_cast<CompletionQueue*>(wrapper);
  *cq_context = (*cq)->cq_context;
  return 0;
}

FORWARD_1_0(void, ack_cq_events, (CompletionQueue * cq, unsigned count), cq->real, count)

COMPAT_1_0(create_srq) SharedReceiveQueue* create_srq_1_0(Pd* pd, ibv_srq_init_attr* attr) {
  ibv_srq_init_attr real_attr = *attr;
  auto* const srq = wrap<SharedReceiveQueue>(pd->context, [&](SharedReceiveQueue& wrapper) {
    real_attr.srq_context = &wrapper;
    return ibv_create_srq(pd->real, &real_attr);
  });
  if (srq == nullptr) return nullptr;
  attr->attr = real_attr.attr;
  srq->srq_context = attr->srq_context;
  srq->pd = pd;
  return srq;
}

FORWARD_1_0(int, modify_srq, (SharedReceiveQueue * srq, ibv_srq_attr* attr, int mask), srq->real, attr, mask)
FORWARD_1_0(int, query_srq, (SharedReceiveQueue * srq, ibv_srq_attr* attr), srq->real, attr)
DESTROY_1_0(destroy_srq, SharedReceiveQueue)

COMPAT_1_0(create_qp) QueuePair* create_qp_1_0(Pd* pd, QpInitAttr* attr) {
  ibv_qp_init_attr real_attr{};
  real_attr.send_cq = attr->send_cq != nullptr ? attr->send_cq->real : nullptr;
  real_attr.recv_cq = attr->recv_cq != nullptr ? attr->recv_cq->real : nullptr;
  real_attr.srq = attr->srq != nullptr ? attr->srq->real : nullptr;
  real_attr.cap = attr->cap;
  real_attr.qp_type = attr->qp_type;
  real_attr.sq_sig_all = attr->sq_sig_all;
  auto* const qp = wrap<QueuePair>(pd->context, [&](QueuePair& wrapper) {
    real_attr.qp_context = &wrapper;
    return ibv_create_qp(pd->real, &real_attr);
  });
  if (qp == nullptr) return nullptr;
  attr->cap = real_attr.cap;
  qp->qp_context = attr->qp_context;
  qp->pd = pd;
  qp->send_cq = attr->send_cq;
  qp->recv_cq = attr->recv_cq;
  qp->srq = attr->srq;
  qp->qp_num = qp->real->qp_num;
  qp->state = qp->real->state;
  qp->qp_type = attr->qp_type;
  return qp;
}

COMPAT_1_0(query_qp) int query_qp_1_0(QueuePair* qp, ibv_qp_attr* attr, int mask, QpInitAttr* init_attr) {
  ibv_qp_init_attr real{};
  if (const int code = ibv_query_qp(qp->real, attr, mask, &real)) return code;
  init_attr->qp_context = qp->qp_context;
  init_attr->send_cq = qp->send_cq;
  init_attr->recv_cq = qp->recv_cq;
  init_attr->srq = qp->srq;
  init_attr->cap = real.cap;
  init_attr->qp_type = real.qp_type;
  init_attr->sq_sig_all = real.sq_sig_all;
  qp->state = qp->real->state;
  return 0;
}

COMPAT_1_0(modify_qp) int modify_qp_1_0(QueuePair* qp, ibv_qp_attr* attr, int mask) {
  const int code = ibv_modify_qp(qp->real, attr, mask);
  if (code == 0) qp->state = qp->real->state;
  return code;
}

DESTROY_1_0(destroy_qp, QueuePair)

COMPAT_1_0(create_ah) AddressHandle* create_ah_1_0(Pd* pd, ibv_ah_attr* attr) {
  auto* const ah =
      wrap<AddressHandle>(pd->context, [&](AddressHandle&) { return ibv_create_ah(pd->real, attr); });
  if (ah != nullptr) ah->pd = pd;
  return ah;
}

DESTROY_1_0(destroy_ah, AddressHandle)
FORWARD_1_0(int, attach_mcast, (QueuePair * qp, ibv_gid* gid, uint16_t lid), qp->real, gid, lid)
FORWARD_1_0(int, detach_mcast, (QueuePair * qp, ibv_gid* gid, uint16_t lid), qp->real, gid, lid)

}  // namespace verbena::verbs::compat_1_0

// Ignores the registration of a driver of the year 2007. libfabric's old usnic provider still calls this.
VERBENA_SYMBOL_VERSION(register_driver_1_1, "ibv_register_driver@IBVERBS_1.1")
void register_driver_1_1(const char* name, void*) {
  verbena::log_info("driver {} is not used: there is no kernel device here",
                    name != nullptr ? name : "without a name");
}
