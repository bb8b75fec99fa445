// SPDX-License-Identifier: Apache-2.0
// rdma dev: shows devices and renames them.
#include <array>
#include <cerrno>
#include <filesystem>

#include <infiniband/verbs.h>

#include "adapter/objects/limits.h"
#include "commands/rdma/command.h"

namespace verbena::commands::rdma {
namespace {

using control::LinkStatus;

int help(Command& command) {
  return command.say_usage(
      "Usage: {0} dev show [DEV]\n"
      "       {0} dev set [DEV] name DEVNAME\n"
      "       {0} dev set [DEV] netns NSNAME\n"
      "       {0} dev set [DEV] adaptive-moderation [on|off]\n");
}

// iproute2's names of bits in device_cap_flags.
struct Capability {
  uint64_t bit;
  std::string_view name;
};
constexpr std::array kCapabilities = std::to_array<Capability>({
    {IBV_DEVICE_BAD_PKEY_CNTR, "BAD_PKEY_CNTR"},
    {IBV_DEVICE_BAD_QKEY_CNTR, "BAD_QKEY_CNTR"},
    {IBV_DEVICE_UD_AV_PORT_ENFORCE, "UD_AV_PORT_ENFORCE_PORT_ENFORCE"},
    {IBV_DEVICE_PORT_ACTIVE_EVENT, "PORT_ACTIVE_EVENT"},
    {IBV_DEVICE_SYS_IMAGE_GUID, "SYS_IMAGE_GUID"},
    {IBV_DEVICE_RC_RNR_NAK_GEN, "RC_RNR_NAK_GEN"},
    {IBV_DEVICE_SRQ_RESIZE, "SRQ_RESIZE"},
    {IBV_DEVICE_MEM_WINDOW, "MEM_WINDOW"},
    {IBV_DEVICE_XRC, "XRC"},
    {IBV_DEVICE_MEM_WINDOW_TYPE_2B, "MEM_WINDOW_TYPE_2B"},
    {IBV_DEVICE_RAW_IP_CSUM, "RAW_IP_CSUM"},
    {IBV_DEVICE_MANAGED_FLOW_STEERING, "MANAGED_FLOW_STEERING"},
    {adapter::kDeviceFlushGlobal, "FLUSH_GLOBAL"},
    {adapter::kDeviceAtomicWrite, "ATOMIC_WRITE"},
});

void show_capabilities(Printer& printer) {
  printer.text("\n    caps: <");
  printer.begin_array("caps");
  bool first = true;
  for (const Capability& one : kCapabilities) {
    if ((adapter::kAllCapabilities & one.bit) == 0) continue;
    if (!first) printer.text(", ");
    first = false;
    printer.text(one.name);
    printer.element(one.name);
  }
  printer.end_array();
  printer.text(">");
}

void show_device(Command& command, const control::Link& link) {
  Printer& printer = command.printer();
  printer.begin_object();
  printer.text(verbena::format("{}: {}: ", link.device_index, printable(link.name)));
  printer.member("ifindex", link.device_index);
  printer.member("ifname", link.name);
  printer.field("node_type", "ca");
  const auto guid = control::guid_of(link);
  const std::string shown = verbena::format("{:02x}{:02x}:{:02x}{:02x}:{:02x}{:02x}:{:02x}{:02x}", guid[0],
                                            guid[1], guid[2], guid[3], guid[4], guid[5], guid[6], guid[7]);
  printer.field("node_guid", shown);
  printer.field("sys_image_guid", shown);
  if (command.options().details) {
    printer.on_off("adaptive-moderation", false);
    show_capabilities(printer);
  }
  printer.end_object();
}

int show(Command& command) {
  return for_devices(command, [&](const LinkStatus& device) {
    if (is_complete(command)) show_device(command, device.link);
    return Command::kDone;
  });
}

int set_name(Command& command, const LinkStatus& device) {
  if (command.words().empty()) return command.complain("Please provide device new name.");
  return command.result_of(command.system().rename_link(device.link.name, command.words().take()));
}

int set_namespace(Command& command) {
  if (command.words().empty()) return command.complain("Please provide device name.");
  const std::string name = command.words().take();
  std::error_code error;
  if (name.find('/') != std::string::npos || !std::filesystem::exists("/var/run/netns/" + name, error)) {
    return command.complain(
        verbena::format("Cannot open network namespace \"{}\": No such file or directory", name));
  }
  return command.refuse(EOPNOTSUPP, "a link belongs to the namespace of its network device; move that");
}

int set_moderation(Command& command) {
  const auto off = [](Command&) { return Command::kDone; };  // it always is off
  const auto on = [](Command& c) {
    return c.refuse(EOPNOTSUPP, "completion queues moderate as programs say");
  };
  return choose(command, help, {{"on", on}, {"off", off}}, "parameter");
}

int set(Command& command) {
  return for_the_device(command, [&](const LinkStatus& device) {
    return choose(command, help,
                  {{"name", [&](Command& c) { return set_name(c, device); }},
                   {"netns", set_namespace},
                   {"adaptive-moderation", set_moderation}},
                  "parameter");
  });
}

}  // namespace

int show_or_change_devices(Command& command) {
  return choose(command, show, {{"show", show}, {"list", show}, {"set", set}, {"help", help}}, "dev command");
}

}  // namespace verbena::commands::rdma
