// SPDX-License-Identifier: Apache-2.0
// rdma system: shows settings that apply to all devices.
#include <cerrno>

#include "commands/rdma/command.h"

namespace verbena::commands::rdma {
namespace {

int help(Command& command) {
  return command.say_usage(
      "Usage: {0} system show [ netns ]\n"
      "       {0} system set netns {{ shared | exclusive }}\n");
}

int set_help(Command& command) {
  return command.say_usage(
      "Usage: {} system set [PARAM] value\n"
      "            system set netns {{ shared | exclusive }}\n"
      "            system set privileged-qkey {{ on | off }}\n");
}

// Devices belong to one network namespace ("exclusive"). fork() is safe ("copy-on-fork on").
int print(Command& command) {
  Printer& printer = command.printer();
  printer.begin_list();
  printer.begin_object();
  printer.field("netns", "exclusive");
  printer.member("privileged-qkey", "off");
  printer.member("monitor", "on");
  if (printer.is_json()) {
    printer.on_off("copy-on-fork", true);
  } else {
    printer.text("copy-on-fork on");
  }
  printer.end_object();
  printer.end_list();
  return Command::kDone;
}

int show(Command& command) {
  return choose(command, print, {{"netns", print}, {"privileged-qkey", print}, {"monitor", print}},
                "parameter");
}

// Sets a parameter that always is `is`: refuses the other value.
Function fixed(std::string_view is, std::string_view other, const char* known, const char* why) {
  return [=](Command& command) {
    const std::string word = command.words().empty() ? "" : command.words().take();
    if (word == is) return Command::kDone;
    if (word != other) return command.complain(verbena::format("valid options are: {}", known));
    return command.refuse(EOPNOTSUPP, why);
  };
}

int set(Command& command) {
  return choose(
      command, set_help,
      {{"help", set_help},
       {"netns", fixed("exclusive", "shared", "{ shared | exclusive }",
                       "a device is seen in the network namespace of its network device only")},
       {"privileged-qkey", fixed("off", "on", "{ on | off }", "programs have the Q_Keys that they ask for")}},
      "parameter");
}

}  // namespace

int show_or_change_system(Command& command) {
  return choose(command, show, {{"show", show}, {"set", set}, {"help", help}}, "system command");
}

}  // namespace verbena::commands::rdma
