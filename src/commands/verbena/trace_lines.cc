// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/trace_lines.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <set>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "commands/verbena/names.h"
#include "commands/verbena/table.h"
#include "observe/trace/connection_note.h"
#include "observe/trace/event_words.h"

namespace verbena::commands {
namespace {

using control::TraceSource;
using Json = nlohmann::ordered_json;

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Formats a wall-clock time. A process may claim any time, so one beyond the calendar is shown as a number.
std::string wall_text(Duration since_epoch) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(since_epoch);
  const auto second = static_cast<std::time_t>(whole.count());
  const auto micros = std::chrono::floor<std::chrono::microseconds>(since_epoch - whole).count();
  std::tm local{};
  std::array<char, 64> text{};
  if (::localtime_r(&second, &local) == nullptr ||
      std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local) == 0) {
    return verbena::format("{:.6f}", seconds(since_epoch));
  }
  return verbena::format("{}.{:06}", text.data(), micros);
}

// Returns the rdma_cm identifiers that a queue pair has had. Their other events, such as address resolution,
// concern the queue pair, too.
std::set<uint32_t> identifiers_of(const std::vector<trace::Event>& events, uint32_t qpn) {
  std::set<uint32_t> ids;
  for (const trace::Event& event : events) {
    if (qpn != 0 && event.qpn == qpn && trace::is_of_connection(event.kind)) {
      ids.insert(trace::unpacked(event.numbers).id);
    }
  }
  return ids;
}

}  // namespace

std::vector<trace::Event> chosen(std::vector<trace::Event> events, const TraceChoice& choice,
                                 TimePoint reference) {
  const std::set<uint32_t> ids = choice.qpn ? identifiers_of(events, *choice.qpn) : std::set<uint32_t>();
  std::erase_if(events, [&](const trace::Event& event) {
    const bool is_other =
        choice.qpn && event.qpn != *choice.qpn &&
        !(trace::is_of_connection(event.kind) && ids.contains(trace::unpacked(event.numbers).id));
    return is_other || (choice.since && event.time < reference - *choice.since);
  });
  if (choice.last && events.size() > *choice.last) {
    events.erase(events.begin(), events.end() - static_cast<ptrdiff_t>(*choice.last));
  }
  return events;
}

std::string line_of(const trace::Event& event, pid_t pid, const TraceStyle& style) {
  const Duration since_boot = event.time.time_since_epoch();
  const Duration since_epoch =
      since_boot > Duration::max() - style.to_wall_clock ? Duration::max() : since_boot + style.to_wall_clock;
  const std::string text = trace::words_of(event);
  if (!style.json) {
    const std::string time = style.wall_clock
                                 ? wall_text(since_epoch)
                                 : verbena::format("{:+14.6f}", seconds(event.time - style.reference));
    // An identifier's events before it has a queue pair.
    const std::string qp = event.qpn != 0 || !trace::is_of_connection(event.kind)
                               ? verbena::format("QP {:#08x}", event.qpn)
                               : std::string("QP -       ");
    return verbena::format("{}  {}  {}\n", time, qp, text);
  }
  Json line = {{"time_ns", since_boot.count()},
               {"wall_ns", since_epoch.count()},
               {"pid", pid},
               {"qpn", event.qpn},
               {"event", trace::name_of(event.kind)},
               {"trouble", trace::is_trouble(event)}};
  for (const auto& [name, value] : trace::texts_of(event)) line[std::string(name)] = value;
  for (const trace::Field& field : trace::fields_of(event.kind)) {
    const uint64_t value = field.of(event);
    if (field.is_signed) {
      line[std::string(field.name)] = static_cast<int32_t>(value);
    } else {
      line[std::string(field.name)] = value;
    }
  }
  line["text"] = text;
  return line.dump() + "\n";
}

void TraceList::add(const TraceSource& source) {
  const auto is_its = [&](const Process& each) {
    if (each.end.has_value() != source.end.has_value()) return false;
    if (source.end) return each.end->process == source.end->process;
    return source.pid != 0 && each.pid == source.pid && each.uid == source.uid;
  };
  auto known = std::ranges::find_if(processes_, is_its);
  if (known == processes_.end()) {
    processes_.push_back(
        {.pid = source.pid, .uid = source.uid, .program = source.program, .end = source.end});
    known = processes_.end() - 1;
  }
  const auto events = trace::Reader(source.file.get(), source.offset).read_rare();
  known->events += events.size();
  known->troubles += static_cast<size_t>(std::ranges::count_if(events, trace::is_trouble));
}

std::string TraceList::as_text(TimePoint now) const {
  const auto state_of = [now](const Process& process) -> std::string {
    if (!process.end) return "runs";
    return verbena::format("{} {:.0f} s ago", process.end->in_order ? "closed its devices" : "ended",
                           seconds(now - process.end->time));
  };
  Table table({"PID", "PROGRAM", "UID", "EVENTS", "ERRORS", "PROCESS"});
  for (const Process& each : processes_) {
    table.add({each.pid != 0 ? std::to_string(each.pid) : "?", each.program, std::to_string(each.uid),
               std::to_string(each.events), std::to_string(each.troubles), state_of(each)});
  }
  return table.empty() ? "No program uses Verbena, and no trace of one is kept.\n" : table.text();
}

std::string TraceList::as_json(TimePoint now) const {
  std::string lines;
  for (const Process& each : processes_) {
    Json line = {{"pid", each.pid},       {"program", each.program}, {"uid", each.uid},
                 {"events", each.events}, {"errors", each.troubles}, {"runs", !each.end}};
    if (each.end) {
      line["ended_seconds_ago"] = seconds(now - each.end->time);
      line["closed_its_devices"] = each.end->in_order;
    }
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return lines;
}

}  // namespace verbena::commands
