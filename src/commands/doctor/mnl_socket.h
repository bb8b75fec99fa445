// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <libmnl/libmnl.h>

namespace verbena::commands::doctor {

struct MnlSocketCloser {
  void operator()(mnl_socket* socket) const { mnl_socket_close(socket); }
};
using MnlSocket = std::unique_ptr<mnl_socket, MnlSocketCloser>;

}  // namespace verbena::commands::doctor
