// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <tl/expected.hpp>

namespace verbena::control {

// The error of a request: an errno value, and a sentence that tells the user what to do about it.
struct AdminError {
  int code;
  std::string text;
};
template <class T>
using AdminResult = tl::expected<T, AdminError>;

}  // namespace verbena::control
