// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

#include <tl/expected.hpp>

namespace verbena {

// What goes wrong inside carries an errno: it is what the C ABI returns in the end.
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
