// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "commands/rdma/arguments.h"

namespace verbena::commands::rdma {

// What may be filtered by, and how.
struct FilterName {
  std::string_view name;
  bool is_number;
};

// Which of the things there are the user wants to see: "lqpn 5-9,17 type RC".
class Filters {
 public:
  // `words` in pairs of name, which may be abbreviated, and values. An error is a sentence for the user.
  static tl::expected<Filters, std::string> parse(const Arguments& words, std::span<const FilterName> names);

  struct Filter {
    std::string_view name;
    bool is_number;
    std::string values;
  };
  const std::vector<Filter>& all() const { return filters_; }

 private:
  std::vector<Filter> filters_;
};

// "5", "5,7", "5-9", and lists of those; what is between is in.
bool contains_number(std::string_view values, uint64_t number);
// "a,b", whatever the case.
bool contains_text(std::string_view values, std::string_view text);

}  // namespace verbena::commands::rdma
