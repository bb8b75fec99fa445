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

// Formats text with fmt's format strings; format() and print() check them at compile time. Every file uses
// these functions and sees only fmt's declarations; the implementation is compiled once, in format.cc. Our
// libraries need no libfmt at run time. Only documented parts of fmt are used, so any version from 8 on
// works.

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

// Formats each element of a range with `each` and puts `separator` between them.
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

// Returns the address of an object as a type that {} can format.
inline const void* ptr(const void* object) {
  return object;
}

}  // namespace verbena
