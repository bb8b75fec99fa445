// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/size_text.h"

#include "commands/rdma_core/common/options.h"

namespace verbena::perf {
namespace {

constexpr std::uint64_t kKibi = 1 << 10, kMebi = 1 << 20;

}  // namespace

std::optional<std::uint64_t> read_size(std::string text) {
  std::uint64_t factor = 1;
  if (!text.empty() && (text.back() == 'K' || text.back() == 'M')) {
    factor = text.back() == 'K' ? kKibi : kMebi;
    text.pop_back();
  }
  const auto read = rdma_core::read_number(text, 1, kLargestMessage / static_cast<long long>(factor));
  if (!read) return std::nullopt;
  return static_cast<std::uint64_t>(*read) * factor;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes >= kMebi && bytes % kMebi == 0) return std::to_string(bytes / kMebi) + "M";
  if (bytes >= kKibi && bytes % kKibi == 0) return std::to_string(bytes / kKibi) + "K";
  return std::to_string(bytes);
}

}  // namespace verbena::perf
