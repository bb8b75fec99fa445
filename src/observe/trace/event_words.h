// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/trace/reader.h"

namespace verbena::trace {

// A named field of an event: one of the event's numbers (Event::numbers), or some bits of a number.
struct Field {
  std::string_view name;
  uint8_t number = 0;
  uint8_t shift = 0;
  uint8_t bits = 64;
  bool is_signed = false;  // a signed field has 32 bits

  uint64_t of(const Event& event) const {
    const uint64_t value = event.numbers[number] >> shift;
    return bits == 64 ? value : value & ((uint64_t{1} << bits) - 1);
  }
};

// Returns the machine-readable name of events of this kind, such as "timeout" or "nak_received". Names of
// events and fields are part of the public interface.
std::string_view name_of(Kind kind);
// Returns the numeric fields of events of this kind; empty for an unknown kind.
std::span<const Field> fields_of(Kind kind);
// Returns the event as text for people, such as "timeout: no acknowledgement from PSN 0x00a1b2 on (3 packets
// sent), 6 tries left". Works for any numbers, also invalid ones.
std::string words_of(const Event& event);
using NamedText = std::pair<std::string_view, std::string>;
// Returns the names and values of an event's text fields, for machine-readable output: GIDs, and the names of
// connection calls, messages and events.
std::vector<NamedText> texts_of(const Event& event);

}  // namespace verbena::trace
