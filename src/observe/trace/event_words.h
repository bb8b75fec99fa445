// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/trace/reader.h"

namespace verbena::trace {

// A field of an event: one of its numbers, or some bits of one.
struct Field {
  std::string_view name;
  uint8_t number = 0;
  uint8_t shift = 0;
  uint8_t bits = 64;
  bool is_signed = false;  // then it is 32 bits wide

  uint64_t of(const Event& event) const {
    const uint64_t value = event.numbers[number] >> shift;
    return bits == 64 ? value : value & ((uint64_t{1} << bits) - 1);
  }
};

// Machine-readable name of an event: "timeout", "nak_received". Part of the public interface, as are the
// field names.
std::string_view name_of(Kind kind);
std::span<const Field> fields_of(Kind kind);
// Text for people: "timeout: no acknowledgement from PSN 0x00a1b2 on (3 packets sent), 6 tries left". Works
// for any numbers.
std::string words_of(const Event& event);
// The text fields of an event for programs: names and values.
using NamedText = std::pair<std::string_view, std::string>;
std::vector<NamedText> texts_of(const Event& event);

}  // namespace verbena::trace
