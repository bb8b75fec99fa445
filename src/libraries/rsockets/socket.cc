// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/socket.h"

#include <cstring>

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

// ---- supported only by streams

Result<void> Socket::listen(int) {
  return fail(EOPNOTSUPP);
}

Result<std::shared_ptr<Socket>> Socket::accept() {
  return fail(EOPNOTSUPP);
}

Result<off_t> Socket::map(void*, size_t, int, off_t) {
  return fail(EOPNOTSUPP);
}

Result<void> Socket::unmap(void*, size_t) {
  return fail(EOPNOTSUPP);
}

Result<size_t> Socket::write_mapped(const void*, size_t, off_t, int) {
  return fail(EOPNOTSUPP);
}

}  // namespace verbena::rsockets
