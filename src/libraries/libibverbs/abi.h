// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "base/c_abi.h"
#include "libraries/libibverbs/provider/live_objects.h"
#include "libraries/libibverbs/provider/provider.h"

// VERBENA_ABI: where a name has an older version beside the default one, that older one carries a symver
// attribute (compat_1_0.cc).

namespace verbena::verbs {

using verbena::answer_code;
using verbena::answer_minus_one;
using verbena::answer_pointer;
using verbena::because;
using verbena::without_exceptions;

// Answers `code` for a pointer that is no object, with the reason.
template <class Object>
int unknown(const Object* object, int code) {
  const char* const kind = provider::name_of(provider::kind_of(object));
  if (object == nullptr) return because(code, "{} is null", kind);
  return because(code, "{} {} was destroyed, never existed, or its context or handle was changed", kind,
                 static_cast<const void*>(object));
}

// The context of an object, or of a context itself. Null when it is none: a null pointer, which is the
// commonest mistake, one that was destroyed, or one whose `context` or handle the program has changed.
// Nothing of it is read before that is known.
template <class Object>
provider::Context* owner(const Object* object) {
  provider::Context* const context = provider::find_owner(object);
  if (context == nullptr) unknown(object, EINVAL);
  return context;
}

// EINVAL for a pointer to a struct that the call needs.
inline int is_null(const char* argument) {
  return because(EINVAL, "{} is null", argument);
}

// What action(provider::Context&) answers for the context of `object`; EINVAL without one.
template <class Object, class Action>
auto with_owner(const Object* object, Action action) {
  using Answer = decltype(action(std::declval<provider::Context&>()));
  provider::Context* const context = owner(object);
  if (context != nullptr) return action(*context);
  if constexpr (std::is_same_v<Answer, int>) {
    return EINVAL;
  } else {
    return Answer(fail(EINVAL));
  }
}

// The same for an action that destroys the object: ENOENT for an unknown one, as the kernel answers when its
// table has no such handle.
template <class Object, class Action>
int destroy(Object* object, Action action) {
  provider::Context* const context = owner(object);
  return context != nullptr ? action(*context) : unknown(object, object == nullptr ? EINVAL : ENOENT);
}

}  // namespace verbena::verbs
