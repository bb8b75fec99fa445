// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/orders.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "base/bytes.h"
#include "base/format.h"

namespace verbena::perf {
namespace {

using nlohmann::json;

constexpr std::uint32_t kMaxLength = 1 << 20;
constexpr int kMaxDepth = 16;  // of JSON values, which nlohmann's functions visit by recursion

// Limits of what the queue pairs of a test take together: bytes in each direction, and requests.
constexpr std::uint64_t kMaxBuffers = 1 << 30;
constexpr std::uint64_t kMaxRequests = 1 << 24;
constexpr int kMaxMilliseconds = 3'600'000;

template <class T>
T number(const json& order, const char* name, std::uint64_t least, std::uint64_t most) {
  const json& value = order.at(name);
  const auto read = value.is_number_unsigned() ? value.get<std::uint64_t>() : most + 1;
  if (read < least || read > most)
    throw std::runtime_error(
        verbena::format("malformed order: {} is no number from {} to {}", name, least, most));
  return static_cast<T>(read);
}

// The settings that an order has besides the name of the test, with their limits.
void read_settings(const json& order, Parameters& p) {
  p.transport = number<verbena::transport>(order, "transport", IBV_QPT_RC, IBV_QPT_XRC_SEND);
  if (!p.is_xrc() && p.transport > verbena::ud)
    throw std::runtime_error("malformed order: unknown transport");
  p.size = number<std::uint64_t>(order, "size", 1, 1 << 30);
  p.iterations = number<std::uint64_t>(order, "iterations", 5, 10'000'000);
  p.duration = std::chrono::milliseconds(number<int>(order, "duration_ms", 0, kMaxMilliseconds));
  p.margin = std::chrono::milliseconds(number<int>(order, "margin_ms", 0, kMaxMilliseconds));
  p.queue_pairs = number<std::uint32_t>(order, "queue_pairs", 1, 16384);
  p.send_depth = number<std::uint32_t>(order, "send_depth", 1, 15000);
  p.receive_depth = number<std::uint32_t>(order, "receive_depth", 1, 16384);
  p.moderation = number<std::uint32_t>(order, "moderation", 1, 1024);
  p.list_length = number<std::uint32_t>(order, "list_length", 1, 15000);
  p.unit = number<Unit>(order, "unit", 0, 1);
  p.is_bidirectional = order.at("is_bidirectional").get<bool>();
  p.is_reversed = order.at("is_reversed").get<bool>();
  p.uses_srq = order.at("uses_srq").get<bool>();
  p.compares = order.at("compares").get<bool>();
  p.verifies = order.at("verifies").get<bool>();
  p.has_peak = order.at("has_peak").get<bool>();
}

}  // namespace

void write_object(Channel& channel, const json& object) {
  const std::string text = object.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kMaxLength) throw std::runtime_error("a report is too long for the peer");
  std::array<char, sizeof(std::uint32_t)> length{};
  store_be(length.data(), static_cast<std::uint32_t>(text.size()));
  channel.write(length);
  channel.write(text);
}

json read_object(Channel& channel) {
  std::array<char, sizeof(std::uint32_t)> length{};
  channel.read(length);
  const auto size = load_be<std::uint32_t>(length.data());
  if (size > kMaxLength) throw std::runtime_error("malformed message from the peer: it is too long");
  std::string text(size, '\0');
  channel.read(text);
  const auto check_depth = [](int depth, json::parse_event_t, const json&) {
    if (depth > kMaxDepth) throw std::runtime_error("malformed message from the peer: it is nested too deep");
    return true;
  };
  json object = json::parse(text, check_depth, false);
  if (!object.is_object()) throw std::runtime_error("malformed message from the peer: no JSON object");
  return object;
}

json order_of(const Parameters& p) {
  return {{"test", p.test.name},
          {"transport", static_cast<unsigned>(p.transport)},
          {"size", p.size},
          {"iterations", p.iterations},
          {"duration_ms", static_cast<std::uint64_t>(p.duration.count())},
          {"margin_ms", static_cast<std::uint64_t>(std::max<std::int64_t>(p.margin.count(), 0))},
          {"queue_pairs", p.queue_pairs},
          {"send_depth", p.send_depth},
          {"receive_depth", p.receive_depth},
          {"moderation", p.moderation},
          {"list_length", p.list_length},
          {"unit", static_cast<unsigned>(p.unit)},
          {"is_bidirectional", p.is_bidirectional},
          {"is_reversed", p.is_reversed},
          {"uses_srq", p.uses_srq},
          {"compares", p.compares},
          {"verifies", p.verifies},
          {"has_peak", p.has_peak}};
}

Parameters parameters_of(const json& order, const Parameters& own) {
  Parameters ordered = own;
  try {
    const Test* const test = find_test(order.at("test").get<std::string>());
    if (test == nullptr || test->is_raw) throw std::runtime_error("malformed order: unknown test");
    ordered.test = *test;
    read_settings(order, ordered);
  } catch (const json::exception& wrong) {
    throw std::runtime_error(verbena::format("malformed order: {}", wrong.what()));
  }
  ordered.has_size = true;
  ordered.has_moderation = true;  // the client has derived it
  ordered.extent = Extent::kOneSize;
  ordered.sweep.reset();
  ordered.is_multicast = ordered.has_group = false;
  ordered.is_quiet = true;
  ordered.json_file.clear();
  ordered.shows_details = false;
  ordered.settle();
  const std::uint64_t timed = ordered.has_peak ? ordered.iterations * std::uint64_t{ordered.queue_pairs} : 0;
  if (ordered.size * ordered.queue_pairs > kMaxBuffers || timed > kMaxRequests ||
      std::uint64_t{ordered.queue_pairs} * (ordered.send_depth + ordered.receive_depth) > kMaxRequests)
    throw std::runtime_error("the order needs more than 1 GiB of buffers, or too many requests");
  return ordered;
}

}  // namespace verbena::perf
