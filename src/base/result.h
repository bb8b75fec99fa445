// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

#include <tl/expected.hpp>

namespace verbena {

// An internal error, as the errno value that the C ABI finally returns.
struct Error {
  int code;  // an errno value, never 0

  friend constexpr bool operator==(Error, Error) = default;
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(int code) {
  return tl::unexpected<Error>(Error{code});
}

}  // namespace verbena
