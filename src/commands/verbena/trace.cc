// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include <CLI/CLI.hpp>
#include <poll.h>
#include <unistd.h>

#include "agent/status/kept_traces.h"
#include "base/command_line/command_line.h"
#include "base/format.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/end_signals.h"
#include "commands/verbena/help.h"
#include "commands/verbena/installation.h"
#include "commands/verbena/report.h"
#include "commands/verbena/trace_lines.h"
#include "control/client/command_client.h"
#include "observe/trace/reader.h"

namespace verbena::commands {

using namespace command_line;

namespace {

using control::TraceClient;
using control::TraceSource;

constexpr const char* kTraceExamples =
    "Each program that uses Verbena records the latest events of its queue pairs: states, peers,\n"
    "timeouts, NAKs, what was sent again, errors with their requests. The agent remembers what has happened\n"
    "to its connections: calls of librdmacm, REQ, REP, RTU, REJ, DREQ, DREP, and events with their causes.\n"
    "It can be read while the program runs, when it hangs, and after it was killed or has crashed. Without a "
    "PID: whose traces there are.\n"
    "Times are seconds from now, or from the program's end: -0.25 is a quarter of a second before.\n"
    "\n"
    "Examples:\n"
    "  verbena trace                            whose traces there are\n"
    "  verbena trace 4711                       what has happened to process 4711's queue pairs\n"
    "  verbena trace --qp 0x11 --last 20 4711   the last 20 events of one of them, and of its connection\n"
    "  verbena trace --follow 4711              and what happens from now on, until Ctrl-C\n"
    "  verbena trace --all --seconds 5 4711     each request, packet and completion, too, for 5 seconds\n"
    "\n"
    "With --all the program does more for each message, as long as the command runs. Events that come "
    "faster\n"
    "than they are read are lost, and counted. You see your own programs' traces; root sees all.\n";

constexpr Duration kSlowLook = std::chrono::milliseconds(50);
constexpr Duration kFastLook = std::chrono::milliseconds(1);
constexpr Duration kLifeInterval = std::chrono::milliseconds(500);

struct TraceWish {
  pid_t pid = 0;  // 0: list all traces
  TraceChoice choice;
  double since = 0;
  TraceStyle style;
  bool follows = false;
  bool all = false;
  uint64_t seconds = 0;  // 0: until a signal
};

// The trace rings of a process. Each read() returns the events since the previous one.
class ProcessTrace {
 public:
  // Adds rings, or takes a later copy of those of the slot. The agent returns copies of its own traces.
  void add(TraceSource source) {
    const uint32_t slot = source.slot;
    const auto [place, is_new] = rings_.try_emplace(slot, std::move(source));
    if (is_new) return;
    Ring& ring = place->second;
    ring.source = std::move(source);
    ring.reader.read_from(ring.source.file.get());
  }
  bool is_traced() const {
    return std::ranges::any_of(rings_, [](const auto& each) { return each.second.reader.has_rings(); });
  }
  std::vector<trace::Event> read() {
    std::vector<trace::Event> events;
    for (auto& [slot, ring] : rings_) {
      const auto some = ring.reader.read();
      events.insert(events.end(), some.begin(), some.end());
    }
    std::ranges::stable_sort(events, {}, &trace::Event::time);
    return events;
  }
  uint64_t missed() const {
    uint64_t sum = 0;
    for (const auto& [slot, ring] : rings_) sum += ring.reader.missed();
    return sum;
  }

 private:
  struct Ring {
    explicit Ring(TraceSource s) : source(std::move(s)), reader(source.file.get(), source.offset) {}
    TraceSource source;
    trace::Reader reader;
  };
  std::map<uint32_t, Ring> rings_;  // by slot
};

// Prints events. False: the output is closed.
bool print(const std::vector<trace::Event>& events, const TraceWish& wish) {
  for (const trace::Event& event : events) {
    const std::string line = line_of(event, wish.pid, wish.style);
    if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size()) return false;
  }
  return std::fflush(stdout) == 0;
}

using Sources = control::AdminResult<std::vector<TraceSource>>;

// Returns the traces of the running process with this pid.
Sources of_running(TraceClient& client, pid_t pid) {
  std::vector<TraceSource> found;
  const auto taken = client.living([&](TraceSource source) {
    if (source.pid == pid) found.push_back(std::move(source));
  });
  if (!taken) return tl::unexpected(taken.error());
  return found;
}

// The same of an ended process. If several had the pid: of the latest.
Sources of_ended(TraceClient& client, pid_t pid) {
  std::vector<TraceSource> found;
  const auto taken = client.ended([&](TraceSource source) {
    if (source.pid != pid) return;
    if (!found.empty() && found.front().end->process != source.end->process) found.clear();
    found.push_back(std::move(source));
  });
  if (!taken) return tl::unexpected(taken.error());
  return found;
}

// Prints events until a signal, the requested time, or the process's end.
int follow(TraceClient& client, ProcessTrace& process, const TraceWish& wish) {
  const EndSignals signals;
  const TimePoint began = MonotonicClock::now();
  const TimePoint end = wish.seconds == 0 ? kNever : began + std::chrono::seconds(wish.seconds);
  const TraceChoice from_now_on{.qpn = wish.choice.qpn};
  TimePoint next_life = began + kLifeInterval;
  bool lives = true;
  bool is_read = true;
  bool is_asked_to_end = false;
  while (lives && is_read && !is_asked_to_end && MonotonicClock::now() < end) {
    if (const TimePoint now = MonotonicClock::now(); now >= next_life) {
      next_life = now + kLifeInterval;
      auto slots = of_running(client, wish.pid);
      if (!slots) return report(slots.error());
      lives = !slots->empty();
      for (TraceSource& slot : *slots) process.add(std::move(slot));
    }
    const auto events = chosen(process.read(), from_now_on, began);
    is_read = print(events, wish);
    const Duration rest = !wish.all ? kSlowLook : events.empty() ? kFastLook : Duration::zero();
    pollfd entry{signals.fd(), POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(rest).count()));
    is_asked_to_end = entry.revents != 0;
  }
  if (is_read) print(chosen(process.read(), from_now_on, began), wish);
  if (process.missed() > 0) {
    complain("{} events came faster than they could be read, and are lost", process.missed());
  }
  if (!lives) complain("process {} has ended; 'verbena trace {}' shows what it left", wish.pid, wish.pid);
  return kDone;
}

int show_process(TraceClient& client, TraceWish wish) {
  auto sources = of_running(client, wish.pid);
  if (sources && sources->empty()) sources = of_ended(client, wish.pid);
  if (!sources) return report(sources.error());
  if (sources->empty()) {
    return complain(
        "there is no trace of a process {} here that you may read; 'verbena trace' lists those there are",
        wish.pid);
  }
  const auto end = sources->front().end;
  if (end && (wish.follows || wish.all)) {
    return complain("process {} has ended: nothing more will happen to it", wish.pid);
  }
  const std::string program = sources->front().program;
  ProcessTrace process;
  for (TraceSource& source : *sources) process.add(std::move(source));
  if (!process.is_traced()) {
    return complain("{} (pid {}) writes no trace: its Verbena is of an older version", program, wish.pid);
  }
  if (wish.all) {
    if (const auto wanted = client.want_details(wish.pid); !wanted) return report(wanted.error());
  }
  wish.style.reference = end ? end->time : MonotonicClock::now();
  if (!print(chosen(process.read(), wish.choice, wish.style.reference), wish)) return kFailed;
  return wish.follows || wish.all ? follow(client, process, wish) : kDone;
}

int list(TraceClient& client, const TraceWish& wish) {
  TraceList traces;
  const auto add = [&](const TraceSource& source) { traces.add(source); };
  auto taken = client.living(add);
  if (taken) taken = client.ended(add);
  if (!taken) return report(taken.error());
  const TimePoint now = MonotonicClock::now();
  verbena::print("{}", wish.style.json ? traces.as_json(now) : traces.as_text(now));
  return kDone;
}

// Connects to the agent. If none runs, starts one only if a former agent has left traces, which the new one
// takes over.
control::AdminResult<std::unique_ptr<TraceClient>> connect() {
  auto client = TraceClient::connect({.start_agent = false, .agent_program = {}});
  const std::string left = agent::left_traces_path();
  if (client || left.empty() || ::access(left.c_str(), R_OK) != 0) return client;
  return TraceClient::connect(start_installed_agent());
}

int run(TraceWish wish) {
  wish.style.to_wall_clock =
      std::chrono::system_clock::now().time_since_epoch() - MonotonicClock::now().time_since_epoch();
  const auto client = connect();
  if (client) return wish.pid == 0 ? list(**client, wish) : show_process(**client, std::move(wish));
  if (!is_absence(client.error())) return report(client.error());
  if (wish.pid == 0 && wish.style.json) return kDone;
  if (wish.pid == 0) {
    verbena::print("{}\n", describe_absence());
    return kDone;
  }
  return complain("no agent is running: there is no trace of process {}", wish.pid);
}

// Rejects these options if no process is given.
void require_process(const TraceWish& wish, const std::vector<CLI::Option*>& options) {
  if (wish.pid != 0) return;
  std::string given;
  for (const CLI::Option* option : options) {
    if (option->count() == 0) continue;
    given += option->get_name() + ' ';
    if (option->get_items_expected_max() > 0) given += option->results().front() + ' ';
  }
  if (!given.empty()) {
    throw CLI::ValidationError(verbena::format(
        "give a process ID: verbena trace {}PID; 'verbena trace' lists the processes", given));
  }
}

}  // namespace

void add_trace(CLI::App& verbena, int& status) {
  CLI::App* command =
      verbena.add_subcommand("trace", "Show what has happened to a program's queue pairs and connections");
  explain(*command, "verbena trace [OPTION...] [PID]", kTraceExamples);
  const auto wish = std::make_shared<TraceWish>();
  command->add_option("PID", wish->pid, "the process, also one that has ended")->transform(process_id());
  CLI::Option* qp = command->add_option("--qp", wish->choice.qpn, "only this queue pair's events")
                        ->transform(qp_number())
                        ->type_name("QPN");
  CLI::Option* since =
      command->add_option("--since", wish->since, "only the last so many seconds, 0.001 and more")
          ->transform(decimal_number("a number of seconds, 0.001 or more", 0.001, 1e9))
          ->type_name("SECONDS");
  CLI::Option* last = command->add_option("--last", wish->choice.last, "only the last so many events")
                          ->transform(whole_number("a number of events, 1 or more", 1, UINT64_MAX))
                          ->type_name("EVENTS");
  command->add_flag("--json", wish->style.json, "one JSON object a line, for programs");
  CLI::Option* wall = command->add_flag("--wall", wish->style.wall_clock, "times of the clock on the wall");
  CLI::Option* follows =
      command->add_flag("--follow", wish->follows, "go on with what happens, until Ctrl-C");
  CLI::Option* all =
      command->add_flag("--all", wish->all, "from now on each request, packet and completion, too");
  CLI::Option* seconds =
      command->add_option("--seconds", wish->seconds, "go on for so many seconds, 1 to 86400")
          ->transform(whole_number("a number of seconds from 1 to 86400", 1, 86'400))
          ->type_name("SECONDS");
  command->callback([=, &status] {
    require_process(*wish, {qp, since, last, wall, follows, all, seconds});
    if (seconds->count() > 0 && follows->count() == 0 && all->count() == 0) {
      throw CLI::ValidationError("--seconds", "only with --follow or --all");
    }
    if (since->count() > 0) {
      wish->choice.since = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(wish->since));
    }
    status = run(*wish);
  });
}

}  // namespace verbena::commands
