// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include <unistd.h>

#include "adapter/net/port.h"
#include "base/format.h"
#include "commands/verbena/metrics.h"
#include "commands/verbena/names.h"
#include "commands/verbena/status_output.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"

namespace verbena::commands {
namespace {

using control::AgentStatus;
using control::LinkStatus;

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// Builds the text metric by metric: the format requires all lines of one metric to be together.
class Metrics {
 public:
  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ += verbena::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  template <class Number>
  void add(const Labels& labels, Number value) {
    text_ += name_;
    char before = '{';
    for (const auto& [name, label] : labels) {
      text_ += verbena::format("{}{}=\"{}\"", before, name, escaped(label));
      before = ',';
    }
    text_ += verbena::format("{} {}\n", labels.size() != 0 ? "}" : "", value);
  }
  // Adds a metric with one value and no labels.
  template <class Number>
  void single(std::string_view name, std::string_view type, std::string_view help, Number value) {
    begin(name, type, help);
    add({}, value);
  }
  std::string take() { return std::move(text_); }

 private:
  // Escapes a label and replaces bytes above 0x7f: Prometheus requires UTF-8, but programs may have any name.
  static std::string escaped(std::string_view label) {
    std::string result;
    for (const char c : printable(label)) {
      if (c == '"' || c == '\\') result += '\\';
      result += static_cast<unsigned char>(c) < 0x80 ? c : '?';
    }
    return result;
  }

  std::string_view name_;
  std::string text_;
};

struct PortMetric {
  std::string_view name, help;
  transport::QpCounter counter;
};
constexpr std::array kPortMetrics = std::to_array<PortMetric>({
    {"verbena_port_transmitted_bytes_total", "Payload sent, to the wire and by memory.",
     transport::kSentBytes},
    {"verbena_port_received_bytes_total", "Payload received, from the wire and by memory.",
     transport::kReceivedBytes},
    {"verbena_port_transmitted_octets_total", "Octets of packets sent, from the IP header to the ICRC.",
     transport::kSentOctets},
    {"verbena_port_received_octets_total", "Octets of packets received, likewise.",
     transport::kReceivedOctets},
    {"verbena_port_transmitted_packets_total", "Packets sent.", transport::kSentPackets},
    {"verbena_port_received_packets_total", "Packets received.", transport::kReceivedPackets},
    {"verbena_port_retransmitted_packets_total", "Packets sent again.", transport::kRetransmittedPackets},
    {"verbena_port_rnr_naks_received_total",
     "Times that a peer had no receive request for a message of ours.", transport::kRnrNaksReceived},
    {"verbena_port_rnr_naks_sent_total", "Times that we had no receive request for a peer's message.",
     transport::kRnrNaksSent},
    {"verbena_port_dropped_datagrams_total", "Datagrams without a receive request, or with a wrong Q_Key.",
     transport::kDroppedDatagrams},
});

void add_agent(Metrics& metrics, const AgentStatus& status, const std::optional<AgentHealth>& health) {
  metrics.begin("verbena_agent_info", "gauge", "The agent.");
  metrics.add({{"version", status.version}, {"pid", verbena::format("{}", status.pid)}}, 1);
  metrics.single("verbena_agent_wire", "gauge", "1: UDP port 4791 is the agent's.",
                 status.no_wire_reason.empty() ? 1 : 0);
  metrics.single("verbena_agent_refused_programs_total", "counter",
                 "Programs that speak another version of the agent's protocol.", status.refused.count);
  metrics.single("verbena_agent_slots", "gauge", "Slots leased to programs.", status.slots.size());
  if (!health) return;
  metrics.single("verbena_agent_cpu_seconds_total", "counter", "Processor time that the agent has used.",
                 health->cpu_seconds);
  metrics.single("verbena_agent_resident_memory_bytes", "gauge", "Memory that the agent has.",
                 health->resident_bytes);
}

void add_links(Metrics& metrics, const AgentStatus& status) {
  metrics.begin("verbena_port_active", "gauge", "1: packets can come and go.");
  for (const LinkStatus& one : status.links) {
    metrics.add({{"device", one.link.name}, {"port", "1"}, {"netdev", one.link.netdev}},
                one.wire == "up" ? 1 : 0);
  }
  for (const PortMetric& metric : kPortMetrics) {
    metrics.begin(metric.name, "counter", metric.help);
    for (const LinkStatus& one : status.links) {
      metrics.add({{"device", one.link.name}, {"port", "1"}}, one.counters[metric.counter]);
    }
  }
  constexpr std::string_view kFolder = "hw_counters/";
  for (const control::NamedCounter& counter : control::kNamedCounters) {
    if (!counter.path.starts_with(kFolder)) continue;
    const std::string name = verbena::format("verbena_hw_{}_total", counter.path.substr(kFolder.size()));
    metrics.begin(name, "counter", verbena::format("As {} of /sys/class/infiniband.", counter.path));
    for (const LinkStatus& one : status.links) {
      metrics.add({{"device", one.link.name}, {"port", "1"}}, counter.value(one.counters));
    }
  }
}

// A process with its labels, or the sum of all processes without labels.
struct Row {
  ProcessStatus process;
  Labels labels;

  Labels with(const Labels& more) const {
    Labels all = labels;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

std::vector<Row> rows_of(const AgentStatus& status, MetricsDetail detail) {
  std::vector<Row> rows;
  if (detail == MetricsDetail::kSums) {
    Row sum{ProcessStatus(control::SlotStatus{}), {}};
    for (const control::SlotStatus& slot : status.slots) sum.process.add(slot);
    rows.push_back(std::move(sum));
    return rows;
  }
  for (ProcessStatus& process : processes_of(status.slots)) {
    Labels labels{{"pid", verbena::format("{}", process.pid)}, {"program", process.program}};
    rows.push_back({std::move(process), std::move(labels)});
  }
  return rows;
}

void add_qp_counts(Metrics& metrics, const AgentStatus& status, const std::vector<Row>& rows) {
  metrics.begin("verbena_process_queue_pairs", "gauge", "Queue pairs that a process has.");
  for (const Row& row : rows) {
    std::map<std::tuple<std::string, std::string, std::string>, uint64_t> counts;
    for (const control::QpNumbers& qp : row.process.qps) {
      ++counts[{link_name_of(status, qp), qp_type_name(qp.type), qp_state_name(qp.state)}];
    }
    for (const auto& [key, count] : counts) {
      metrics.add(
          row.with({{"device", std::get<0>(key)}, {"type", std::get<1>(key)}, {"state", std::get<2>(key)}}),
          count);
    }
  }
}

uint64_t detail_sum(const ProcessStatus& process, protocol::QpDetail which) {
  uint64_t sum = 0;
  for (const control::QpNumbers& qp : process.qps) sum += qp.details[which];
  return sum;
}

// Adds the dropped packets. The sum over all processes is a gauge, not a counter: it falls when a process
// ends.
void add_drops(Metrics& metrics, const std::vector<Row>& rows, MetricsDetail detail) {
  if (detail == MetricsDetail::kSums) {
    metrics.begin("verbena_process_dropped_packets", "gauge",
                  "Packets from the wire that were dropped, of the processes that there are now.");
  } else {
    metrics.begin("verbena_process_dropped_packets_total", "counter",
                  "Packets from the wire that were dropped.");
  }
  for (const Row& row : rows) {
    for (size_t i = 0; i < static_cast<size_t>(net::DropReason::kCount); ++i) {
      metrics.add(row.with({{"reason", net::kDropReasonNames[i]}}),
                  row.process.port[protocol::kPortFirstDropReason + i]);
    }
  }
}

void add_processes(Metrics& metrics, const AgentStatus& status, MetricsDetail detail) {
  const std::vector<Row> rows = rows_of(status, detail);
  const auto each = [&](auto value) {
    for (const Row& row : rows) metrics.add(row.labels, value(row.process));
  };
  add_qp_counts(metrics, status, rows);
  metrics.begin("verbena_process_waiting_sends", "gauge", "Requests that are posted and not complete.");
  each([](const ProcessStatus& process) { return detail_sum(process, protocol::kQpWaitingSends); });
  metrics.begin("verbena_process_waiting_receives", "gauge",
                "Receive requests that no message has come for.");
  each([](const ProcessStatus& process) { return detail_sum(process, protocol::kQpWaitingReceives); });
  for (size_t i = 0; i < transport::kQpCounterCount; ++i) {
    const std::string counted = transport::kQpCounterNames[i];
    // A gauge, not a counter: the counts of a queue pair vanish with it.
    const std::string name = "verbena_process_qp_" + counted;
    metrics.begin(name, "gauge", "Sum over the queue pairs that the process has now.");
    each([i](const ProcessStatus& process) {
      uint64_t sum = 0;
      for (const control::QpNumbers& qp : process.qps) sum += qp.counters[i];
      return sum;
    });
  }
  add_drops(metrics, rows, detail);
}

void add_connections(Metrics& metrics, const protocol::CmStatus& status) {
  metrics.single("verbena_cm_identifiers", "gauge", "Identifiers (rdma_cm_id) of programs.",
                 status.identifiers);
  metrics.single("verbena_cm_listening", "gauge", "Those that listen.", status.listening);
  metrics.begin("verbena_cm_connections", "gauge", "Connections of programs.");
  for (size_t i = 0; i < cm::kStates; ++i) {
    metrics.add({{"state", cm::state_name(static_cast<cm::State>(i))}}, status.connections[i]);
  }
  const auto messages = [&](std::string_view name, std::string_view help, const uint64_t* counts) {
    metrics.begin(name, "counter", help);
    for (size_t i = 0; i < cm::kMessageTypes; ++i) {
      metrics.add({{"message", cm::message_name(static_cast<cm::MessageType>(i))}}, counts[i]);
    }
  };
  messages("verbena_cm_sent_messages_total", "Messages of connection management sent.", status.sent);
  messages("verbena_cm_received_messages_total", "Messages of connection management received.",
           status.received);
  metrics.single("verbena_cm_retransmitted_messages_total", "counter", "Those that were sent again.",
                 status.retransmitted);
  metrics.begin("verbena_cm_dropped_messages_total", "counter", "Those that were not taken.");
  for (size_t i = 0; i < cm::kDropReasons; ++i) {
    metrics.add({{"reason", cm::drop_reason_name(static_cast<cm::DropReason>(i))}}, status.dropped[i]);
  }
}

}  // namespace

std::optional<AgentHealth> health_of(pid_t agent) {
  std::string line;
  if (!std::getline(std::ifstream(verbena::format("/proc/{}/stat", agent)), line)) return std::nullopt;
  // Skip the name in parentheses, which may hold any character. State is field 3, utime 14, stime 15, rss 24.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  uint64_t user = 0, system = 0, pages = 0;
  std::string field;
  for (int number = 3; number <= 24 && fields >> field; ++number) {
    if (number == 14) user = std::strtoull(field.c_str(), nullptr, 10);
    if (number == 15) system = std::strtoull(field.c_str(), nullptr, 10);
    if (number == 24) pages = std::strtoull(field.c_str(), nullptr, 10);
  }
  return AgentHealth{
      .cpu_seconds = static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK)),
      .resident_bytes = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE))};
}

std::string metrics_as_text(const std::optional<AgentStatus>& status,
                            const std::optional<AgentHealth>& health, MetricsDetail detail) {
  Metrics metrics;
  metrics.single("verbena_agent_up", "gauge", "1: there is an agent.", status ? 1 : 0);
  if (status) {
    add_agent(metrics, *status, health);
    add_links(metrics, *status);
    add_processes(metrics, *status, detail);
    add_connections(metrics, status->connection_management);
  }
  return metrics.take();
}

}  // namespace verbena::commands
