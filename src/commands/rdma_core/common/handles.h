// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <memory>
#include <span>
#include <string>

#include <infiniband/verbs.h>

#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {

// Smart pointers for objects of libibverbs and librdmacm. A pointer destroys its object with the library's
// function. If object B was made from object A, declare B after A, so that B is destroyed first.
template <auto kDestroy>
struct Destroy {
  template <class Object>
  void operator()(Object* object) const {
    kDestroy(object);
  }
};

template <class Object, auto kDestroy>
using Handle = std::unique_ptr<Object, Destroy<kDestroy>>;

using CompletionChannel = Handle<ibv_comp_channel, ibv_destroy_comp_channel>;
using Domain = Handle<ibv_pd, ibv_dealloc_pd>;
using Region = Handle<ibv_mr, ibv_dereg_mr>;
using CompletionQueue = Handle<ibv_cq, ibv_destroy_cq>;
using QueuePair = Handle<ibv_qp, ibv_destroy_qp>;
using AddressHandle = Handle<ibv_ah, ibv_destroy_ah>;

// Puts the new object `made` into `handle`. If `made` is null, fails with `sentence` and the text of errno.
template <class Handle>
void take(Handle& handle, typename Handle::pointer made, const std::string& sentence) {
  handle.reset(made);
  if (!handle) fail_of(errno, sentence);
}

// Post a request with one piece of memory. Return 0 or an errno, as libibverbs does.
inline int post_receive(ibv_qp* queue_pair, ibv_sge piece, uint64_t wr_id = 0) {
  ibv_recv_wr request = {wr_id, nullptr, &piece, 1};
  ibv_recv_wr* refused = nullptr;
  return ibv_post_recv(queue_pair, &request, &refused);
}
inline int post_receive(ibv_srq* shared, ibv_sge piece, uint64_t wr_id = 0) {
  ibv_recv_wr request = {wr_id, nullptr, &piece, 1};
  ibv_recv_wr* refused = nullptr;
  return ibv_post_srq_recv(shared, &request, &refused);
}
inline int post_send(ibv_qp* queue_pair, ibv_sge piece, ibv_send_wr& request) {
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_send_wr* refused = nullptr;
  return ibv_post_send(queue_pair, &request, &refused);
}

// The RDMA devices from ibv_get_device_list(). An ibv_device pointer is valid as long as the DeviceList
// exists, or while the device is open. A function that fails prints a message and then throws a Failure.
class DeviceList {
 public:
  DeviceList();
  ~DeviceList() { ibv_free_device_list(devices_); }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  std::span<ibv_device* const> all() const { return {devices_, static_cast<size_t>(count_)}; }

  // Returns the device named `name`, or the first one if `name` is empty. Fails with `complaint` and a remedy
  // if there is none.
  ibv_device* find(const std::string& name, const std::string& complaint) const;

 private:
  int count_ = 0;
  ibv_device** devices_;
};

// The remedy in messages about a missing device.
inline constexpr const char* kNoDeviceRemedy =
    "'verbena link show' lists the links, 'verbena doctor' what is wrong";

}  // namespace verbena::rdma_core
