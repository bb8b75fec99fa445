// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/suite_plan.h"

#include <algorithm>

namespace verbena::perf {
namespace {

using Sizes = std::vector<std::uint64_t>;

Sizes sizes_of(const Test& test, verbena::transport transport, std::uint32_t mtu, bool is_quick) {
  if (test.verb == Verb::kAtomic) return {8};
  const bool is_latency = test.measure == Measure::kLatency;
  Sizes sizes = is_latency ? Sizes{2, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1 << 20}
                           : Sizes{2, 64, 256, 1024, 4096, 16384, 65536, 262144, 1 << 20, 8 << 20};
  if (is_quick) sizes = is_latency ? Sizes{2, 4096, 65536} : Sizes{64, 4096, 65536, 1 << 20};
  if (transport != verbena::ud) return sizes;
  std::erase_if(sizes, [&](std::uint64_t each) { return each > mtu; });
  if (sizes.back() != mtu) sizes.push_back(mtu);
  return sizes;
}

// The suite's server is the same for all tests, so tests for raw Ethernet, which have no exchange, are left
// out.
bool has(const Test& test, verbena::transport transport) {
  if (test.is_raw) return false;
  if (transport == verbena::rc) return true;
  return test.verb == Verb::kSend || (test.verb == Verb::kWrite && transport == verbena::uc);
}

}  // namespace

std::vector<SuiteTest> suite_plan(std::uint32_t mtu, bool is_quick) {
  std::vector<SuiteTest> plan;
  for (const Measure measure : {Measure::kLatency, Measure::kBandwidth}) {
    for (const Test& test : all_tests()) {
      for (const verbena::transport transport : {verbena::rc, verbena::uc, verbena::ud}) {
        if (test.measure == measure && has(test, transport))
          plan.push_back({&test, transport, sizes_of(test, transport, mtu, is_quick)});
      }
    }
  }
  return plan;
}

Parameters suite_parameters(const SuiteTest& test, std::uint64_t size, const Parameters& own,
                            std::chrono::milliseconds time) {
  Parameters made(*test.test);
  made.server = own.server;
  made.device = own.device;
  made.device_port = own.device_port;
  made.gid_index = own.gid_index;
  made.transport = test.transport;
  made.size = size;
  made.has_size = true;
  made.duration = time;
  made.margin = time / 8;
  made.is_quiet = true;
  made.shows_details = true;
  made.settle();
  return made;
}

}  // namespace verbena::perf
