// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/report.h"

#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>

#include "commands/perf/details.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::perf {
namespace {

constexpr const char* kLine =
    "---------------------------------------------------------------------------------------\n";
constexpr const char* kLatencyHeading =
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
    "99% "
    "percentile[usec]   99.9% percentile[usec] ";
constexpr const char* kTimedLatencyHeading = " #bytes        #iterations       t_avg[usec]    tps average";
constexpr const char* kBandwidthHeading =
    " #bytes     #iterations    BW peak[%s/sec]    BW average[%s/sec]   MsgRate[Mpps]";

}  // namespace

double ProcessorUse::percent() const {
  const auto busy = static_cast<double>(ended_.busy - began_.busy);
  const auto idle = static_cast<double>(ended_.idle - began_.idle);
  return busy + idle > 0 ? busy / (busy + idle) * 100 : 0;
}

ProcessorUse::Times ProcessorUse::now() {
  std::ifstream file("/proc/stat");
  std::string name;
  std::uint64_t user = 0, nice = 0, system = 0, idle = 0;
  file >> name >> user >> nice >> system >> idle;
  timespec own{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  return {user + nice + system, idle,
          static_cast<double>(own.tv_sec) + static_cast<double>(own.tv_nsec) / 1e9};
}

void Report::line() const {
  if (is_full()) std::fputs(kLine, stdout);
}

void Report::waiting() const {
  if (!is_full()) return;
  std::puts(
      "\n************************************\n* Waiting for client to connect... "
      "*\n************************************");
  std::fflush(stdout);
}

void Report::settings(const Device& device, std::uint32_t mtu, std::uint32_t inline_size) {
  if (!parameters_.json_file.empty()) file_.begin(device, mtu, inline_size);
  if (!is_full()) return;
  const Parameters& p = parameters_;
  std::printf("%s                    %s\n", kLine, title(p, ' ').c_str());
  const std::string name = device.context.name();
  if (p.sleeps) std::printf(" Test with events. Using %s_comp0\n", name.c_str());
  if (p.is_multicast) std::puts(" MultiCast runs on UD!");
  std::printf(" Dual-port       : OFF\t\tDevice         : %s\n", name.c_str());
  std::printf(" Number of qps   : %u\t\tTransport type : %s\n", p.pairs_made(),
              name_of_transport(device.context));
  std::printf(" Connection type : %s\t\tUsing SRQ      : %s\n", name_of(p.transport), on_off(p.uses_srq));
  std::printf(" PCIe relax order: OFF\n ibv_wr* API     : OFF\n");
  if (p.shows_send_depth()) std::printf(" TX depth        : %u\n", p.send_depth);
  if (p.list_length > 1) std::printf(" Post List       : %u\n", p.list_length);
  if (p.receive_list_length > 1) std::printf(" Recv Post List  : %u\n", p.receive_list_length);
  if (p.shows_receive_depth()) std::printf(" RX depth        : %u\n", p.receive_depth);
  if (!p.is_latency()) std::printf(" CQ Moderation   : %u\n", p.moderation);
  std::printf(" Mtu             : %u[B]\n Link type       : %s\n", mtu, name_of_link(device.port));
  std::printf(" GID index       : %u\n", device.gid.gid_index);
  if (p.is(Verb::kSend) || p.is(Verb::kWrite)) {
    std::printf(" Max inline data : %u[B]\n", inline_size);
  } else {
    std::printf(" Outstand reads  : %u\n", device.reads);
  }
  std::printf(" rdma_cm QPs\t : %s\n", on_off(p.uses_cm));
  std::printf(" Data ex. method : %s", p.exchanges_by_cm ? "rdma_cm" : "Ethernet");
  if (p.type_of_service) std::printf(" \tTOS    : %u", *p.type_of_service);
  std::printf("\n%s", kLine);
  std::fflush(stdout);
}

void Report::address(const Keys& keys, bool is_local) const {
  if (!is_full()) return;
  const auto lid = !is_local && parameters_.destination_lid != 0 ? parameters_.destination_lid : keys.lid;
  std::printf(" %s address: LID %#04x QPN %#06x PSN %#06x", is_local ? "local" : "remote", lid, keys.qp_num,
              keys.psn);
  if (parameters_.is(Verb::kRead)) std::printf(" OUT %#04x", keys.reads);
  if (parameters_.is(Verb::kRead) || parameters_.is(Verb::kWrite)) {
    std::printf(" RKey %#08x VAddr %#016llx", keys.rkey, static_cast<unsigned long long>(keys.address));
  }
  if (parameters_.is_xrc()) std::printf(" SRQn %#08x", keys.srq_num);
  std::printf("\n %s", parameters_.is_multicast && is_local != parameters_.is_client() ? "MGID" : "GID");
  for (const std::uint8_t& byte : keys.gid.raw)
    std::printf(":%s%02d", &byte == keys.gid.raw ? " " : "", byte);
  std::printf("\n");
}

void Report::heading() const {
  if (!is_full()) return;
  std::fputs(kLine, stdout);
  if (parameters_.is_latency()) {
    std::fputs(parameters_.is_timed() ? kTimedLatencyHeading : kLatencyHeading, stdout);
  } else {
    const char* const unit = parameters_.unit == Unit::kMebibytes ? "MB" : "Gb";
    std::printf(kBandwidthHeading, unit, unit);
  }
  std::puts(parameters_.shows_processor && parameters_.is_timed() ? "    CPU_Util[%]" : "");
  std::fflush(stdout);
}

std::optional<double> Report::busy_part(const ProcessorUse& processor) const {
  if (!parameters_.shows_processor || !parameters_.is_timed()) return std::nullopt;
  return processor.percent();
}

void Report::end_row(const ProcessorUse& processor) const {
  if (const std::optional<double> busy = busy_part(processor)) {
    std::printf("\t    %-3.2f\n", *busy);
  } else {
    std::printf("\n");
  }
  std::fflush(stdout);
}

void Report::samples(const LatencyFigures& figures) const {
  const char* const unit = parameters_.in_cycles ? "cycles" : "usec";
  for (const auto* list : {&figures.samples, &figures.sorted}) {
    if (!(list == &figures.samples ? parameters_.shows_samples : parameters_.shows_sorted_samples)) continue;
    std::printf("#, %s\n", unit);
    for (std::size_t i = 0; i < list->size(); ++i) std::printf("%zu, %g\n", i + 1, (*list)[i]);
  }
  if (parameters_.shows_samples || parameters_.shows_sorted_samples) heading();
}

void Report::row(const LatencyFigures& figures, const ProcessorUse& processor) const {
  if (!parameters_.json_file.empty()) file_.write(figures, busy_part(processor));
  if (parameters_.json || parameters_.is_quiet) return;
  if (!parameters_.is_timed()) samples(figures);
  if (parameters_.output == Output::kLatency) {
    std::printf("%f\n", figures.average);
    return;
  }
  const auto size = static_cast<unsigned long>(figures.size),
             count = static_cast<unsigned long>(figures.iterations);
  if (parameters_.is_timed()) {
    std::printf(" %-7lu       %lu            %-7.2f        %-7.2f", size, count, figures.average,
                figures.per_second);
  } else {
    std::printf(
        " %-7lu %lu          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f "
        "\t\t%-7.2f",
        size, count, figures.least, figures.most, figures.typical, figures.average, figures.deviation,
        figures.percentile_99, figures.percentile_999);
  }
  end_row(processor);
  if (parameters_.shows_details) print_details(figures);
}

void Report::row(const BandwidthFigures& figures, const ProcessorUse& processor) const {
  if (!parameters_.json_file.empty()) file_.write(figures, busy_part(processor));
  print(figures, processor);
}

void Report::print(const BandwidthFigures& figures, const ProcessorUse& processor) const {
  if (parameters_.json || parameters_.is_quiet) return;
  if (parameters_.output == Output::kBandwidth) {
    std::printf("%f\n", figures.average);
    return;
  }
  if (parameters_.output == Output::kMessageRate) {
    std::printf("%f\n", figures.rate);
    return;
  }
  constexpr double kSmall = 0.1;  // Gb/s: below, two digits say nothing
  const bool is_small = figures.average < kSmall && parameters_.unit == Unit::kGigabits;
  const auto size = static_cast<unsigned long>(figures.size),
             count = static_cast<unsigned long>(figures.iterations);
  if (is_small) {
    std::printf(" %-7lu    %lu           %-7.6f            %-7.6f            %-7.6f", size, count,
                figures.peak, figures.average, figures.rate);
  } else {
    std::printf(" %-7lu    %-10lu       %-7.2f            %-7.2f\t\t   %-7.6f", size, count, figures.peak,
                figures.average, figures.rate);
  }
  end_row(processor);
  if (parameters_.shows_details) print_details(figures);
}

bool Report::check_limits(const BandwidthFigures& figures) const {
  const bool is_slow = figures.average < parameters_.least_bandwidth;
  const bool has_few = figures.rate < parameters_.least_rate;
  if (is_slow) rdma_core::complain("Error: BW result is below bw limit");
  if (has_few) rdma_core::complain("Error: Msg rate  is below msg_rate limit");
  return !is_slow && !has_few;
}

void Report::directions(const BandwidthFigures& own, const BandwidthFigures& peer,
                        const ProcessorUse& processor) const {
  if (!is_full()) return;
  for (const BandwidthFigures* each : {&own, &peer}) {
    if (each == &own) line();
    std::printf("\n %s results: \n", each == &own ? "Local" : "Remote");
    heading();
    print(*each, processor);
    if (each == &own) line();
  }
}

}  // namespace verbena::perf
