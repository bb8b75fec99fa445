// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/chart.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "commands/perf/plots.h"
#include "commands/perf/svg_chart.h"
#include "commands/perf/text_chart.h"

namespace verbena::perf {
namespace {

std::string labels(const Ruler& ruler, std::size_t count) {
  std::string all;
  for (const Ruler::Tick& each : ruler.ticks(count)) all += each.label + ";";
  return all;
}

TEST(PerfChart, LinearAxesBeginAtZeroAndHaveRoundSteps) {
  const Ruler ruler(Scale::kLinear, 17, 93);
  EXPECT_EQ(labels(ruler, 8), "0;20;40;60;80;100;");
  EXPECT_DOUBLE_EQ(ruler.place(0), 0);
  EXPECT_DOUBLE_EQ(ruler.place(50), 0.5);
  EXPECT_EQ(labels(Ruler(Scale::kLinear, 0, 0), 8), "0;1;") << "all values are zero";
}

TEST(PerfChart, LogarithmicAxesEndAtRoundNumbers) {
  EXPECT_EQ(labels(Ruler(Scale::kLog, 0.7, 30), 8), "0.5;1;2;5;10;20;50;");
  EXPECT_EQ(labels(Ruler(Scale::kLog, 0.7, 30000), 8), "1;10;100;1000;10000;") << "only powers of ten fit";
  EXPECT_DOUBLE_EQ(Ruler(Scale::kLog, 1, 100).place(10), 0.5);
}

TEST(PerfChart, SizesHaveUnits) {
  EXPECT_EQ(labels(Ruler(Scale::kBytes, 512, 4096), 8), "512 B;1 KiB;2 KiB;4 KiB;");
  EXPECT_EQ(labels(Ruler(Scale::kBytes, 2, 8 << 20), 8), "2 B;16 B;128 B;1 KiB;8 KiB;64 KiB;512 KiB;4 MiB;");
  EXPECT_EQ(labels(Ruler(Scale::kPowers, 1, 3), 8), "1;2;4;");
}

TEST(PerfChart, EachNineOfAPercentileTakesAsMuchPlace) {
  const Ruler ruler(Scale::kNines, 0, 0.9999);
  EXPECT_NEAR(ruler.place(0.9), 0.25, 1e-9);
  EXPECT_NEAR(ruler.place(0.99), 0.5, 1e-9);
  EXPECT_EQ(labels(ruler, 8), "0 %;50 %;90 %;99 %;99.9 %;99.99 %;");
}

TEST(PerfChart, OneValueHasAnAxis) {
  for (const Scale scale : {Scale::kLinear, Scale::kLog, Scale::kBytes, Scale::kPowers}) {
    const Ruler ruler(scale, 8, 8);
    EXPECT_GE(ruler.place(8), 0);
    EXPECT_LE(ruler.place(8), 1);
    EXPECT_FALSE(ruler.ticks(8).empty());
  }
}

nlohmann::ordered_json bandwidth_report() {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const unsigned pairs : {1U, 4U}) {
    for (const unsigned size : {64U, 128U}) {
      rows.push_back({{"bytes", size},
                      {"queue_pairs", pairs},
                      {"send_depth", 16U},
                      {"unit", "MiB/s"},
                      {"average", size * pairs},
                      {"million_messages_per_second", 1.5}});
    }
  }
  return {{"test", "ib_write_bw"}, {"connection", "RC"}, {"results", rows}};
}

TEST(PerfPlots, HaveALineForEachCombinationOfASweep) {
  const auto charts = charts_of(bandwidth_report());
  ASSERT_EQ(charts.size(), 2U);
  EXPECT_EQ(charts[0].y.label, "bandwidth [MiB/s]");
  EXPECT_EQ(charts[1].y.label, "message rate [million/s]");
  ASSERT_EQ(charts[0].series.size(), 2U);
  EXPECT_EQ(charts[0].series[0].name, "1 QP") << "the depth does not vary";
  EXPECT_EQ(charts[0].series[1].name, "4 QP");
  EXPECT_EQ(charts[0].series[1].points[1].y, 512);
}

TEST(PerfPlots, UseTheSettingThatVariesAsTheAxis) {
  nlohmann::ordered_json report = bandwidth_report();
  report["results"].erase(3);
  report["results"].erase(1);
  EXPECT_EQ(charts_of(report).at(0).x.label, "queue pairs");
  report["results"].erase(1);
  EXPECT_TRUE(charts_of(report).empty()) << "nothing varies";
  report["results"].clear();
  EXPECT_TRUE(charts_of(report).empty());
}

TEST(PerfPlots, ShowTheDistributionOfOneSizeOfALatencyTest) {
  const nlohmann::ordered_json report = {
      {"test", "ib_send_lat"},
      {"connection", "UD"},
      {"results", {{{"bytes", 2U}, {"unit", "usec"}, {"histogram", {{1.0, 98U}, {4.0, 1U}}}}}}};
  const auto charts = charts_of(report);
  ASSERT_EQ(charts.size(), 1U);
  EXPECT_EQ(charts[0].y.scale, Scale::kLog);
  const auto& points = charts[0].series.at(0).points;
  ASSERT_EQ(points.size(), 2U);
  EXPECT_DOUBLE_EQ(points[0].x, 0.98);
  EXPECT_DOUBLE_EQ(points[1].x, 0.99) << "the slowest of 99 messages";
}

TEST(PerfTextChart, HasLinesOfOneWidth) {
  const Chart chart = charts_of(bandwidth_report())[0];
  const std::string text = text_chart(chart, false);
  EXPECT_NE(text.find("ib_write_bw over RC: bandwidth [MiB/s]"), text.npos);
  EXPECT_NE(text.find("     600 ┤"), text.npos) << text;
  EXPECT_NE(text.find("● 1 QP"), text.npos);
  EXPECT_EQ(text.find('\x1b'), text.npos);
  EXPECT_NE(text_chart(chart, true).find("\x1b[36m●"), std::string::npos);
}

TEST(PerfTextChart, DrawsRisingLinesFromTheLowerLeftToTheUpperRight) {
  const Chart chart{"t", {"x", Scale::kLinear}, {"y", Scale::kLinear}, {{"s", {{0, 0}, {1, 1}}}}};
  const std::string text = text_chart(chart, false);
  const std::string corner =
      "┤"
      "●";
  EXPECT_LT(text.find("●\n"), text.find(corner)) << "the upper right marker ends the first row of the plot";
  EXPECT_NE(text.find(corner), text.npos) << "the lower left marker begins the last row of the plot";
}

TEST(PerfSvgChart, NeedsNothingElseAndEscapesNames) {
  Chart chart = charts_of(bandwidth_report())[0];
  chart.series[0].name = "<script>&\"";
  const std::string text = svg_file({chart, chart});
  EXPECT_TRUE(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
  EXPECT_NE(text.find("&lt;script&gt;&amp;&quot;"), text.npos);
  EXPECT_EQ(text.find("<script>"), text.npos);
  EXPECT_NE(text.find("prefers-color-scheme:dark"), text.npos);
  EXPECT_NE(text.find("height=\"800\""), text.npos) << "two charts, one below the other";
  EXPECT_EQ(text.find("nan"), text.npos);
}

TEST(PerfChart, LeavesOutLatenciesOfTestsWithoutMessages) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Chart chart{"t", {"x", Scale::kBytes}, {"y", Scale::kLog}, {{"s", {{2, 0}, {4, kInfinity}, {8, 3}}}}};
  ASSERT_EQ(without_unplaceable(chart).series[0].points.size(), 1U);
  EXPECT_EQ(without_unplaceable(chart).series[0].points[0].y, 3);
  chart.series[0].points.pop_back();
  for (const std::string& text : {svg_chart(chart), text_chart(chart, false)})
    EXPECT_EQ(text.find("inf"), text.npos);
}

constexpr Scale kScales[] = {Scale::kLinear, Scale::kLog, Scale::kBytes, Scale::kPowers, Scale::kNines};
constexpr double kUnplaceable[] = {std::numeric_limits<double>::denorm_min(),
                                   std::numeric_limits<double>::max(),
                                   std::numeric_limits<double>::infinity(),
                                   std::numeric_limits<double>::quiet_NaN(),
                                   -1,
                                   1e19};

TEST(PerfChart, LeavesOutFiguresThatNoAxisHasRoomFor) {
  for (const double value : kUnplaceable) {
    for (const Scale scale : kScales)
      EXPECT_EQ(can_place(scale, value), scale == Scale::kNines && value > 0 && value < 1) << value;
  }
  EXPECT_FALSE(can_place(Scale::kNines, 1));
  for (const Scale scale : {Scale::kLinear, Scale::kLog, Scale::kBytes, Scale::kPowers}) {
    EXPECT_TRUE(can_place(scale, 1e-12));
    EXPECT_TRUE(can_place(scale, 1e18));
    EXPECT_EQ(can_place(scale, 0), scale == Scale::kLinear);
  }
}

TEST(PerfChart, HasShortAxesWhateverItIsToShow) {
  for (const Scale scale : kScales) {
    for (const double least : kUnplaceable) {
      for (const double most : kUnplaceable) {
        const Ruler ruler(scale, least, most);
        EXPECT_LE(ruler.ticks(1000).size(), 200U) << least << " to " << most;
        for (const double value : kUnplaceable) {
          const double place = ruler.place(value);
          EXPECT_TRUE(place >= 0 && place <= 1) << value;
        }
      }
    }
  }
}

TEST(PerfChart, DrawsWhatAPeerSays) {
  Chart chart{"t", {"x", Scale::kBytes}, {"y", Scale::kLinear}, {{"s", {}}}};
  for (const double value : kUnplaceable) chart.series[0].points.push_back({8, value});
  chart.series[0].points.push_back({8, 1e18});
  for (const std::string& text : {svg_chart(chart), text_chart(chart, false)})
    EXPECT_NE(text.find("1000000000000000000"), text.npos) << text;
}

TEST(PerfSvgChart, SaysHowManyLinesAreNotDrawn) {
  Chart chart{"t", {"x", Scale::kLinear}, {"y", Scale::kLinear}, {}};
  for (int i = 0; i < 11; ++i) chart.series.push_back({"s", {{0, 0}, {1, 1}}});
  EXPECT_NE(svg_chart(chart).find("3 more are not drawn"), std::string::npos);
  EXPECT_NE(text_chart(chart, false).find("3 more lines are not drawn"), std::string::npos);
}

}  // namespace
}  // namespace verbena::perf
