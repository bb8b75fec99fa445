// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma/agent_system.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include <poll.h>

#include "base/format.h"
#include "base/text.h"
#include "commands/verbena/installation.h"
#include "control/client/client.h"

namespace verbena::commands::rdma {
namespace {

using control::AdminResult;

// Replaces the programs' names by their current ones in /proc: the agent knows only the name at connection
// time.
void find_names(control::AgentStatus& status) {
  const auto name_of = [](pid_t pid, std::string& name) {
    std::string now;
    if (pid != 0 && std::getline(std::ifstream(verbena::format("/proc/{}/comm", pid)), now))
      name = printable(now);
  };
  for (control::SlotStatus& slot : status.slots) name_of(slot.pid, slot.program);
}

}  // namespace

template <class Request>
auto AgentSystem::ask(Request request) -> decltype(request(std::declval<control::Admin&>())) {
  if (admin_ == nullptr) {
    auto reached = control::Admin::connect(start_installed_agent());
    if (!reached) return tl::unexpected(std::move(reached.error()));
    admin_ = std::move(*reached);
  }
  return request(*admin_);
}

AdminResult<control::AgentStatus> AgentSystem::status() {
  auto status = ask([](control::Admin& admin) -> AdminResult<control::AgentStatus> {
    auto read = admin.status();
    if (!read) return read;
    if (auto added = admin.add_cm_ids(*read); !added) return tl::unexpected(std::move(added.error()));
    return read;
  });
  if (status) find_names(*status);
  return status;
}

AdminResult<void> AgentSystem::add_link(std::string_view name, std::string_view netdev) {
  return ask([&](control::Admin& admin) { return admin.add_link(name, netdev); });
}

AdminResult<void> AgentSystem::delete_link(std::string_view name) {
  return ask([&](control::Admin& admin) { return admin.delete_link(name); });
}

AdminResult<void> AgentSystem::rename_link(std::string_view name, std::string_view new_name) {
  return ask([&](control::Admin& admin) { return admin.rename_link(name, new_name); });
}

AdminResult<void> AgentSystem::watch_links(const std::function<bool(const Links&)>& visit) {
  const auto refuse = [](int error) {
    return tl::unexpected(control::AdminError{error, std::strerror(error)});
  };
  auto client = control::Client::connect(start_installed_agent());
  if (!client) return refuse(client.error().code);
  auto links = (*client)->links();
  if (!links) return refuse(links.error().code);
  while (visit(*links)) {
    pollfd wait{.fd = (*client)->event_fd(), .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, -1) < 0 && errno != EINTR) return refuse(errno);
    if (auto changed = (*client)->next_links()) *links = std::move(*changed);
  }
  return {};
}

}  // namespace verbena::commands::rdma
