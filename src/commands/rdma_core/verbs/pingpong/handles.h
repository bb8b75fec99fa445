// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdlib>
#include <string>

#include "commands/rdma_core/common/handles.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {

// Wrappers for static functions of verbs.h, which would give each source file a handle type of its own.
inline int free_device_memory(ibv_dm* memory) {
  return ibv_free_dm(memory);
}
inline int close_xrc_domain(ibv_xrcd* domain) {
  return ibv_close_xrcd(domain);
}

using Context = Handle<ibv_context, ibv_close_device>;
using DeviceMemory = Handle<ibv_dm, free_device_memory>;
using SharedQueue = Handle<ibv_srq, ibv_destroy_srq>;
using XrcDomain = Handle<ibv_xrcd, close_xrc_domain>;
using Memory = Handle<char, std::free>;

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
