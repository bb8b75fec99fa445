// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <string>
#include <string_view>

#include "control/admin.h"

namespace verbena::agent {

// Why a request of connection management is not carried out: an errno value, and a sentence.
inline tl::unexpected<control::AdminError> refuse(int code, std::string_view text) {
  return tl::unexpected(control::AdminError{code, std::string(text)});
}
inline tl::unexpected<control::AdminError> no_such_identifier() {
  return refuse(ENOENT, "no such identifier");
}
inline tl::unexpected<control::AdminError> wrong_state() {
  return refuse(EINVAL, "not in this state of the identifier");
}

}  // namespace verbena::agent
