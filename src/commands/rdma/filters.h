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

// The name of a filter, and whether its values are numbers and ranges or texts.
struct FilterName {
  std::string_view name;
  bool is_number;
};

// The user's selection of objects, such as "lqpn 5-9,17 type RC".
class Filters {
 public:
  // Parses pairs of a filter's name, which may be abbreviated, and a list of values. `names` are the known
  // filters. On failure returns a sentence for the user.
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

// Whether `number` is in `values`, a list of numbers and ranges such as "5,7-9". Ranges include both ends.
bool contains_number(std::string_view values, uint64_t number);
// Whether `text` is in `values`, a list such as "a,b". Ignores case.
bool contains_text(std::string_view values, std::string_view text);

}  // namespace verbena::commands::rdma
