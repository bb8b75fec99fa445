// SPDX-License-Identifier: Apache-2.0
// `verbena perf`: measures latency and bandwidth, compatible with perftest.
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/format.h"
#include "commands/perf/compare.h"
#include "commands/perf/exchange.h"
#include "commands/perf/options.h"
#include "commands/perf/parameters.h"
#include "commands/perf/program.h"
#include "commands/perf/suite.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::perf {
namespace {

constexpr int kWrongUsage = 1;  // as perftest

std::string last_part(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

void print_help(const std::string& program) {
  std::printf(
      "Usage: %s [OPTION...]           wait for a client, as the server\n"
      "       %s [OPTION...] SERVER    connect to the server\n"
      "       verbena perf --compare A.json B.json    compare two reports of --json\n"
      "       verbena perf suite [PEER]               run all tests for a minute, and write a page about it\n"
      "\n"
      "Measures latency or bandwidth between two ends. Each may be perftest's program of the same name.\n"
      "The ends of raw_ethernet_* do not connect: they have --server or --client instead of SERVER.\n"
      "\nTests:\n",
      program.c_str(), program.c_str());
  for (const Test& each : all_tests()) std::printf("  %s\n", each.name);
  std::printf("\nOptions:\n");
  print_options();
}

int complain_of_usage(const std::string& what, const std::string& program) {
  rdma_core::complain(what);
  rdma_core::complain(verbena::format("Try '{} --help'.", program));
  return kWrongUsage;
}

int run(const Test& test, const std::string& program, int argc, char** argv) {
  try {
    const Parsed parsed = parse(test, program, argc, argv);
    if (parsed.parameters) return run_program(*parsed.parameters);
    if (parsed.reason == NoTest::kWrong)
      return complain_of_usage(" Parser function exited with Error", program);
    if (parsed.reason == NoTest::kVersion) {
      std::printf("Version: %s\n", kProtocolVersion);
    } else {
      print_help(program);
    }
    return 0;
  } catch (const std::invalid_argument& wrong) {
    return complain_of_usage(wrong.what(), program);
  }
}

}  // namespace
}  // namespace verbena::perf

namespace verbena::rdma_core {

// The test is the name of the program, if that is a link of a test's name, or the first word.
int perf(int argc, char** argv) {
  using namespace verbena::perf;
  const std::string name = last_part(argv[0]);
  if (const Test* const test = find_test(name)) return run(*test, name, argc, argv);
  const std::string first = argc > 1 ? argv[1] : "";
  if (const Test* const test = find_test(first))
    return run(*test, "verbena perf " + first, argc - 1, argv + 1);
  if (first == "suite") return run_suite("verbena perf suite", argc - 1, argv + 1);
  if (first == "--compare") {
    if (argc == 4) return compare(argv[2], argv[3]);
    return complain_of_usage("two files are needed: verbena perf --compare A.json B.json", "verbena perf");
  }
  if (first == "-h" || first == "--help") {
    print_help("verbena perf TEST");
    return 0;
  }
  return complain_of_usage(first.empty() ? "the test is missing; for example: verbena perf ib_send_lat"
                                         : verbena::format("'{}' is no test", first),
                           "verbena perf");
}

}  // namespace verbena::rdma_core
