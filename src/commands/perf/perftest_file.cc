// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/perftest_file.h"

#include <cmath>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "commands/perf/output_file.h"

namespace verbena::perf {
namespace {

// perftest rounds to two digits.
double rounded(double figure) {
  return std::round(figure * 100) / 100;
}

}  // namespace

const char* on_off(bool is_on) {
  return is_on ? "ON" : "OFF";
}

std::string title(const Parameters& p, char separator) {
  std::string text = name_of(p.test.verb);
  const auto add = [&](bool applies, std::string_view words) {
    if (applies) (text += separator) += words;
  };
  add(p.is(Verb::kAtomic), p.compares ? "CMP_AND_SWAP" : "FETCH_AND_ADD");
  add(p.is_latency() && !p.is_burst_latency(), "Latency");
  add(!p.is_latency() && p.is_bidirectional, "Bidirectional");
  add(!p.is_latency() && p.list_length > 1, separator == ' ' ? "Post List" : "Post_List");
  add(!p.is_latency(), "BW");
  add(p.raw && p.raw->forwards, "forwarding");
  add(p.is_multicast, "Multicast");
  add(true, "Test");
  return text;
}

void PerftestFile::begin(const Device& device, std::uint32_t mtu, std::uint32_t inline_size) {
  const Parameters& p = parameters_;
  const std::string name = device.context.name();
  auto& all = information_;
  all["test"] = title(p, '_');
  if (p.sleeps) all["Test with events"] = "Using_" + name + "_comp0";
  if (p.is_multicast) all["MultiCast_runs"] = "on_UD";
  all["Dual_port"] = "OFF";
  all["Device"] = name;
  all["Number_of_qps"] = p.pairs_made();
  all["Transport_type"] = name_of_transport(device.context);
  all["Connection_type"] = name_of(p.transport);
  all["Using_SRQ"] = on_off(p.uses_srq);
  all["PCIe_relax_order"] = "OFF";
  all["ibv_wr_API"] = "OFF";
  if (p.shows_send_depth()) all["TX_depth"] = p.send_depth;
  if (p.list_length > 1) all["Post_List"] = p.list_length;
  if (p.receive_list_length > 1) all["Recv_Post_List"] = p.receive_list_length;
  if (p.shows_receive_depth()) all["RX_depth"] = p.receive_depth;
  if (!p.is_latency()) all["CQ_Moderation"] = p.moderation;
  all["Mtu"] = mtu;
  all["Link_type"] = name_of_link(device.port);
  all["GID_index"] = device.gid.gid_index;
  if (p.is(Verb::kSend) || p.is(Verb::kWrite)) {
    all["Max_inline_data"] = inline_size;
  } else {
    all["Outstand_reads"] = device.reads;
  }
  all["rdma_cm_QPs"] = on_off(p.uses_cm);
  all["Data_ex_method"] = p.exchanges_by_cm ? "rdma_cm" : "Ethernet";
  if (p.type_of_service) all["TOS"] = *p.type_of_service;
  // A file that cannot be written is reported before the test.
  write(nlohmann::ordered_json::object(), std::nullopt);
}

void PerftestFile::write(const LatencyFigures& figures, std::optional<double> busy) const {
  nlohmann::ordered_json results = {{"MsgSize", figures.size}, {"n_iterations", figures.iterations}};
  if (parameters_.is_timed()) {
    results["t_avg"] = rounded(figures.average);
    results["tps_average"] = rounded(figures.per_second);
  } else {
    results["t_min"] = rounded(figures.least);
    results["t_max"] = rounded(figures.most);
    results["t_typical"] = rounded(figures.typical);
    results["t_avg"] = rounded(figures.average);
    results["t_stdev"] = rounded(figures.deviation);
    results["percentile_99"] = rounded(figures.percentile_99);
    results["percentile_99.9"] = rounded(figures.percentile_999);
  }
  write(std::move(results), busy);
}

void PerftestFile::write(const BandwidthFigures& figures, std::optional<double> busy) const {
  write({{"MsgSize", figures.size},
         {"n_iterations", figures.iterations},
         {"BW_peak", figures.peak},
         {"BW_average", figures.average},
         {"MsgRate", figures.rate}},
        busy);
}

void PerftestFile::write(nlohmann::ordered_json results, std::optional<double> busy) const {
  if (busy) results["CPU_util"] = rounded(*busy);
  const nlohmann::ordered_json whole = {{"test_info", information_}, {"results", std::move(results)}};
  write_file("--out_json_file", parameters_.json_file,
             whole.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace verbena::perf
