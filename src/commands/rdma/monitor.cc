// SPDX-License-Identifier: Apache-2.0
// rdma monitor: prints devices that appear, disappear or change their names.
#include <algorithm>

#include "commands/rdma/command.h"

namespace verbena::commands::rdma {
namespace {

using control::Link;

const Link* find(const System::Links& links, uint32_t device_index) {
  const auto found = std::ranges::find(links, device_index, &Link::device_index);
  return found != links.end() ? &*found : nullptr;
}

void print_event(Printer& printer, std::string_view event, const Link& link, bool with_netdev) {
  printer.begin_object();
  printer.text(verbena::format("{}\tdev {} {}", event, link.device_index, printable(link.name)));
  printer.member("event_type", event);
  printer.member("rdma_index", link.device_index);
  printer.member("rdma_dev", link.name);
  if (with_netdev) {
    printer.text(verbena::format(" port 1 netdev {} {}", link.interface_index, printable(link.netdev)));
    printer.member("port", 1u);
    printer.member("netdev_idx", link.interface_index);
    printer.member("netdev_name", link.netdev);
  }
  printer.end_object();
}

// Prints the events in the kernel's order.
void print_changes(Printer& printer, const System::Links& before, const System::Links& now) {
  for (const Link& old : before) {
    if (find(now, old.device_index) == nullptr) print_event(printer, "[UNREGISTER]", old, false);
  }
  for (const Link& link : now) {
    const Link* old = find(before, link.device_index);
    if (old == nullptr) {
      print_event(printer, "[REGISTER]", link, false);
      print_event(printer, "[NETDEV_ATTACH]", link, true);
      continue;
    }
    if (old->name != link.name) print_event(printer, "[RENAME]", link, false);
    if (old->netdev != link.netdev) print_event(printer, "[NETDEV_RENAME]", link, true);
  }
}

// Runs until interrupted or until the output is closed.
int watch(Command& command) {
  std::optional<System::Links> before;
  const auto watched = command.system().watch_links([&](const System::Links& now) {
    if (before) print_changes(command.printer(), *before, now);
    before = now;
    return command.flush();
  });
  return command.result_of(watched);
}

int help(Command& command) {
  return command.say_usage("Usage: {} monitor [ -j ]\n");
}

}  // namespace

// The JSON output is an endless list, with one object per line.
int monitor(Command& command) {
  return choose(command, watch, {{"help", help}}, "mon command");
}

}  // namespace verbena::commands::rdma
