// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <map>
#include <sstream>

#include "adapter/net/port.h"
#include "base/format.h"
#include "commands/verbena/names.h"
#include "commands/verbena/status_output.h"
#include "commands/verbena/table.h"
#include "commands/verbena/top_table.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"

namespace verbena::commands {
namespace {

// "0 fe80::1, 1 ::ffff:192.0.2.1"
std::string gids_in_short(const control::Link& link) {
  std::string text;
  for (const control::GidEntry& entry : link.gids) {
    text += verbena::format("{}{} {}", text.empty() ? "" : ", ", entry.index, gid_as_text(entry.gid));
  }
  return text.empty() ? "none" : text;
}

std::string gids_as_text(const control::AgentStatus& status) {
  Table table({"LINK", "GID", "", "TYPE"});
  for (const control::LinkStatus& one : status.links) {
    for (const control::GidEntry& entry : one.link.gids) {
      table.add({one.link.name, std::to_string(entry.index), gid_as_text(entry.gid), "RoCE v2"});
    }
  }
  return table.empty() ? "No link has a GID.\n" : table.text();
}

// Collects a line for each count that is not zero.
class CountList {
 public:
  void add(std::string name, uint64_t count) {
    if (count != 0) rows_.add({std::move(name), std::to_string(count)});
  }
  // Returns the lines below `heading`; empty if all counts are zero.
  std::string text(const std::string& heading, size_t indent) const {
    if (rows_.empty()) return {};
    const std::string lines = rows_.text(indent);
    return heading + lines.substr(lines.find('\n') + 1);
  }

 private:
  Table rows_{{}};
};

// Lists each link's counters by their names in /sys.
std::string link_counters_as_text(const control::AgentStatus& status) {
  std::string text;
  for (const control::LinkStatus& one : status.links) {
    CountList counts;
    for (const control::NamedCounter& counter : control::kNamedCounters) {
      counts.add(std::string(counter.path.substr(counter.path.find('/') + 1)), counter.value(one.counters));
    }
    text += counts.text(printable(one.link.name) + '\n', 2);
  }
  return text.empty() ? text : "\nCounters\n" + text;
}

// Lists a process's counts of packets and bytes on the wire, over all queue pairs. These bytes include
// headers; a queue pair's byte counts do not.
std::string port_as_text(const control::SlotStatus& slot) {
  CountList counts;
  for (size_t i = 0; i < protocol::kPortFirstDropReason; ++i) {
    counts.add(verbena::format("wire_{}", port_counter_name(i)), slot.port[i]);
  }
  for (size_t i = 0; i < static_cast<size_t>(net::DropReason::kCount); ++i) {
    counts.add(verbena::format("wire_dropped_{}", net::kDropReasonNames[i]),
               slot.port[protocol::kPortFirstDropReason + i]);
  }
  return counts.text("  packets on the wire, with headers:\n", 4);
}

std::string counters_as_text(const control::QpNumbers& qp) {
  CountList counts;
  for (size_t i = 0; i < transport::kQpCounterCount; ++i) {
    counts.add(transport::kQpCounterNames[i], qp.counters[i]);
  }
  return counts.text("", 4);
}

std::string time_as_text(uint64_t ns) {
  return ns < 10'000'000 ? verbena::format("{} us", ns / 1000) : verbena::format("{} ms", ns / 1'000'000);
}

// Describes a QP's path: round trip, window, rate. Empty for routes without loss.
std::string path_as_text(const control::QpNumbers& qp) {
  const auto& path = qp.path;
  if (path[transport::kPathWindow] == 0) return {};
  std::string text = "    path: ";
  if (path[transport::kPathRoundTrip] != 0) {
    text += verbena::format("round trip {} (usual {}), ", time_as_text(path[transport::kPathRoundTrip]),
                            time_as_text(path[transport::kPathUsualRoundTrip]));
  }
  text += verbena::format("window {} kB", path[transport::kPathWindow] / 1000);
  if (const uint64_t rate = path[transport::kPathRate]; rate != 0) {
    text += verbena::format(", {:.1f} MB/s", static_cast<double>(rate) / 1e6);
  }
  const auto add = [&](std::string_view name, transport::PathNumber which) {
    if (path[which] != 0) text += verbena::format(", {} {}", name, path[which]);
  };
  add("lost", transport::kPathLostPackets);
  add("marked", transport::kPathMarkedPackets);
  add("notices", transport::kPathCongestionNotices);
  return text + '\n';
}

std::string_view wire_as_text(const ProcessStatus& slot) {
  if (!slot.has_wire) return ", without a wire";
  return slot.is_forwarded ? ", packets forwarded by the agent" : "";
}

// Explains why peers' memory is not accessed directly, so that READs, WRITEs and atomics wait until the peer
// runs.
std::string unreached_as_text(const ProcessStatus& slot) {
  std::array<size_t, protocol::kQpWays> counts{};
  for (const control::QpNumbers& qp : slot.qps) ++counts[static_cast<size_t>(qp.way)];
  std::string text;
  for (size_t way = 0; way < counts.size(); ++way) {
    const std::string_view why = peer_memory_of(static_cast<protocol::QpWay>(way)).why;
    if (counts[way] == 0 || why.empty()) continue;
    text += verbena::format("  Peers' memory is not reached by {} queue pair{}: {}\n", counts[way],
                            counts[way] == 1 ? "" : "s", why);
  }
  return text;
}

// Reports overrun CQs. A queue pair whose completions went to an overrun CQ is in state ERR.
std::string overruns_as_text(const ProcessStatus& process) {
  const size_t count = overrun_cqs(process);
  return count == 0 ? std::string()
                    : verbena::format("  CQ overrun: {} completion queue{} full, completions are lost\n",
                                      count, count == 1 ? " was" : "s were");
}

// Formats a table of queue pairs, with each one's path and counters below its line.
std::string queue_pairs_as_text(const control::AgentStatus& status, const ProcessStatus& slot) {
  Table table({"QP", "TYPE", "STATE", "LINK", "PEER", "ROUTE"});
  for (const control::QpNumbers& qp : slot.qps) {
    table.add({verbena::format("{:#08x}", qp.qpn), qp_type_name(qp.type), qp_state_name(qp.state),
               printable(link_name_of(status, qp)),
               qp.remote_qpn ? verbena::format("{:#08x}", qp.remote_qpn) : "-",
               qp.by_memory() ? "local" : "wire"});
  }
  if (table.empty()) return "  no queue pairs\n";
  std::istringstream lines(table.text(2));
  std::string text;
  std::string line;
  std::getline(lines, line);
  text += line + '\n';
  for (const control::QpNumbers& qp : slot.qps) {
    std::getline(lines, line);
    text += line + '\n' + path_as_text(qp) + counters_as_text(qp);
  }
  return text;
}

std::string process_as_text(const control::AgentStatus& status, const ProcessStatus& slot) {
  const bool is_one = slot.slots.size() == 1;
  const std::string first_line =
      verbena::format("Process {} ({}), user {}, {} shard{} (slot{} {}){}\n", slot.pid,
                      printable(slot.program), slot.uid, slot.slots.size(), is_one ? "" : "s",
                      is_one ? "" : "s", verbena::join(slot.slots, ", "), wire_as_text(slot));
  return first_line + port_as_text(slot) + queue_pairs_as_text(status, slot) + unreached_as_text(slot) +
         overruns_as_text(slot);
}

// Appends a count to a list, unless it is zero.
void add_count(std::string& list, std::string_view name, uint64_t count) {
  if (count != 0) list += verbena::format("{}{} {}", list.empty() ? "" : ", ", name, count);
}

// Lists connections and counts of messages; empty if nobody has connected so far.
std::string connections_as_text(const protocol::CmStatus& status) {
  std::string now;
  for (size_t i = 0; i < cm::kStates; ++i) {
    add_count(now, cm::state_name(static_cast<cm::State>(i)), status.connections[i]);
  }
  add_count(now, "listening", status.listening);
  add_count(now, "resolving", status.resolving);
  add_count(now, "waiting", status.waiting);
  std::string messages;
  for (size_t i = 0; i < cm::kMessageTypes; ++i) {
    if (status.sent[i] + status.received[i] == 0) continue;
    messages += verbena::format("{}{} {}/{}", messages.empty() ? "" : ", ",
                                cm::message_name(static_cast<cm::MessageType>(i)), status.sent[i],
                                status.received[i]);
  }
  std::string trouble;
  add_count(trouble, "retransmitted", status.retransmitted);
  add_count(trouble, "duplicates", status.duplicates);
  add_count(trouble, "timed out", status.timed_out);
  add_count(trouble, "stale connections", status.stale_connections);
  for (size_t i = 0; i < cm::kDropReasons; ++i) {
    add_count(trouble, verbena::format("dropped as {}", cm::drop_reason_name(static_cast<cm::DropReason>(i))),
              status.dropped[i]);
  }
  add_count(trouble, "with a bad Q_Key", status.bad_qkey);
  add_count(trouble, "of an unknown class", status.unknown_class);
  std::string text;
  if (!now.empty()) text += verbena::format("  identifiers: {}\n", now);
  if (!messages.empty()) text += verbena::format("  messages sent/received: {}\n", messages);
  if (!trouble.empty()) text += verbena::format("  of these: {}\n", trouble);
  return text.empty() ? text : "\nConnections\n" + text;
}

// Summarizes the process's QPs: "3 RC RTS, 1 UD INIT".
std::string queue_pairs_in_short(const ProcessStatus& process) {
  std::map<std::string, size_t> counts;
  for (const control::QpNumbers& qp : process.qps)
    ++counts[verbena::format("{} {}", qp_type_name(qp.type), qp_state_name(qp.state))];
  std::string text;
  for (const auto& [kind, count] : counts)
    text += verbena::format("{}{} {}", text.empty() ? "" : ", ", count, kind);
  return text.empty() ? "-" : text;
}

uint64_t sum_of(const ProcessStatus& process, transport::QpCounter counter) {
  uint64_t sum = 0;
  for (const control::QpNumbers& qp : process.qps) sum += qp.counters[counter];
  return sum;
}

// Summarizes errors of the process's current QPs, with the counter names of `verbena status -v`.
std::string trouble_in_short(const ProcessStatus& process) {
  constexpr transport::QpCounter kTrouble[] = {transport::kRetransmittedPackets, transport::kRnrNaksReceived,
                                               transport::kErrorNaksReceived,    transport::kDroppedDatagrams,
                                               transport::kSendErrors,           transport::kReceiveErrors};
  std::string text;
  for (const transport::QpCounter counter : kTrouble)
    add_count(text, transport::kQpCounterNames[counter], sum_of(process, counter));
  uint64_t dropped = 0;
  for (size_t i = protocol::kPortFirstDropReason; i < process.port.size(); ++i) dropped += process.port[i];
  add_count(text, "packets dropped", dropped);
  add_count(text, "CQ overruns", overrun_cqs(process));
  return text.empty() ? "-" : text;
}

std::string processes_in_short(const control::AgentStatus& status) {
  Table table({"PID", "PROGRAM", "USER", "QUEUE PAIRS", "SENT", "RECEIVED", "TROUBLE"});
  for (const ProcessStatus& process : processes_of(status.slots)) {
    table.add(
        {std::to_string(process.pid), printable(process.program), std::to_string(process.uid),
         queue_pairs_in_short(process),
         verbena::format("{}B", short_number(static_cast<double>(sum_of(process, transport::kSentBytes)))),
         verbena::format("{}B",
                         short_number(static_cast<double>(sum_of(process, transport::kReceivedBytes)))),
         trouble_in_short(process)});
  }
  return table.empty() ? "No process uses Verbena.\n" : table.text();
}

std::string agent_as_text(const control::AgentStatus& status) {
  std::string text =
      verbena::format("Agent {} (verbena {}), user {}\n", status.pid, printable(status.version), status.uid);
  text += status.no_wire_reason.empty()
              ? "Wire: UDP port 4791\n"
              : verbena::format("Wire: none. {}\n", printable(status.no_wire_reason));
  if (status.protocol_version != protocol::kProtocolVersion) {
    text +=
        verbena::format("Versions: the agent speaks version {} of its protocol, this command version {}\n",
                        status.protocol_version, protocol::kProtocolVersion);
  }
  if (status.refused.count != 0) {
    text += verbena::format(
        "Refused: {} programs that speak another version of the protocol; the last was process {}, "
        "with version {}: start it again\n",
        status.refused.count, status.refused.last_pid, status.refused.last_version);
  }
  return text;
}

}  // namespace

std::string links_as_text(const control::AgentStatus& status) {
  Table table({"LINK", "NETDEV", "STATE", "MTU", "PATH MTU", "WIRE", "GIDS"});
  for (const control::LinkStatus& one : status.links) {
    table.add({one.link.name, one.link.netdev, std::string(link_state(one.link)),
               std::to_string(one.link.mtu), std::to_string(active_mtu(one.link)), one.wire,
               gids_in_short(one.link)});
  }
  if (table.empty()) {
    return "No links. A network device that is up and has an address gets one, unless its link was deleted:\n"
           "'verbena link add NAME DEV' makes one; 'verbena doctor' lists the devices.\n";
  }
  std::string text = table.text();
  for (const control::LinkStatus& one : status.links) {
    if (one.link.peers.empty()) continue;
    text += verbena::format("{} accepts RoCE packets only from {}\n", printable(one.link.name),
                            verbena::join(peers_as_text(one.link), ", "));
  }
  return text;
}

std::string summary_as_text(const control::AgentStatus& status) {
  return agent_as_text(status) + '\n' + links_as_text(status) + '\n' + processes_in_short(status);
}

std::string status_as_text(const control::AgentStatus& status) {
  std::string text = agent_as_text(status);
  text += '\n' + links_as_text(status);
  text += '\n' + gids_as_text(status);
  text += link_counters_as_text(status);
  text += connections_as_text(status.connection_management);
  if (status.slots.empty()) text += "\nNo process uses Verbena.\n";
  for (const ProcessStatus& process : processes_of(status.slots))
    text += '\n' + process_as_text(status, process);
  return text;
}

}  // namespace verbena::commands
