// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/c_abi.h"
#include "provider/provider.h"

// VERBENA_ABI: where a name has an older version beside the default one, that older one carries a symver
// attribute (compat_1_0.cc).

namespace verbena::verbs {

using verbena::answer_code;
using verbena::answer_minus_one;
using verbena::answer_pointer;
using verbena::without_exceptions;

// The context of an object of the ABI, or null when there is none: a null object is the commonest mistake.
inline provider::Context* owner(ibv_context* context) {
  return context != nullptr ? &provider::Context::of(context) : nullptr;
}
template <class Object>
provider::Context* owner(const Object* object) {
  return object != nullptr ? owner(object->context) : nullptr;
}

}  // namespace verbena::verbs
