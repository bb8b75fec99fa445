// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#if __has_include(<fmt/base.h>)
#include <fmt/base.h>  // fmt 11 and later
#else
#include <fmt/core.h>
#endif

namespace verbena {

// Text by fmt's format strings, which the compiler checks. Every file formats through these functions and
// sees only fmt's declarations: what does the work is compiled once, in format.cc. Our libraries need no
// libfmt at run time, and use nothing but what fmt documents, so that any version from 8 on will do.

std::string vformat(fmt::string_view format, fmt::format_args arguments);
// Throws std::system_error if `file` cannot be written.
void vprint(std::FILE* file, fmt::string_view format, fmt::format_args arguments);

template <class... Args>
std::string format(fmt::format_string<Args...> format, Args&&... arguments) {
  return verbena::vformat(format, fmt::make_format_args(arguments...));
}

template <class... Args>
void print(std::FILE* file, fmt::format_string<Args...> format, Args&&... arguments) {
  verbena::vprint(file, format, fmt::make_format_args(arguments...));
}

template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... arguments) {
  verbena::vprint(stdout, format, fmt::make_format_args(arguments...));
}

// The elements of a range, each in the format `each`, with `separator` between them.
template <class Range, class Element = std::decay_t<decltype(*std::begin(std::declval<const Range&>()))>>
std::string join(const Range& range, std::string_view separator,
                 fmt::format_string<const Element&> each = "{}") {
  std::string text;
  bool first = true;
  for (const Element& element : range) {
    if (!first) text += separator;
    first = false;
    text += verbena::format(each, element);
  }
  return text;
}

// Any object's address, as {} takes it.
inline const void* ptr(const void* object) {
  return object;
}

}  // namespace verbena
