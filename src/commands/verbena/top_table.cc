// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/top_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "base/format.h"
#include "commands/verbena/names.h"
#include "commands/verbena/status_output.h"
#include "commands/verbena/table.h"

namespace verbena::commands {
namespace {

using control::AgentStatus;
using control::QpNumbers;
using control::SlotStatus;

// Indexed by transport::QpCounter.
using Counts = std::array<uint64_t, transport::kQpCounterCount>;

Counts increase(const Counts& before, const Counts& now) {
  Counts result{};
  for (size_t i = 0; i < result.size(); ++i) {
    // A smaller count means a new QP of the same number, which began at zero.
    result[i] = now[i] >= before[i] ? now[i] - before[i] : now[i];
  }
  return result;
}

// Traffic and waiting requests of the QPs of one row.
struct Traffic {
  Counts counts{};
  uint64_t waiting_sends = 0;
  uint64_t waiting_receives = 0;
  uint64_t qps = 0;

  void add(const Counts& more) {
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += more[i];
  }
  void add(const QpNumbers& qp, const Counts& more) {
    add(more);
    waiting_sends += qp.details[protocol::kQpWaitingSends];
    waiting_receives += qp.details[protocol::kQpWaitingReceives];
    ++qps;
  }
  uint64_t packets() const { return counts[transport::kSentPackets] + counts[transport::kReceivedPackets]; }
  uint64_t rnrs() const { return counts[transport::kRnrNaksSent] + counts[transport::kRnrNaksReceived]; }
  uint64_t by(TopOrder order) const {
    const uint64_t values[] = {counts[transport::kSentBytes] + counts[transport::kReceivedBytes], packets(),
                               counts[transport::kRetransmittedPackets], rnrs(),
                               waiting_sends + waiting_receives};
    return values[static_cast<size_t>(order)];
  }
};

struct Row {
  std::vector<std::string> names;
  Traffic traffic;
};

// The counters of each QP in the previous status.
class Before {
 public:
  explicit Before(const AgentStatus& status) {
    for (const SlotStatus& slot : status.slots) {
      for (const QpNumbers& qp : slot.qps) counts_[{slot.index, qp.qpn}] = &qp.counters;
    }
  }
  Counts increase_of(uint32_t slot, const QpNumbers& qp) const {
    const auto found = counts_.find({slot, qp.qpn});
    return found != counts_.end() ? increase(*found->second, qp.counters) : qp.counters;
  }

 private:
  std::map<std::pair<uint32_t, uint32_t>, const Counts*> counts_;
};

std::vector<Row> process_rows(const Before& before, const AgentStatus& now) {
  std::vector<Row> rows;
  for (const ProcessStatus& process : processes_of(now.slots)) {
    Row row{
        {verbena::format("{}", process.pid), verbena::format("{}", process.uid), printable(process.program)},
        {}};
    for (const SlotStatus& slot : now.slots) {
      if (std::ranges::find(process.slots, slot.index) == process.slots.end()) continue;
      for (const QpNumbers& qp : slot.qps) row.traffic.add(qp, before.increase_of(slot.index, qp));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Row> qp_rows(const Before& before, const AgentStatus& now) {
  std::vector<Row> rows;
  for (const SlotStatus& slot : now.slots) {
    for (const QpNumbers& qp : slot.qps) {
      Row row{{verbena::format("{:#08x}", qp.qpn), qp_type_name(qp.type), qp_state_name(qp.state),
               printable(link_name_of(now, qp)), qp.by_memory() ? "local" : "wire",
               verbena::format("{}", slot.pid), printable(slot.program)},
              {}};
      row.traffic.add(qp, before.increase_of(slot.index, qp));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<Row> link_rows(const AgentStatus& before, const AgentStatus& now) {
  std::vector<Row> rows;
  for (const control::LinkStatus& one : now.links) {
    Row row{{printable(one.link.name), printable(one.link.netdev), one.wire == "up" ? "up" : "down"}, {}};
    const auto known = std::ranges::find(before.links, one.link.device_index,
                                         [](const auto& other) { return other.link.device_index; });
    row.traffic.add(known != before.links.end() ? increase(known->counters.qps, one.counters.qps)
                                                : one.counters.qps);
    for (const SlotStatus& slot : now.slots) {
      for (const QpNumbers& qp : slot.qps) {
        if (qp.device_index == one.link.device_index) row.traffic.add(qp, {});
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::string> heading_of(TopView view) {
  std::vector<std::string> heading =
      view == TopView::kProcesses ? std::vector<std::string>{"PID", "USER", "PROGRAM"}
      : view == TopView::kLinks
          ? std::vector<std::string>{"LINK", "NETDEV", "WIRE"}
          : std::vector<std::string>{"QP", "TYPE", "STATE", "LINK", "ROUTE", "PID", "PROGRAM"};
  for (const char* name : {"QPS", "SENT B/s", "RECV B/s", "PKTS/s", "RETR/s", "RNR/s", "SENDS", "RECVS"}) {
    heading.emplace_back(name);
  }
  return heading;
}

bool passes(const Row& row, const std::string& filter) {
  return filter.empty() || std::ranges::any_of(row.names, [&](const std::string& name) {
           return name.find(filter) != std::string::npos;
         });
}

void add_row(Table& table, const Row& row, double seconds) {
  const Traffic& traffic = row.traffic;
  const auto rate = [&](uint64_t count) { return short_number(static_cast<double>(count) / seconds); };
  std::vector<std::string> cells = row.names;
  cells.push_back(verbena::format("{}", traffic.qps));
  cells.push_back(rate(traffic.counts[transport::kSentBytes]));
  cells.push_back(rate(traffic.counts[transport::kReceivedBytes]));
  cells.push_back(rate(traffic.packets()));
  cells.push_back(rate(traffic.counts[transport::kRetransmittedPackets]));
  cells.push_back(rate(traffic.rnrs()));
  cells.push_back(short_number(static_cast<double>(traffic.waiting_sends)));
  cells.push_back(short_number(static_cast<double>(traffic.waiting_receives)));
  table.add(std::move(cells));
}

std::vector<Row> rows_of(const AgentStatus& before, const AgentStatus& now, TopView view) {
  if (view == TopView::kLinks) return link_rows(before, now);
  return view == TopView::kProcesses ? process_rows(Before(before), now) : qp_rows(Before(before), now);
}

}  // namespace

std::string_view name_of(TopOrder order) {
  constexpr std::array<std::string_view, static_cast<size_t>(TopOrder::kCount)> kNames = {
      "bytes", "packets", "retransmissions", "rnrs", "waiting"};
  return kNames.at(static_cast<size_t>(order));
}

std::string short_number(double number) {
  constexpr std::string_view kUnits = " kMGTPE";
  size_t unit = 0;
  while (number >= 999.5 && unit + 1 < kUnits.size()) {
    number /= 1000;
    ++unit;
  }
  if (unit == 0) return verbena::format("{:.0f}", number);
  return verbena::format("{:.{}f}{}", number, number < 9.95 ? 1 : 0, kUnits[unit]);
}

std::vector<std::string> top_lines(const AgentStatus& before, const AgentStatus& now, double seconds,
                                   const TopSettings& settings) {
  std::vector<Row> rows = rows_of(before, now, settings.view);
  std::erase_if(rows, [&](const Row& row) { return !passes(row, settings.filter); });
  std::ranges::stable_sort(rows, [&](const Row& a, const Row& b) {
    const uint64_t first = a.traffic.by(settings.order);
    const uint64_t second = b.traffic.by(settings.order);
    return settings.reversed ? first < second : first > second;
  });
  Table table(heading_of(settings.view));
  for (const Row& row : rows) add_row(table, row, std::max(seconds, 1e-3));
  std::vector<std::string> lines;
  std::istringstream text(table.text());
  for (std::string line; std::getline(text, line);) lines.push_back(std::move(line));
  return lines;
}

}  // namespace verbena::commands
