// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "commands/perf/json_report.h"
#include "commands/perf/machine.h"
#include "commands/perf/suite_page.h"
#include "commands/perf/suite_plan.h"

namespace verbena::perf {
namespace {

TEST(PerfSuite, HasEachTestOverEachTransportThatHasIt) {
  std::set<std::string> names;
  for (const SuiteTest& each : suite_plan(1024, false)) {
    names.insert(std::string(each.test->name) + " " + name_of(each.transport));
    for (const std::uint64_t size : each.sizes) {
      EXPECT_NO_THROW(suite_parameters(each, size, Parameters(*each.test), std::chrono::milliseconds(100)));
      EXPECT_TRUE(each.transport != verbena::ud || size <= 1024) << "a datagram is one packet";
    }
  }
  EXPECT_EQ(names.size(), 2U * 7);
  EXPECT_TRUE(names.contains("ib_send_lat UD") && names.contains("ib_write_bw UC"));
  EXPECT_FALSE(names.contains("ib_read_bw UC"));
}

nlohmann::json end_named(const char* host) {
  return {{"host", host},   {"kernel", "Linux"}, {"processor", "p"},         {"processors", 2},
          {"program", "v"}, {"device", "d"},     {"driver_version", "1"},    {"gid", "g"},
          {"mtu", 1024},    {"boot", "b"},       {"network_namespace", "n"}, {"wire_only", false}};
}

TEST(PerfSuite, NamesTheRouteBetweenTwoEnds) {
  const nlohmann::json own = end_named("a");
  nlohmann::json peer = end_named("a");
  EXPECT_EQ(route_between(own, peer), "shared memory");
  peer["wire_only"] = true;
  EXPECT_EQ(route_between(own, peer), "wire of one host (VERBENA_LOCAL=off)");
  peer = end_named("a");
  peer["network_namespace"] = "m";
  EXPECT_EQ(route_between(own, peer), "wire between two network namespaces of one host");
  peer["boot"] = "c";
  EXPECT_EQ(route_between(own, peer), "wire");
}

// A suite with one latency test and one bandwidth test of two sizes. All messages of the second were lost.
nlohmann::ordered_json suite_between(const nlohmann::json& client, const nlohmann::json& server) {
  nlohmann::ordered_json row = {{"bytes", 2U}, {"iterations", 9U}, {"average", 1.0},
                                {"p50", 1.0},  {"p99.9", 2.0},     {"million_messages_per_second", 1.0}};
  nlohmann::ordered_json bigger = row;
  bigger["bytes"] = 4U;
  bigger["iterations"] = 0U;
  bigger["average"] = std::numeric_limits<double>::infinity();
  row["histogram"] = {{1.0, 9U}};
  return {{"date", "today"},
          {"seconds", 1},
          {"route", "wire"},
          {"client", client},
          {"server", server},
          {"tests",
           {{{"test", "ib_send_lat"}, {"connection", "RC"}, {"results", {row, bigger}}},
            {{"test", "ib_send_bw"}, {"connection", "RC"}, {"results", {row, bigger}}}}}};
}

TEST(PerfSuite, ShowsNoFiguresOfLostMessages) {
  const std::string page = suite_page(suite_between(end_named("a"), end_named("b")));
  EXPECT_EQ(page.find("inf<"), page.npos);
  EXPECT_NE(page.find("<td>0</td><td>–</td>"), page.npos);
  EXPECT_NE(page.find("<td>9</td><td>1.00</td>"), page.npos);
}

nlohmann::json row_of_peer() {
  return {{"bytes", 2U},      {"iterations", 9U},        {"unit", "usec"},          {"average", 1.5},
          {"p99.9", nullptr}, {"parts", {1.0, nullptr}}, {"histogram", {{1.5, 9U}}}};
}

TEST(PerfSuite, TakesKnownFieldsOfAPeersReportOnly) {
  nlohmann::json row = row_of_peer();
  row["more"] = std::string(1000, 'x');
  EXPECT_EQ(checked_row(row), row_of_peer());
}

TEST(PerfSuite, RefusesReportsWithImpossibleFigures) {
  constexpr double kMax = std::numeric_limits<double>::max();
  const nlohmann::json list = nlohmann::json::array({1, 2, 3}), many(10'000, 1.0);
  for (const auto& [field, wrong] : std::vector<std::pair<const char*, nlohmann::json>>{{"average", kMax},
                                                                                        {"average", -1},
                                                                                        {"average", "1"},
                                                                                        {"bytes", list},
                                                                                        {"p99.9", 1e19},
                                                                                        {"unit", "\u009b"},
                                                                                        {"unit", 1},
                                                                                        {"parts", {kMax}},
                                                                                        {"parts", many},
                                                                                        {"histogram", many},
                                                                                        {"histogram", {list}},
                                                                                        {"histogram", 1}}) {
    nlohmann::json row = row_of_peer();
    row[field] = wrong;
    EXPECT_THROW(checked_row(row), std::runtime_error) << field;
  }
}

// A terminal takes U+009B for the beginning of a command.
TEST(PerfSuite, PrintsJsonInAscii) {
  ::testing::internal::CaptureStdout();
  print_json({{"host", "\x7f\u009b"}});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "{\n  \"host\": \"\\u007f\\u009b\"\n}\n");
}

TEST(PerfSuite, EscapesTextsOfThePeerInItsPage) {
  const std::string page = suite_page(suite_between(end_named("a"), end_named("</script><b>")));
  EXPECT_EQ(page.find("<b>"), page.npos);
  EXPECT_NE(page.find("&lt;/script&gt;&lt;b&gt;"), page.npos);
  EXPECT_NE(page.find("\\u003c/script>"), page.npos) << "the embedded JSON cannot end its element";
  EXPECT_EQ(page.find("http"), page.find("http://www.w3.org/2000/svg")) << "the page needs no other file";
  EXPECT_NE(page.find("SEND over RC: latency"), page.npos);
}

}  // namespace
}  // namespace verbena::perf
