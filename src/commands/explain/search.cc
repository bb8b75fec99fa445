// SPDX-License-Identifier: Apache-2.0
#include "commands/explain/search.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <system_error>

#include "adapter/queues/status_words.h"
#include "base/format.h"

namespace verbena::commands::explanations {
namespace {

std::string lower(std::string_view text) {
  std::string small(text);
  for (char& letter : small) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return small;
}

std::vector<const Entry*> those(const std::function<bool(const Entry&)>& fit) {
  std::vector<const Entry*> found;
  for (const Entry& entry : table()) {
    if (fit(entry)) found.push_back(&entry);
  }
  return found;
}

std::optional<Kind> kind_named(const std::string& word) {
  const auto found = std::find(kKindWords.begin(), kKindWords.end(), word);
  if (found == kKindWords.end()) return std::nullopt;
  return static_cast<Kind>(found - kKindWords.begin());
}

// Parses "12", "-12" or "0xc".
std::optional<int> number_in(std::string_view word) {
  const bool negative = word.starts_with('-');
  if (negative) word.remove_prefix(1);
  const int base = word.starts_with("0x") ? 16 : 10;
  if (base == 16) word.remove_prefix(2);
  int number = 0;
  const auto read = std::from_chars(word.data(), word.data() + word.size(), number, base);
  if (word.empty() || read.ec != std::errc() || read.ptr != word.data() + word.size()) return std::nullopt;
  return negative ? -number : number;
}

// Whether `word` names the entry: "IBV_WC_RETRY_EXC_ERR", "wc_retry_exc_err", "RETRY_EXC_ERR".
bool is_name(const Entry& entry, const std::string& word) {
  const std::string name = lower(entry.name);
  if (name == word) return true;
  for (const std::string_view prefix : {"ibv_", "ibv_wc_", "ibv_event_", "rdma_cm_", "rdma_cm_event_"}) {
    if (name.starts_with(prefix) && name.substr(prefix.size()) == word) return true;
  }
  return false;
}

// The entry's text as the libraries print it.
std::string_view printed(const Entry& entry) {
  if (entry.kind == Kind::kErrno) return std::strerror(entry.number);
  const auto index = static_cast<size_t>(entry.number);
  if (entry.kind == Kind::kCompletion && index < std::size(queues::kCompletionStatuses))
    return queues::kCompletionStatuses[index];
  if (entry.kind == Kind::kEvent && index < std::size(queues::kEventTypes)) return queues::kEventTypes[index];
  return {};
}

bool speaks_of(const Entry& entry, const std::string& words) {
  std::string text = verbena::format("{} {} {} {}", entry.name, printed(entry), entry.meaning, entry.look);
  for (const std::string_view cause : entry.causes) text += verbena::format(" {}", cause);
  return lower(text).find(words) != std::string::npos;
}

}  // namespace

std::string_view short_name(std::string_view name) {
  for (const std::string_view prefix : {"IBV_WC_", "IBV_EVENT_", "RDMA_CM_EVENT_"}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

std::vector<const Entry*> search(const std::vector<std::string>& words) {
  if (words.empty()) return those([](const Entry&) { return true; });
  std::optional<Kind> kind = kind_named(lower(words.front()));
  const size_t first = kind && words.size() > 1 ? 1 : 0;
  const auto fits = [&](const Entry& entry) { return !kind || entry.kind == *kind; };
  if (kind && words.size() == 1) {
    const std::string word = lower(words.front());
    return those([&](const Entry& entry) { return fits(entry) || is_name(entry, word); });
  }

  const std::string wanted = lower(verbena::join(std::span(words).subspan(first), " "));
  if (const auto number = number_in(wanted)) {
    if (*number < 0 && !kind) kind = Kind::kErrno;  // events of librdmacm hold negative errno values
    return those([&](const Entry& entry) { return fits(entry) && entry.number == std::abs(*number); });
  }
  auto found = those([&](const Entry& entry) { return fits(entry) && is_name(entry, wanted); });
  if (!found.empty()) return found;
  return those([&](const Entry& entry) { return fits(entry) && speaks_of(entry, wanted); });
}

}  // namespace verbena::commands::explanations
