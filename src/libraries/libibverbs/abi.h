// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/c_abi.h"
#include "libraries/libibverbs/provider/provider.h"

// Helpers for the exported functions (VERBENA_ABI), which throw no exceptions and return errors as verbs do.
// VERBENA_ABI exports the default version of a name; older versions carry a symver attribute (compat_1_0.cc).

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

// Returns EINVAL because the program passed a null pointer to a struct that the call needs. `argument` is the
// pointer's name, for the reason that is recorded for the log.
inline int is_null(const char* argument) {
  return because(EINVAL, "{} is null", argument);
}

// Returns the failure `code` in the return type of a call: an int, or the Result of a pointer.
template <class Answer>
Answer failure(int code) {
  if constexpr (std::is_same_v<Answer, int>) {
    return code;
  } else {
    return fail(code);
  }
}

// Implements a C function about `object`: runs action(provider::Context&) for the object's context. If the
// action returns 0 or an errno value, returns it. If it returns a Result<T*>, returns the pointer, or null
// after an error. An error also sets errno and is logged with `name`, the function's name. Fails with EINVAL
// if `object` is null or not alive.
template <class Object, class Action>
auto call(const Object* object, Action action, const char* name = __builtin_FUNCTION()) {
  using Answer = decltype(action(std::declval<provider::Context&>()));
  const auto body = [&]() -> Answer {
    provider::Context* const context = owner(object);
    return context != nullptr ? action(*context) : failure<Answer>(EINVAL);
  };
  if constexpr (std::is_same_v<Answer, int>) {
    return answer_code(body, name);
  } else {
    return answer_pointer(body, name);
  }
}

// A pointer that the program must pass, and its name in the man page.
struct Needed {
  const char* name;
  const void* pointer;
};
// Like call() above, but also fails with EINVAL if `argument` is null.
template <class Object, class Action>
auto call(const Object* object, Needed argument, Action action, const char* name = __builtin_FUNCTION()) {
  using Answer = decltype(action(std::declval<provider::Context&>()));
  const auto checked = [&](provider::Context& context) -> Answer {
    return argument.pointer != nullptr ? action(context) : failure<Answer>(is_null(argument.name));
  };
  return call(object, checked, name);
}

// Like call(), for functions that return -1 instead of an errno value.
template <class Object, class Action>
int call_minus_one(const Object* object, Action action, const char* name = __builtin_FUNCTION()) {
  return call(object, action, name) == 0 ? 0 : -1;
}

// Implements a C function without a result: runs action(provider::Context&) for the context of `object`, if
// the object is alive.
template <class Object, class Action>
void on_owner(const Object* object, Action action) {
  without_exceptions([&] {
    if (provider::Context* const context = owner(object)) action(*context);
    return 0;
  });
}

// Like call(), for calls that destroy the object. Returns ENOENT instead of EINVAL for an object that is not
// alive, as the kernel does for an unknown handle. A null pointer still gives EINVAL.
template <class Object, class Action>
int destroy(Object* object, Action action, const char* name = __builtin_FUNCTION()) {
  const auto body = [&] {
    provider::Context* const context = owner(object);
    return context != nullptr ? action(*context) : unknown(object, object == nullptr ? EINVAL : ENOENT);
  };
  return answer_code(body, name);
}

// Defines an exported function that passes its arguments on to a method of the provider. `how` is call,
// call_minus_one, on_owner or destroy. The last argument is the call of the method, such as destroy_ah(ah).
#define VERBENA_FORWARD(result, name, parameters, how, object, ...)           \
  VERBENA_ABI result name parameters {                                        \
    return how(object, [&](auto& provider) { return provider.__VA_ARGS__; }); \
  }

// Copies as much of the struct as the caller's `size` bytes have room for. If the caller's struct is longer
// than ours, zeros the rest.
template <class Struct>
void copy_out(void* to, size_t size, const Struct& from) {
  std::memset(to, 0, size);
  std::memcpy(to, &from, std::min(size, sizeof from));
}

// The kind of object that an event is about, which is a pointer in ibv_async_event::element. kNone for events
// of a port or the device.
enum class EventElement { kNone, kCq, kQp, kSrq, kWq };

constexpr EventElement element_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return EventElement::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return EventElement::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return EventElement::kSrq;
    case IBV_EVENT_WQ_FATAL:
      return EventElement::kWq;
    default:
      return EventElement::kNone;
  }
}

// ---- shared by several files of exported functions

// Fills the operations that the provider left null; called for each new context. These are extended
// operations that this library implements for all providers (query_device_ex, query_port, create_qp_ex,
// create_srq_ex and others), and operations that older programs read from ibv_context_ops. Inline functions
// of verbs.h call the operations for memory windows, device memory, flow rules, work queues and counters.
// Operations that verbs.h calls without a null check get functions that return EOPNOTSUPP.
void fill_operations(verbs_context& abi);

// Query the device or a port. Return 0 or an errno value. `attr_size` is the size of the struct in the
// caller's headers, which may be smaller or larger than ours.
int query_device(provider::Context& context, ibv_device_attr_ex* attr, size_t attr_size);
int query_port(provider::Context& context, uint8_t port, void* attr, size_t attr_size);

// Creates a QP, and writes the granted capacities back to `attr.cap`. Reads only the fields that comp_mask
// marks as present: the struct of a caller with older headers ends before the others.
Result<ibv_qp*> create_qp(provider::Context& context, ibv_qp_init_attr_ex& attr);

// GID types of rdma-core's private interface (enum ibv_gid_type_sysfs), which librdmacm and pyverbs use.
enum class GidSysfsType : int { kIbOrRoceV1 = 0, kRoceV2 = 1 };

}  // namespace verbena::verbs

extern "C" int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index,
                                  verbena::verbs::GidSysfsType* type);
