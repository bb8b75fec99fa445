// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/common/output.h"

#include <cstdarg>
#include <cstdio>

namespace verbena::rdma_core {

void Output::text(const char* format, ...) const {
  if (json_) return;
  std::va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
}

void Output::finish() const {
  if (!json_) return;
  using nlohmann::ordered_json;
  // Replace invalid UTF-8: names of devices and addresses may hold any bytes.
  std::puts(object_.dump(2, ' ', false, ordered_json::error_handler_t::replace).c_str());
}

}  // namespace verbena::rdma_core
