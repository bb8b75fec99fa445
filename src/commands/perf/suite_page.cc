// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/suite_page.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "commands/perf/parameters.h"
#include "commands/perf/plots.h"
#include "commands/perf/size_text.h"
#include "commands/perf/svg_chart.h"

namespace verbena::perf {
namespace {

using nlohmann::ordered_json;

constexpr const char* kStyle =
    "body{font:16px/1.5 system-ui,'DejaVu Sans',sans-serif;max-width:960px;margin:0 auto;padding:1rem;"
    "color:#1b1b1b;background:#fff}\n"
    "h1{font-size:1.7rem;margin-bottom:.2rem}h2{font-size:1.25rem;margin:2.2rem 0 "
    ".6rem}h3{font-size:1rem;margin:1.4rem 0 .3rem}\n"
    "svg{display:block;width:100%;height:auto;margin:.8rem 0;border:1px solid #ddd;border-radius:6px}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem}th,td{padding:.25rem "
    ".8rem;text-align:right;"
    "border-bottom:1px solid #ddd;white-space:nowrap}thead th{border-bottom:2px solid #888}\n"
    ".facts th,.facts "
    "td{text-align:left;white-space:normal;vertical-align:top}.lead{color:#555;margin-top:0}\n"
    "@media (prefers-color-scheme:dark){body{color:#e8e8e8;background:#16181c}svg,th,td{border-color:#3a3d44}"
    ".lead{color:#b0b0b0}a{color:#58b4f0}}\n"
    "@media print{svg,table{break-inside:avoid}}\n";

bool is_latency(const ordered_json& report) {
  return report.at("test").get<std::string>().ends_with("_lat");
}

// "SEND over UD" for ib_send_lat with UD.
std::string name_of(const ordered_json& report) {
  std::string verb = report.at("test").get<std::string>();
  verb = verb.substr(3, verb.rfind('_') - 3);
  std::ranges::transform(verb, verb.begin(), [](char each) { return static_cast<char>(std::toupper(each)); });
  return verb + " over " + report.at("connection").get<std::string>();
}

std::string text_of(const ordered_json& value) {
  return escaped(value.is_string() ? value.get<std::string>() : value.dump());
}

// The lines of one figure over the message size, for the tests that have several sizes.
Chart chart_over_size(const ordered_json& suite, bool of_latency, const char* figure, std::string title,
                      Axis y) {
  Chart chart{std::move(title), {"message size", Scale::kBytes}, std::move(y), {}};
  for (const ordered_json& report : suite.at("tests")) {
    if (is_latency(report) != of_latency || report.at("results").size() < 2) continue;
    Series series{name_of(report), {}};
    for (const ordered_json& row : report.at("results"))
      series.points.push_back({figure_of(row, "bytes"), figure_of(row, figure)});
    chart.series.push_back(std::move(series));
  }
  return chart;
}

Chart distributions(const ordered_json& suite) {
  Chart chart{"Distribution of the latency of small messages",
              {"part of the messages that take at most this time", Scale::kNines},
              {"latency [usec]", Scale::kLog},
              {}};
  for (const ordered_json& report : suite.at("tests")) {
    const ordered_json& row = report.at("results").front();
    if (!row.contains("histogram") || row.at("histogram").empty()) continue;
    chart.series.push_back(distribution_of(
        row, verbena::format("{}, {} B", name_of(report), row.at("bytes").get<std::uint64_t>())));
  }
  return chart;
}

// A column of a test's table.
struct Column {
  const char* field;
  const char* heading;
  int digits;
};
constexpr Column kLatencyColumns[] = {{"average", "average [usec]", 2},
                                      {"p50", "50 %", 2},
                                      {"p90", "90 %", 2},
                                      {"p99", "99 %", 2},
                                      {"p99.9", "99.9 %", 2},
                                      {"p99.99", "99.99 %", 2},
                                      {"processor_usec_per_message", "processor [usec]", 3}};
constexpr Column kBandwidthColumns[] = {{"average", "bandwidth [MiB/s]", 1},
                                        {"sent_average", "sent [MiB/s]", 1},
                                        {"million_messages_per_second", "million messages/s", 4},
                                        {"processor_usec_per_message", "processor [usec]", 3}};

// A row without messages has no figures.
std::string cell(const ordered_json& row, const Column& column) {
  const double figure = figure_of(row, column.field);
  if (!std::isfinite(figure) || row.at("iterations").get<std::uint64_t>() == 0) return "<td>–</td>";
  return verbena::format("<td>{:.{}f}</td>", figure, column.digits);
}

std::string table(const ordered_json& report, std::span<const Column> columns) {
  const ordered_json& rows = report.at("results");
  std::string text =
      "<div class=\"wide\"><table><thead><tr><th scope=\"col\">size</th><th scope=\"col\">messages</th>";
  for (const Column& each : columns) {
    if (rows.front().contains(each.field)) text += verbena::format("<th scope=\"col\">{}</th>", each.heading);
  }
  text += "</tr></thead><tbody>\n";
  for (const ordered_json& row : rows) {
    text += verbena::format("<tr><th scope=\"row\">{}</th><td>{}</td>",
                            size_text(row.at("bytes").get<std::uint64_t>()),
                            row.at("iterations").get<std::uint64_t>());
    for (const Column& each : columns) {
      if (row.contains(each.field)) text += cell(row, each);
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

std::string tables(const ordered_json& suite) {
  std::string text;
  for (const ordered_json& report : suite.at("tests")) {
    text += verbena::format("<h3>{}: {} ({})</h3>\n", name_of(report),
                            is_latency(report) ? "latency" : "bandwidth", text_of(report.at("test")));
    text += is_latency(report) ? table(report, kLatencyColumns) : table(report, kBandwidthColumns);
  }
  return text;
}

std::string facts(const ordered_json& suite) {
  constexpr std::pair<const char*, const char*> kFacts[] = {{"host", "host"},
                                                            {"kernel", "kernel"},
                                                            {"processor", "processor"},
                                                            {"processors", "usable processors"},
                                                            {"program", "program"},
                                                            {"device", "device"},
                                                            {"driver_version", "firmware or driver"},
                                                            {"gid", "GID"},
                                                            {"mtu", "path MTU [bytes]"}};
  std::string text =
      "<div class=\"wide\"><table class=\"facts\"><thead><tr><td></td><th scope=\"col\">client</th><th "
      "scope=\"col\">server</th></tr></thead><tbody>\n";
  for (const auto& [field, heading] : kFacts) {
    text += verbena::format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n", heading,
                            text_of(suite.at("client").at(field)), text_of(suite.at("server").at(field)));
  }
  return text + "</tbody></table></div>\n";
}

std::string settings(const ordered_json& suite) {
  return verbena::format(
      "<p>All tests together took about {} seconds; the first and the last eighth of each do not count. Both "
      "ends poll. "
      "Latency tests have one message under way, bandwidth tests up to {} on one queue pair. No message is "
      "sent inline. "
      "Data went by <strong>{}</strong>.</p>\n",
      suite.at("seconds").get<int>(), kDefaultDepth, text_of(suite.at("route")));
}

constexpr const char* kLimits =
    "<ul><li>The latency of SEND and WRITE is half a round trip; that of READ and atomics is the whole "
    "operation.</li>\n"
    "<li>The figures hold for this machine at this time. Other programs, power saving and virtual machines "
    "change them; "
    "repeat the suite before you compare.</li>\n"
    "<li>Both ends poll. If they have no processor each, latencies show the scheduler's turns of "
    "milliseconds.</li>\n"
    "<li>Each row is a fraction of a second long, so percentiles above 99.9 % rest on few messages.</li>\n"
    "<li>Percentiles come from a histogram whose steps are at most 3 % wide.</li>\n"
    "<li>UC and UD repeat nothing. Bandwidth of SEND is that of the messages which arrived, and "
    "&ldquo;sent&rdquo; that of all. "
    "For WRITE over UC only the sent ones are known. A lost message of a latency test stops it: its row has "
    "few messages.</li>\n"
    "<li>The route follows from facts about both ends and Verbena&rsquo;s rule; it was not observed packet "
    "by packet.</li>\n"
    "<li>Processor time is that of the end whose figures are shown. Threads that poll use a whole "
    "processor.</li></ul>\n";

// JSON that no text can end early.
std::string embedded(const ordered_json& suite) {
  std::string text;
  for (const char each : suite.dump(-1, ' ', false, ordered_json::error_handler_t::replace)) {
    text += each == '<' ? std::string("\\u003c") : std::string(1, each);
  }
  return text;
}

}  // namespace

std::string suite_page(const ordered_json& suite) {
  const std::string client = text_of(suite.at("client").at("host")),
                    server = text_of(suite.at("server").at("host"));
  const std::string where = client == server ? client : client + " and " + server;
  std::string page = verbena::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>RDMA performance of "
      "{0}</title>\n<style>\n{1}{2}</style></head><body>\n"
      "<h1>RDMA performance of {0}</h1>\n<p class=\"lead\">{3}, by {4}, measured by verbena perf suite</p>\n",
      where, kStyle, chart_style(), text_of(suite.at("date")), text_of(suite.at("route")));
  page += "<h2>Latency</h2>\n";
  page += svg_chart(chart_over_size(suite, true, "p50", "Median latency", {"latency [usec]", Scale::kLog}));
  page += svg_chart(chart_over_size(suite, true, "p99.9", "Latency that 99.9 % of the messages do not exceed",
                                    {"latency [usec]", Scale::kLog}));
  page += svg_chart(distributions(suite));
  page += "<h2>Bandwidth and message rate</h2>\n";
  page +=
      svg_chart(chart_over_size(suite, false, "average", "Bandwidth", {"bandwidth [MiB/s]", Scale::kLinear}));
  page += svg_chart(chart_over_size(suite, false, "million_messages_per_second", "Message rate",
                                    {"message rate [million/s]", Scale::kLinear}));
  page += "<h2>Where it was measured</h2>\n" + facts(suite);
  page += "<h2>How it was measured</h2>\n" + settings(suite);
  page += std::string("<h2>Limits</h2>\n") + kLimits;
  page += "<h2>All figures</h2>\n" + tables(suite);
  page += "<script type=\"application/json\" id=\"results\">" + embedded(suite) + "</script>\n";
  return page + "</body></html>\n";
}

}  // namespace verbena::perf
