// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <infiniband/verbs.h>
#include <pthread.h>

// The structs of the IBVERBS_1.0 ABI (libibverbs 1.0, 2006). The application sees these structs; `real` in
// each points to the corresponding object of the current ABI. The layouts are ABI and must not change.
namespace verbena::verbs::compat_1_0 {

struct Context;
struct CompletionQueue;
struct SharedReceiveQueue;
struct QueuePair;
struct AddressHandle;

struct Device {
  void* obsolete_sysfs_dev;
  void* obsolete_sysfs_ibdev;
  ibv_device* real;
  _ibv_device_ops obsolete_ops;
};

struct Pd {
  Context* context;
  uint32_t handle;
  ibv_pd* real;
};

struct Mr {
  Context* context;
  Pd* pd;
  uint32_t handle;
  uint32_t lkey;
  uint32_t rkey;
  ibv_mr* real;
};

struct CompletionQueue {
  Context* context;
  void* cq_context;
  uint32_t handle;
  int cqe;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  uint32_t comp_events_completed;
  uint32_t async_events_completed;
  ibv_cq* real;
};

struct SharedReceiveQueue {
  Context* context;
  void* srq_context;
  Pd* pd;
  uint32_t handle;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  uint32_t events_completed;
  ibv_srq* real;
};

struct QueuePair {
  Context* context;
  void* qp_context;
  Pd* pd;
  CompletionQueue* send_cq;
  CompletionQueue* recv_cq;
  SharedReceiveQueue* srq;
  uint32_t handle;
  uint32_t qp_num;
  ibv_qp_state state;
  ibv_qp_type qp_type;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  uint32_t events_completed;
  ibv_qp* real;
};

struct AddressHandle {
  Context* context;
  Pd* pd;
  uint32_t handle;
  ibv_ah* real;
};

struct QpInitAttr {
  void* qp_context;
  CompletionQueue* send_cq;
  CompletionQueue* recv_cq;
  SharedReceiveQueue* srq;
  ibv_qp_cap cap;
  ibv_qp_type qp_type;
  int sq_sig_all;
};

struct SendWr {
  SendWr* next;
  uint64_t wr_id;
  ibv_sge* sg_list;
  int num_sge;
  ibv_wr_opcode opcode;
  int send_flags;
  __be32 imm_data;
  union {
    struct {
      uint64_t remote_addr;
      uint32_t rkey;
    } rdma;
    struct {
      uint64_t remote_addr;
      uint64_t compare_add;
      uint64_t swap;
      uint32_t rkey;
    } atomic;
    struct {
      AddressHandle* ah;
      uint32_t remote_qpn;
      uint32_t remote_qkey;
    } ud;
  } wr;
};

struct RecvWr {
  RecvWr* next;
  uint64_t wr_id;
  ibv_sge* sg_list;
  int num_sge;
};

// Operations of a context. Inline functions of the 1.0 headers call five of them, and only these have a type
// here. No program calls the others, which are left null.
struct ContextOps {
  void* before_poll_cq[7];  // query_device, query_port, alloc_pd, dealloc_pd, reg_mr, dereg_mr, create_cq
  int (*poll_cq)(CompletionQueue*, int, ibv_wc*);
  int (*req_notify_cq)(CompletionQueue*, int);
  void* before_post_srq_recv[7];  // cq_event, resize_cq, destroy_cq, create_, modify_, query_, destroy_srq
  int (*post_srq_recv)(SharedReceiveQueue*, RecvWr*, RecvWr**);
  void* before_post_send[4];  // create_qp, query_qp, modify_qp, destroy_qp
  int (*post_send)(QueuePair*, SendWr*, SendWr**);
  int (*post_recv)(QueuePair*, RecvWr*, RecvWr**);
  void* after_post_recv[4];  // create_ah, destroy_ah, attach_mcast, detach_mcast
};
static_assert(sizeof(ContextOps) == 27 * sizeof(void*));

struct Context {
  Device* device;
  ContextOps ops;
  int cmd_fd;
  int async_fd;
  int num_comp_vectors;
  ibv_context* real;
  // Makes a 1.0 context as long as a current one. ibv_create_comp_channel() has only one version, and gets
  // contexts of both ABIs. It recognizes a current context by abi_compat, which is all ones. So a 1.0 context
  // needs other bytes at that offset.
  std::byte tail[sizeof(ibv_context)];
};
static_assert(sizeof(Context) >= sizeof(ibv_context));
static_assert(offsetof(Context, tail) <= offsetof(ibv_context, abi_compat));

// Returns the current context behind a context of either ABI.
inline ibv_context* current_context(ibv_context* context) {
  if (context == nullptr || context->abi_compat == __VERBS_ABI_IS_EXTENDED) return context;
  return reinterpret_cast<Context*>(context)->real;
}

}  // namespace verbena::verbs::compat_1_0
