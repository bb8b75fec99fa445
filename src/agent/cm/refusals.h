// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <string>
#include <string_view>

#include "agent/cm/address.h"
#include "control/model/admin_error.h"
#include "control/protocol/connection_messages.h"
#include "wire/roce/prefix.h"

namespace verbena::agent {

// Returns the error of a refused request: an errno value and a sentence for the user.
inline tl::unexpected<control::AdminError> refuse(int code, std::string_view text) {
  return tl::unexpected(control::AdminError{code, std::string(text)});
}
inline tl::unexpected<control::AdminError> no_such_identifier() {
  return refuse(ENOENT, "no such identifier");
}
inline tl::unexpected<control::AdminError> wrong_state() {
  return refuse(EINVAL, protocol::kCmWrongState);
}
// REQUIRES: has_known_family(address)
inline tl::unexpected<control::AdminError> link_local_without_interface(const CmAddress& address) {
  return refuse(EINVAL,
                roce::text_of(gid_of(address)) + " is link-local and needs an interface: set sin6_scope_id");
}

}  // namespace verbena::agent
