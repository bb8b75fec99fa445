// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/support/route.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include "adapter/objects/support/environment.h"
#include "control/client/command_client.h"

namespace verbena::adapter::testing {
namespace {

constexpr const char* kVariable = "VERBENA_LOCAL";

size_t count_lines(const std::string& file, std::string_view word) {
  size_t found = 0;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) found += line.find(word) != std::string::npos ? 1 : 0;
  return found;
}

}  // namespace

Route usual_route() {
  static const Route usual = [] {
    const char* said = std::getenv(kVariable);  // NOLINT(concurrency-mt-unsafe): read early
    return said != nullptr && std::string_view(said) == "off" ? Route::kWire : Route::kLocal;
  }();
  return usual;
}

void use_route(Route route) {
  (void)usual_route();
  if (route == Route::kWire) {
    ::setenv(kVariable, "off", 1);  // NOLINT(concurrency-mt-unsafe): no engine runs
  } else {
    ::unsetenv(kVariable);  // NOLINT(concurrency-mt-unsafe): no engine runs
  }
}

std::optional<RouteCount> count_routes(pid_t process) {
  const auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
  if (!admin) return std::nullopt;
  const auto status = (*admin)->status();
  if (!status) return std::nullopt;
  std::optional<RouteCount> count;
  for (const auto& slot : status->slots) {
    if (slot.pid != process) continue;
    if (!count) count.emplace();
    for (const auto& qp : slot.qps) {
      if (qp.state != IBV_QPS_RTR && qp.state != IBV_QPS_RTS) continue;
      ++(qp.by_memory() ? count->local : count->wire);
    }
  }
  return count;
}

bool all_take(Route route, pid_t process, size_t qps) {
  return eventually([&] {
    const auto count = count_routes(process);
    const bool is_local = route == Route::kLocal;
    return count && count->local == (is_local ? qps : 0) && count->wire == (is_local ? 0 : qps);
  });
}

Holdings own_holdings() {
  Holdings held;
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(one.path().filename().c_str());  // NOLINT(cert-err34-c): the kernel's
    int domain = AF_UNIX;
    socklen_t length = sizeof domain;
    (void)::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length);  // fails for other descriptors
    held.descriptors += domain == AF_UNIX ? 1 : 0;
  }
  held.channels = count_lines("/proc/self/maps", "memfd:verbena-channel");
  held.boards = count_lines("/proc/self/maps", "memfd:verbena-board");
  return held;
}

}  // namespace verbena::adapter::testing
