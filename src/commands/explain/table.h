// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <span>
#include <string_view>

namespace verbena::commands::explanations {

enum class Kind {
  kCompletion,  // enum ibv_wc_status
  kEvent,       // enum ibv_event_type
  kCmEvent,     // enum rdma_cm_event_type
  kErrno,       // what verbs and librdmacm's functions answer
  kReject,      // why a connection is rejected: the status of RDMA_CM_EVENT_REJECTED
  kNak,         // the syndrome of a negative acknowledgement
  kTerm,        // words of the specification; they have no numbers
};
inline constexpr std::array<std::string_view, 7> kKindNames = {"completion status",
                                                               "asynchronous event",
                                                               "event of librdmacm",
                                                               "errno",
                                                               "reject reason",
                                                               "AETH syndrome",
                                                               "term"};
// What tells numbers of one kind from those of another on the command line.
inline constexpr std::array<std::string_view, 7> kKindWords = {"wc",     "event", "cm",  "errno",
                                                               "reject", "nak",   "term"};

struct Entry {
  Kind kind;
  int number;  // negative: it has none
  bool has_number() const { return number >= 0; }
  std::string_view name;
  std::string_view meaning;
  std::array<std::string_view, 4> causes;  // the likeliest first; empty: no more
  std::string_view look;                   // at what to look; empty: nothing is wrong
};

// All there are, by kind, then by number.
std::span<const Entry> table();

}  // namespace verbena::commands::explanations
