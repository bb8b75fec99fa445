// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <tl/expected.hpp>

namespace verbena::control {

// The error of a request to the agent: an errno value, and a text for the user with the reason or a remedy.
// The text is empty if the errno value says enough.
struct AdminError {
  int code;
  std::string text;
};
template <class T>
using AdminResult = tl::expected<T, AdminError>;

// Returns an AdminError with this code and text, as the unexpected value of an AdminResult.
inline tl::unexpected<AdminError> refuse(int code, std::string_view text) {
  return tl::unexpected(AdminError{code, std::string(text)});
}

}  // namespace verbena::control
