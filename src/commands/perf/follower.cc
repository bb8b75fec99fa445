// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/follower.h"

#include <chrono>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/format.h"
#include "commands/perf/hangup_watch.h"
#include "commands/perf/machine.h"
#include "commands/perf/orders.h"
#include "commands/perf/session.h"

namespace verbena::perf {
namespace {

// Limits of one test, and of the time until the client has sent its order and taken the answer. Others wait
// for their turn.
constexpr std::chrono::hours kLongestTest{2};
constexpr std::chrono::minutes kLongestOrder{1};

}  // namespace

std::optional<Parameters> next_order(Channel& channel, const Parameters& own) {
  const HangupWatch watch(channel.descriptor(), kLongestOrder);
  const nlohmann::json order = read_object(channel);
  if (order.contains("end")) return std::nullopt;
  try {
    Parameters ordered = parameters_of(order, own);
    write_object(channel, {{"ready", true}});
    return ordered;
  } catch (const std::exception& wrong) {
    write_object(channel, {{"error", wrong.what()}});
    throw;
  }
}

int follow_orders(Channel& channel, const Parameters& own) {
  {
    const HangupWatch watch(channel.descriptor(), kLongestOrder);
    write_object(channel, describe_end(own));
  }
  while (auto ordered = next_order(channel, own)) {
    const HangupWatch watch(channel.descriptor(), kLongestTest);
    const Outcome outcome = run_test(std::move(*ordered), borrow(channel), false);
    write_object(channel, outcome.report);
  }
  return 0;
}

int serve_client(Channel& channel, const Parameters& own) {
  {
    const HangupWatch watch(channel.descriptor(), kLongestOrder);
    if (Exchange(borrow(channel), false).versions() != PeerKind::kTakesOrders)
      throw std::runtime_error("--serve: the client is no suite or sweep of verbena perf");
  }
  return follow_orders(channel, own);
}

}  // namespace verbena::perf
