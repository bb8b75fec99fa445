// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <set>
#include <string>

#include <gtest/gtest.h>

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

TEST(PerfSuite, EscapesTextsOfThePeerInItsPage) {
  nlohmann::ordered_json row = {{"bytes", 2U}, {"iterations", 9U}, {"average", 1.0},
                                {"p50", 1.0},  {"p99.9", 2.0},     {"million_messages_per_second", 1.0}};
  nlohmann::ordered_json bigger = row;
  bigger["bytes"] = 4U;
  bigger["average"] = nullptr;  // of a test whose messages were all lost
  row["histogram"] = {{1.0, 9U}};
  const nlohmann::ordered_json suite = {
      {"date", "today"},
      {"seconds", 1},
      {"route", "wire"},
      {"client", end_named("a")},
      {"server", end_named("</script><b>")},
      {"tests",
       {{{"test", "ib_send_lat"}, {"connection", "RC"}, {"results", {row, bigger}}},
        {{"test", "ib_send_bw"}, {"connection", "RC"}, {"results", {row, bigger}}}}}};
  const std::string page = suite_page(suite);
  EXPECT_EQ(page.find("<b>"), page.npos);
  EXPECT_NE(page.find("&lt;/script&gt;&lt;b&gt;"), page.npos);
  EXPECT_NE(page.find("\\u003c/script>"), page.npos) << "the embedded JSON cannot end its element";
  EXPECT_EQ(page.find("http"), page.find("http://www.w3.org/2000/svg")) << "the page needs no other file";
  EXPECT_NE(page.find("SEND over RC: latency"), page.npos);
}

}  // namespace
}  // namespace verbena::perf
