// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/socket.h"

#include <cstring>

#include <rdma/rsocket.h>

namespace verbena::rsockets {

Result<void> OptionValue::set(const void* from, size_t bytes) {
  if (to_ == nullptr) return fail(EFAULT);
  if (*length_ < bytes) return fail(EINVAL);
  if (bytes > 0) std::memcpy(to_, from, bytes);
  *length_ = static_cast<socklen_t>(bytes);
  return {};
}

Result<int> int_option(const void* value, socklen_t length) {
  if (value == nullptr) return fail(EFAULT);
  if (length < sizeof(int)) return fail(EINVAL);
  int number;
  std::memcpy(&number, value, sizeof number);
  return number;
}

uint32_t Sizes::*size_option(int name) {
  switch (name) {
    case RDMA_SQSIZE:
      return &Sizes::send_queue;
    case RDMA_RQSIZE:
      return &Sizes::receive_queue;
    case RDMA_INLINE:
      return &Sizes::inline_bytes;
    default:
      return nullptr;
  }
}

}  // namespace verbena::rsockets
