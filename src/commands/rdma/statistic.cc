// SPDX-License-Identifier: Apache-2.0
// rdma statistic: shows counters of ports and QPs, and lists memory regions.
#include <cerrno>

#include "commands/rdma/command.h"
#include "control/model/device_counters.h"

namespace verbena::commands::rdma {
namespace {

using control::LinkStatus;

int help(Command& command) {
  return command.say_usage(
      "Usage: {0} [ OPTIONS ] statistic {{ COMMAND | help }}\n"
      "       {0} statistic [ show ] [ link [ DEV/PORT_INDEX ] ]\n"
      "       {0} statistic qp [ show ] [ link [ DEV/PORT_INDEX ] [ FILTER-NAME FILTER-VALUE ] ]\n"
      "       {0} statistic qp mode [ link [ DEV/PORT_INDEX ] ]\n"
      "       {0} statistic qp set link [ DEV/PORT_INDEX ] auto off\n"
      "       {0} statistic mr\n"
      "       {0} statistic mode [ supported ] [ link [ DEV/PORT_INDEX ] ]\n"
      "where  FILTER-NAME: = {{ cntn | lqpn | pid | qp-type }}\n"
      "Each QP has a counter of its own, always; its number is the QP's.\n");
}

int help_and_fail(Command& command) {
  help(command);
  return Command::kFailed;
}

// Carries out `act` after the word "link", and `otherwise` without a word.
int by_link(Command& command, const Function& otherwise, const Function& act) {
  return choose(command, otherwise, {{"link", act}, {"help", help}}, "parameter");
}

// ---- ports

void show_port(Command& command, const LinkStatus& device, uint32_t port) {
  constexpr std::string_view kFolder = "hw_counters/";
  Printer& printer = command.printer();
  printer.begin_object();
  printer.text(verbena::format("link {}/{} ", printable(device.link.name), port));
  printer.member("ifname", device.link.name);
  printer.member("port", port);
  for (const control::NamedCounter& counter : control::kNamedCounters) {
    if (!counter.path.starts_with(kFolder)) continue;
    printer.field(counter.path.substr(kFolder.size()), counter.value(device.counters));
  }
  printer.end_object();
}

int show_ports(Command& command) {
  return for_ports(command, false, [&](const LinkStatus& device, uint32_t port) {
    if (port != 0) show_port(command, device, port);
    return Command::kDone;
  });
}

// ---- regions

int show_regions(Command& command) {
  static constexpr std::string_view kNames[] = {"mrn"};
  const auto add = [](Row& row, const control::AgentStatus&, const control::SlotStatus&,
                      const control::ObjectNumbers& region) { row.add("mrn", region.number); };
  return of_devices(kNames, protocol::ObjectKind::kMr, add)(command);
}

int show(Command& command) {
  return choose(command, show_ports, {{"link", show_ports}, {"mr", show_regions}, {"help", help}},
                "parameter");
}

// ---- QPs

void show_qp(Command& command, const LinkStatus& device, const control::SlotStatus& slot,
             const control::QpNumbers& qp, uint32_t port, const Filters& filters) {
  const char* type = qp_type_text(qp.type);
  Row known = Row::of_port(device.link, port);
  known.add("cntn", qp.qpn).add("lqpn", qp.qpn).add("qp-type", type).know("optional-counters", "");
  known.add("pid", static_cast<uint64_t>(slot.pid));
  if (!known.passes(filters)) return;
  Printer& printer = command.printer();
  printer.begin_object();
  printer.text(verbena::format("link {}/{} ", printable(device.link.name), port));
  printer.member("ifindex", device.link.device_index);
  printer.member("ifname", device.link.name);
  printer.member("port", port);
  printer.field("cntn", qp.qpn);
  printer.field("qp-type", type);
  if (slot.pid != 0) printer.field("pid", static_cast<uint64_t>(slot.pid));
  printer.field("comm", slot.program);
  for (size_t i = 0; i < qp.counters.size(); ++i) {
    printer.continue_line();
    printer.field(transport::kQpCounterNames[i], qp.counters[i]);
  }
  printer.continue_line();
  printer.text(verbena::format("LQPN: <{}>", qp.qpn));
  printer.begin_array("lqpn");
  printer.element(uint64_t{qp.qpn});
  printer.end_array();
  printer.end_object();
}

int show_qps(Command& command) {
  static constexpr std::string_view kNames[] = {"cntn", "lqpn", "pid", "qp-type", "optional-counters"};
  return for_ports(command, false, [&](const LinkStatus& device, uint32_t port) {
    if (port == 0) return Command::kDone;
    const auto filters = parse_filters(command.words(), kNames);
    if (!filters) return command.complain(filters.error());
    for (const control::SlotStatus& slot : command.status()->slots) {
      for (const control::QpNumbers& qp : slot.qps) {
        if (qp.device_index == device.link.device_index) show_qp(command, device, slot, qp, port, *filters);
      }
    }
    return Command::kDone;
  });
}

int list_qps(Command& command) {
  return by_link(command, show_qps, show_qps);
}

int show_mode(Command& command, const LinkStatus& device, uint32_t port) {
  if (port == 0) return Command::kDone;
  Row::of_port(device.link, port).add("mode", "qp auto off").print(command.printer());
  return Command::kDone;
}

int show_modes(Command& command) {
  return for_ports(command, false,
                   [&](const LinkStatus& device, uint32_t port) { return show_mode(command, device, port); });
}

int refuse_counting(Command& command) {
  return command.refuse(EOPNOTSUPP, "each QP is counted, always, by a counter of its own");
}

// Handles "auto": "off" is the permanent state, all other modes are refused.
int set_auto(Command& command) {
  if (command.words().empty()) return Command::kFailed;
  const std::string word = command.words().take();
  if (abbreviates(word, "off")) return Command::kDone;
  for (const std::string_view known : {"type", "pid", "type,pid", "pid,type"}) {
    if (word != known) continue;
    if (command.words().empty()) return Command::kFailed;
    return refuse_counting(command);
  }
  return command.complain(verbena::format("Unknown auto mode '{}'.", word));
}

int set_qps(Command& command) {
  const auto set_link = [](Command& of) {
    return for_ports(of, false, [&](const LinkStatus& device, uint32_t port) {
      if (port == 0) return Command::kDone;
      const auto show = [&](Command& c) { return show_mode(c, device, port); };
      return choose(of, show, {{"auto", set_auto}}, "parameter");
    });
  };
  return by_link(command, help, set_link);
}

int bind_qps(Command& command) {
  const auto bind_link = [](Command& of) {
    return for_ports(of, true, [&](const LinkStatus&, uint32_t) {
      static constexpr std::string_view kNames[] = {"cntn", "lqpn", "pid"};
      if (of.words().empty()) return help_and_fail(of);
      const auto filters = parse_filters(of.words(), kNames);
      return filters ? refuse_counting(of) : of.complain(filters.error());
    });
  };
  return by_link(command, help, bind_link);
}

int about_qps(Command& command) {
  const auto mode = [](Command& c) { return by_link(c, show_modes, show_modes); };
  return choose(command, list_qps,
                {{"show", list_qps},
                 {"list", list_qps},
                 {"mode", mode},
                 {"set", set_qps},
                 {"bind", bind_qps},
                 {"unbind", bind_qps},
                 {"help", help}},
                "parameter");
}

// ---- optional counters: there are none, since all counters are always on

int list_optional(Command& command) {
  return for_ports(command, false, [](const LinkStatus&, uint32_t) { return Command::kDone; });
}

int show_optional(Command& command) {
  const auto supported = [](Command& c) { return by_link(c, list_optional, list_optional); };
  return choose(command, list_optional,
                {{"link", list_optional}, {"show", list_optional}, {"supported", supported}, {"help", help}},
                "parameter");
}

int set_optional(Command& command, bool on) {
  const auto set_link = [on](Command& of) {
    return for_ports(of, true, [&](const LinkStatus&, uint32_t) {
      if (of.words().empty()) return help_and_fail(of);
      const std::string word = of.words().take();
      if (!abbreviates(word, "optional-counters")) {
        return of.complain(verbena::format("Unknown parameter '{}'.", word));
      }
      if (on == of.words().empty()) return help_and_fail(of);
      return on ? of.refuse(EINVAL, "there are no optional counters: all are on") : Command::kDone;
    });
  };
  return by_link(command, help, set_link);
}

}  // namespace

int show_statistics(Command& command) {
  return choose(command, show,
                {{"show", show},
                 {"list", show},
                 {"help", help},
                 {"qp", about_qps},
                 {"mr", show_regions},
                 {"mode", show_optional},
                 {"set", [](Command& c) { return set_optional(c, true); }},
                 {"unset", [](Command& c) { return set_optional(c, false); }}},
                "statistic command");
}

}  // namespace verbena::commands::rdma
