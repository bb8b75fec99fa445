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

// One of an event's numbers, or a part of it.
struct Field {
  std::string_view name;
  uint8_t number = 0;
  uint8_t shift = 0;
  uint8_t bits = 64;
  bool is_signed = false;  // then it has 32 bits

  uint64_t of(const Event& event) const {
    const uint64_t value = event.numbers[number] >> shift;
    return bits == 64 ? value : value & ((uint64_t{1} << bits) - 1);
  }
};

// What programs call the event: "timeout", "nak_received". They are interface, as the names of its fields.
std::string_view name_of(Kind kind);
std::span<const Field> fields_of(Kind kind);
// The same for people: "timeout: nothing acknowledged from PSN 0x00a1b2 on, 6 tries left". Any numbers have
// words.
std::string words_of(const Event& event);
// The texts of an event, for programs: names and values.
using NamedText = std::pair<std::string_view, std::string>;
std::vector<NamedText> texts_of(const Event& event);

}  // namespace verbena::trace
