// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>

#include <infiniband/verbs.h>

#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {

// Owners of verbs objects: smart pointers that destroy the object. A struct with several owners lists them in
// the order of creation, so that the objects are destroyed in reverse order.
template <auto kDestroy>
struct Destroy {
  template <class Object>
  void operator()(Object* object) const {
    kDestroy(object);
  }
};

// Wrappers for static functions of verbs.h, which would give each source file a handle type of its own.
inline int free_device_memory(ibv_dm* memory) {
  return ibv_free_dm(memory);
}
inline int close_xrc_domain(ibv_xrcd* domain) {
  return ibv_close_xrcd(domain);
}

using Context = std::unique_ptr<ibv_context, Destroy<ibv_close_device>>;
using Channel = std::unique_ptr<ibv_comp_channel, Destroy<ibv_destroy_comp_channel>>;
using Domain = std::unique_ptr<ibv_pd, Destroy<ibv_dealloc_pd>>;
using DeviceMemory = std::unique_ptr<ibv_dm, Destroy<free_device_memory>>;
using Region = std::unique_ptr<ibv_mr, Destroy<ibv_dereg_mr>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Destroy<ibv_destroy_cq>>;
using SharedQueue = std::unique_ptr<ibv_srq, Destroy<ibv_destroy_srq>>;
using QueuePair = std::unique_ptr<ibv_qp, Destroy<ibv_destroy_qp>>;
using AddressHandle = std::unique_ptr<ibv_ah, Destroy<ibv_destroy_ah>>;
using XrcDomain = std::unique_ptr<ibv_xrcd, Destroy<close_xrc_domain>>;
using Memory = std::unique_ptr<char, Destroy<std::free>>;

// Reports a failed step as `sentence` and the text of errno. Returns false.
inline bool fail(const std::string& sentence) {
  complain_of(errno, sentence);
  return false;
}

// Destroys an object now, if there is one. Returns false, after printing `sentence` and the error, if that
// fails.
template <class Handle, class Function>
bool destroy(Handle& handle, Function function, const std::string& sentence) {
  if (!handle) return true;
  const int error = function(handle.release());
  if (error != 0) complain_of(error, sentence);
  return error == 0;
}

}  // namespace verbena::rdma_core
