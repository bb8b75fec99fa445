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
  kErrno,       // errors of verbs and of librdmacm's functions
  kReject,      // `status` of an RDMA_CM_EVENT_REJECTED event
  kNak,         // syndrome of a NAK
  kTerm,        // a term of the specification, without a number
};
inline constexpr std::array<std::string_view, 7> kKindNames = {"completion status",
                                                               "asynchronous event",
                                                               "event of librdmacm",
                                                               "errno",
                                                               "reject reason",
                                                               "AETH syndrome",
                                                               "term"};
// The words for kinds on the command line of `verbena explain`, indexed by Kind. A number may occur in
// several kinds. The word says which kind is meant, as in "wc 12" and "errno 12".
inline constexpr std::array<std::string_view, 7> kKindWords = {"wc",     "event", "cm",  "errno",
                                                               "reject", "nak",   "term"};

struct Entry {
  Kind kind;
  int number;  // negative if the entry has none
  bool has_number() const { return number >= 0; }
  std::string_view name;
  std::string_view meaning;
  std::array<std::string_view, 4> causes;  // the likeliest first; unused elements are empty and at the end
  std::string_view look;                   // what the user should look at; empty if nothing is wrong
};

// Returns all entries, ordered by kind, then by number.
std::span<const Entry> table();

}  // namespace verbena::commands::explanations
