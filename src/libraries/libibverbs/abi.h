// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "base/c_abi.h"
#include "libraries/libibverbs/provider/live_objects.h"
#include "libraries/libibverbs/provider/provider.h"

// Helpers for the exported functions (VERBENA_ABI), which run without exceptions and return errors as verbs
// do. VERBENA_ABI exports the default version of a name; older versions carry a symver attribute
// (compat_1_0.cc).

namespace verbena::verbs {

using verbena::answer_code;
using verbena::answer_minus_one;
using verbena::answer_pointer;
using verbena::because;
using verbena::without_exceptions;

// Returns `code` for a pointer that is null or no live object, and records the reason for the log.
template <class Object>
int unknown(const Object* object, int code) {
  const char* const kind = provider::name_of(provider::kind_of(object));
  if (object == nullptr) return because(code, "{} is null", kind);
  return because(code, "{} {} was destroyed, never existed, or its context or handle was changed", kind,
                 static_cast<const void*>(object));
}

// Returns the context of an object, or of a context itself. Returns null, and records EINVAL with the reason,
// if the pointer is null (the most frequent mistake) or the object was destroyed. Does the same if the
// program has changed the object's `context` or handle. Reads the object's memory only after the object was
// found alive.
template <class Object>
provider::Context* owner(const Object* object) {
  provider::Context* const context = provider::find_owner(object);
  if (context == nullptr) unknown(object, EINVAL);
  return context;
}

// Returns EINVAL for a null pointer to a struct that the call needs, and records `argument` as the reason for
// the log.
inline int is_null(const char* argument) {
  return because(EINVAL, "{} is null", argument);
}

// Returns action(provider::Context&) for the context of `object`. Returns EINVAL if `object` is null or not
// alive.
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

// Like with_owner(), for calls that destroy the object. Returns ENOENT instead of EINVAL for an object that
// is not alive, as the kernel does for an unknown handle. A null pointer still gives EINVAL.
template <class Object, class Action>
int destroy(Object* object, Action action) {
  provider::Context* const context = owner(object);
  return context != nullptr ? action(*context) : unknown(object, object == nullptr ? EINVAL : ENOENT);
}

}  // namespace verbena::verbs
