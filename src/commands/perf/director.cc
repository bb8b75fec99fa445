// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/director.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "commands/perf/device.h"
#include "commands/perf/hangup_watch.h"
#include "commands/perf/json_report.h"
#include "commands/perf/orders.h"

namespace verbena::perf {
namespace {

// The peer's answer to an order. Throws std::runtime_error with the reason if it has refused.
nlohmann::json answer(Channel& channel) {
  nlohmann::json read = read_object(channel);
  if (read.contains("error"))
    throw std::runtime_error(
        verbena::format("the server refuses the test: {}", printable(read["error"].get<std::string>())));
  return read;
}

// The peer's report of a test of one size.
nlohmann::json read_report(Channel& channel) {
  const nlohmann::json report = answer(channel);
  nlohmann::json rows = nlohmann::json::array();
  if (!report.at("results").empty()) rows.push_back(checked_row(report.at("results").at(0)));
  return {{"results", std::move(rows)}};
}

}  // namespace

Director::Director(std::unique_ptr<Channel> channel, const char* option) : channel_(std::move(channel)) {
  Exchange exchange(borrow(*channel_), true);
  if (exchange.versions(true) != PeerKind::kTakesOrders) {
    throw std::runtime_error(verbena::format(
        "{}: the server is no verbena perf, and perftest's programs run one test only", option));
  }
  peer_ = read_object(*channel_);
}

std::uint32_t Director::peer_mtu() const {
  const auto mtu = peer_.at("mtu").get<std::uint32_t>();
  if (mtu < bytes_of(IBV_MTU_256) || mtu > bytes_of(IBV_MTU_4096))
    throw std::runtime_error(verbena::format("the server's MTU is said to be {} bytes", mtu));
  return mtu;
}

Director::Both Director::run(const Parameters& parameters) {
  write_object(*channel_, order_of(parameters));
  answer(*channel_);
  const HangupWatch watch(channel_->descriptor());
  Outcome own = run_test(parameters, borrow(*channel_), false);
  return {std::move(own), read_report(*channel_)};
}

void Director::end() {
  write_object(*channel_, {{"end", true}});
}

}  // namespace verbena::perf
