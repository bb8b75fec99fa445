// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/verify.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/format.h"

namespace verbena::perf {
namespace {

// Neighbouring bytes, cache lines, pages and queue pairs differ.
std::byte pattern(std::size_t index, std::size_t offset) {
  const std::uint64_t place = offset + (std::uint64_t{index} << 40) + 1;
  return static_cast<std::byte>(place * 0x9e3779b97f4a7c15U >> 56);
}

// The number of places that the messages of a size have used in a buffer.
std::uint64_t places(const Endpoint& endpoint, const Parameters& parameters, std::uint64_t size) {
  if (parameters.is_latency()) return 1;
  return std::min(endpoint.layout().length(size), parameters.iterations);
}

void check_places(const Endpoint& endpoint, const Parameters& parameters, std::uint64_t size,
                  bool is_target) {
  // The last byte of a message of WRITE latency is its number.
  const std::uint64_t checked = parameters.is(Verb::kWrite) && parameters.is_latency() ? size - 1 : size;
  for (std::size_t i = 0; i < endpoint.count(); ++i) {
    const verbena::slice buffer = is_target ? endpoint.receive_buffer(i) : endpoint.send_buffer(i);
    for (std::uint64_t k = 0; k < places(endpoint, parameters, size); ++k) {
      const std::uint64_t offset = k * endpoint.layout().step(size);
      check_pattern(buffer.part(offset, checked), i, offset, is_target ? "target" : "fetched data");
    }
  }
}

// Each atomic has added one to a place that was zero.
void check_sums(const Endpoint& endpoint, const Parameters& parameters, std::uint64_t size) {
  for (std::size_t i = 0; i < endpoint.count(); ++i) {
    std::uint64_t sum = 0;
    for (std::uint64_t k = 0; k < places(endpoint, parameters, size); ++k) {
      std::uint64_t value = 0;
      std::memcpy(&value, endpoint.receive_buffer(i).data() + k * endpoint.layout().step(size), sizeof value);
      sum += value;
    }
    if (sum != parameters.iterations)
      throw std::runtime_error(verbena::format("--verify: target of queue pair {}: {} was added, not {}", i,
                                               sum, parameters.iterations));
  }
}

}  // namespace

void fill_with_pattern(const verbena::slice& buffer, std::size_t index) {
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer.data()[i] = pattern(index, i);
}

void check_pattern(const verbena::slice& data, std::size_t index, std::size_t offset, const char* what) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (data.data()[i] == pattern(index, offset + i)) [[likely]]
      continue;
    throw std::runtime_error(verbena::format(
        "--verify: {} of queue pair {}: byte {} of {} is {:#04x}, not {:#04x}", what, index, i, data.size(),
        static_cast<unsigned>(data.data()[i]), static_cast<unsigned>(pattern(index, offset + i))));
  }
}

void check_fetched(const Endpoint& endpoint, const Parameters& parameters, std::uint64_t size) {
  if (!parameters.verifies || !parameters.is(Verb::kRead)) return;
  check_places(endpoint, parameters, size, false);
  for (std::size_t i = 0; i < endpoint.count(); ++i)
    std::ranges::fill(endpoint.send_buffer(i).bytes(), std::byte{0});
}

void check_target(const Endpoint& endpoint, const Parameters& parameters, std::uint64_t size) {
  if (!parameters.verifies) return;
  if (parameters.is(Verb::kWrite)) check_places(endpoint, parameters, size, true);
  if (parameters.is(Verb::kAtomic) && !parameters.compares) check_sums(endpoint, parameters, size);
}

}  // namespace verbena::perf
