// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/suite.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/format.h"
#include "commands/perf/director.h"
#include "commands/perf/json_report.h"
#include "commands/perf/local_server.h"
#include "commands/perf/machine.h"
#include "commands/perf/output_file.h"
#include "commands/perf/suite_page.h"
#include "commands/perf/suite_plan.h"
#include "commands/perf/suite_server.h"
#include "commands/rdma_core/common/options.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::perf {
namespace {

using nlohmann::ordered_json;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kUsualSeconds = 60, kQuickSeconds = 12;

struct Command {
  Parameters own{*find_test("ib_send_lat")};  // server, port, device
  std::string page = "verbena-perf.html";
  int seconds = 0;  // 0: the usual time
  bool is_quick = false;
  bool serves = false;
  bool json = false;
  bool help = false;
};

constexpr const char* kHelp =
    "Usage: %s [OPTION...]            measure this host\n"
    "       %s [OPTION...] PEER       measure the way to a peer\n"
    "       %s --serve [OPTION...]    be the peer, until Ctrl-C\n"
    "\n"
    "Runs perftest's tests over RC, UC and UD for about a minute, and writes a page with charts and tables.\n"
    "\nOptions:\n"
    "  -o, --output=<file>  The page (default verbena-perf.html)\n"
    "      --seconds=<n>    The time of all tests together (default 60, with --quick 12)\n"
    "      --quick          Fewer sizes\n"
    "      --json           Print the figures as one JSON object, which the page has, too\n"
    "      --serve          Wait for suites and sweeps of other hosts\n"
    "  -p, --port=<port>    Listen on or connect to this TCP port (default 18515)\n"
    "  -d, --ib-dev=<dev>   Use this device (default: the first with an active port)\n"
    "  -i, --ib-port=<port>  Use this port of the device (default 1)\n"
    "  -x, --gid-index=<index>  Use the GID with this index\n"
    "  -h, --help           Show this help\n";

// Returns nullopt after a complaint.
std::optional<Command> parse_command(const std::string& program, int argc, char** argv) {
  using rdma_core::Next;
  Command command;
  const rdma_core::Parsed parsed = rdma_core::parse(
      argc, argv,
      {rdma_core::text('o', "output", command.page),
       rdma_core::number(0, "seconds", command.seconds, 1, 86400),
       rdma_core::flag(0, "quick", command.is_quick), rdma_core::flag(0, "json", command.json),
       rdma_core::flag(0, "serve", command.serves),
       rdma_core::number('p', "port", command.own.port, 1, 65535),
       rdma_core::text('d', "ib-dev", command.own.device),
       rdma_core::number('i', "ib-port", command.own.device_port, 1, 255),
       rdma_core::number_to(
           'x', "gid-index", 0, 255,
           [&](long long index) { command.own.gid_index = static_cast<std::uint8_t>(index); }),
       rdma_core::flag('h', "help", command.help, Next::kStop)});
  if (parsed.next == Next::kWrong) return std::nullopt;
  const std::size_t wanted = command.serves ? 0 : 1;
  if (parsed.operands.size() > wanted) {
    rdma_core::complain(verbena::format("'{}' is one word too many: {} [OPTION...] {}",
                                        parsed.operands[wanted], program,
                                        command.serves ? "--serve" : "[PEER]"));
    return std::nullopt;
  }
  if (!parsed.operands.empty()) command.own.server = parsed.operands.front();
  return command;
}

// Distributes the time over the tests that are left, with the time that each takes besides.
class Budget {
 public:
  Budget(milliseconds time, std::size_t tests) : end_(steady_clock::now() + time), tests_(tests) {}

  milliseconds next() {
    constexpr milliseconds kLeast(50);
    began_ = steady_clock::now();
    const auto left = duration_cast<milliseconds>(end_ - began_) / static_cast<int>(tests_--);
    last_ = std::max(left - besides_, kLeast);
    return last_;
  }
  void done() { besides_ = duration_cast<milliseconds>(steady_clock::now() - began_) - last_; }

 private:
  steady_clock::time_point end_;
  steady_clock::time_point began_;
  std::size_t tests_;
  milliseconds last_{0};
  milliseconds besides_{20};
};

// Only the distribution of the smallest messages is drawn, and the others would make the page large.
ordered_json row_of(const Director::Both& both, bool keeps_histogram) {
  ordered_json own = both.own.report.at("results").at(0);
  if (both.own.report.at("test") == "ib_send_bw") {
    ordered_json received = both.peer.at("results").at(0);
    received["sent_average"] = own.at("average");
    own = std::move(received);
  }
  own.erase("parts");
  if (!keeps_histogram) own.erase("histogram");
  return own;
}

ordered_json run_tests(Director& director, const Command& command, std::uint32_t mtu, int seconds) {
  const std::vector<SuiteTest> plan = suite_plan(mtu, command.is_quick);
  std::size_t count = 0;
  for (const SuiteTest& each : plan) count += each.sizes.size();
  Budget budget(std::chrono::seconds(seconds), count);
  ordered_json reports = ordered_json::array();
  for (const SuiteTest& test : plan) {
    const auto began = steady_clock::now();
    ordered_json rows = ordered_json::array();
    ordered_json report;
    for (const std::uint64_t size : test.sizes) {
      const Director::Both both = director.run(suite_parameters(test, size, command.own, budget.next()));
      budget.done();
      if (report.is_null()) report = both.own.report;
      rows.push_back(row_of(both, size == test.sizes.front()));
    }
    report["results"] = std::move(rows);
    reports.push_back(std::move(report));
    verbena::print(stderr, "{:<14} {}  {:4.1f} s\n", test.test->name, name_of(test.transport),
                   std::chrono::duration<double>(steady_clock::now() - began).count());
  }
  return reports;
}

std::string date_now() {
  std::array<char, 64> text{};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return text.data();
}

// A reader never sees half a page: it is renamed when it is complete.
void write_page(const std::string& name, const std::string& text) {
  const std::string beside = name + ".part";
  write_file("suite", beside, text);
  std::error_code error;
  std::filesystem::rename(beside, name, error);
  if (error) {
    std::filesystem::remove(beside, error);
    throw std::runtime_error(verbena::format("cannot write '{}'", name));
  }
}

// Fails before a minute of measuring if the page cannot be written.
void check_writable(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::absolute(name).parent_path();
  if (!std::filesystem::is_directory(folder) || ::access(folder.c_str(), W_OK) != 0)
    throw std::runtime_error(verbena::format("cannot write '{}': its folder is not writable", name));
}

int measure(const Command& command) {
  check_writable(command.page);
  const bool is_local = command.own.server.empty();
  std::optional<LocalServer> server;
  if (is_local) server.emplace(command.own);
  Command asked = command;
  if (is_local) asked.own.server = "this host";  // makes this end the client
  Director director(is_local ? server->take_channel() : connect_by_tcp(asked.own), "suite");
  const nlohmann::json own = describe_end(asked.own);
  const auto mtu = std::min(own.at("mtu").get<std::uint32_t>(), director.peer_mtu());
  const int seconds = command.seconds != 0 ? command.seconds
                      : command.is_quick   ? kQuickSeconds
                                           : kUsualSeconds;

  ordered_json suite{{"suite", 1},         {"date", date_now()},
                     {"seconds", seconds}, {"quick", command.is_quick},
                     {"mtu", mtu},         {"route", route_between(own, director.peer())},
                     {"client", own},      {"server", director.peer()}};
  suite["tests"] = run_tests(director, asked, mtu, seconds);
  director.end();
  write_page(command.page, suite_page(suite));
  if (command.json) print_json(suite);
  verbena::print(stderr, "{} has the results\n", command.page);
  return 0;
}

}  // namespace

int run_suite(const std::string& program, int argc, char** argv) {
  const auto command = parse_command(program, argc, argv);
  if (!command) {
    rdma_core::complain(verbena::format("Try '{} --help'.", program));
    return 1;
  }
  if (command->help) {
    std::printf(kHelp, program.c_str(), program.c_str(), program.c_str());
    return 0;
  }
  return command->serves ? serve_suites(command->own) : measure(*command);
}

}  // namespace verbena::perf
