// SPDX-License-Identifier: Apache-2.0
// rdma link: shows ports and their network devices; adds and deletes links.
#include <cerrno>

#include "commands/rdma/command.h"

namespace verbena::commands::rdma {
namespace {

using control::LinkStatus;

int help(Command& command) {
  return command.say_usage(
      "Usage: {0} link show [DEV/PORT_INDEX]\n"
      "Usage: {0} link add NAME type rxe netdev NETDEV\n"
      "Usage: {0} link delete NAME\n");
}

void show_port(Command& command, const LinkStatus& device, uint32_t port) {
  Printer& printer = command.printer();
  const control::Link& link = device.link;
  printer.begin_object();
  printer.text(verbena::format("link {}/{} ", printable(link.name), port));
  printer.member("ifindex", link.device_index);
  printer.member("ifname", link.name);
  printer.member("port", port);
  const bool active = control::is_active(device);
  printer.field("state", active ? "ACTIVE" : "DOWN");
  // As ibv_query_port(3): POLLING means that the link is up but cannot send.
  printer.field("physical_state", active ? "LINK_UP" : link.up ? "POLLING" : "DISABLED");
  printer.field("netdev", link.netdev);
  if (command.options().details) {
    printer.field("netdev_index", link.interface_index);
  } else {
    printer.member("netdev_index", link.interface_index);
  }
  printer.end_object();
}

int show(Command& command) {
  return for_ports(command, true, [&](const LinkStatus& device, uint32_t port) {
    if (is_complete(command)) show_port(command, device, port);
    return Command::kDone;
  });
}

int add_over(Command& command, const std::string& name, const std::string& type) {
  if (command.words().empty()) return command.complain("Please provide a net device name.");
  const std::string netdev = command.words().take();
  if (type != "rxe") return command.refuse(EINVAL, verbena::format("links are of type rxe, not '{}'", type));
  return command.result_of(command.system().add_link(name, netdev));
}

int add_type(Command& command, const std::string& name) {
  if (command.words().empty()) return command.complain("Please provide a link type name.");
  const std::string type = command.words().take();
  return choose(command, help, {{"netdev", [&](Command& c) { return add_over(c, name, type); }}},
                "parameter");
}

int add(Command& command) {
  if (command.words().empty()) return command.complain("Please provide a link name to add.");
  const std::string name = command.words().take();
  return choose(command, help, {{"type", [&](Command& c) { return add_type(c, name); }}}, "parameter");
}

int remove(Command& command) {
  return for_the_device(command, [&](const LinkStatus& device) {
    if (!command.words().empty()) {
      return command.complain(verbena::format("Unknown parameter {}", command.words().word()));
    }
    return command.result_of(command.system().delete_link(device.link.name));
  });
}

}  // namespace

int show_or_change_links(Command& command) {
  return choose(command, show,
                {{"add", add}, {"delete", remove}, {"show", show}, {"list", show}, {"help", help}},
                "link command");
}

}  // namespace verbena::commands::rdma
