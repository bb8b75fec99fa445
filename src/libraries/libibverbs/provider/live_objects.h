// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>

#include <infiniband/verbs.h>

#include "libraries/libibverbs/provider/newer_objects.h"

namespace verbena::provider {

class Context;

// Which of the pointers that a program holds stand for objects. It is what the kernel's table of handles is
// to rdma-core: an object that was destroyed, or never was one, is known without a look at its memory, so
// that a second destruction is an error and not a crash. Not for the data path.
//
// Thread-safe.

enum class ObjectKind : uint8_t {
  kContext,
  kPd,
  kTd,
  kMr,
  kMw,
  kDm,
  kDmaHandle,
  kCompChannel,
  kCq,
  kQp,
  kFlow,
  kWq,
  kRwqIndTable,
  kCounters,
  kCompletionCounter,
  kSrq,
  kXrcd,
  kAh,
};

// What programs call one, for complaints.
const char* name_of(ObjectKind kind);

// The entry of one object, which is in the table from enter() to leave(). It lies in the object, so that
// entering never fails.
class LiveObject {
 public:
  LiveObject() = default;
  LiveObject(const LiveObject&) = delete;
  LiveObject& operator=(const LiveObject&) = delete;
  ~LiveObject() { leave(); }

  // REQUIRES: no other object is entered under this pointer
  template <class Abi>
  void enter(const Abi* object, Context& owner);
  // From now on the pointer stands for nothing. Before the object's memory is given back.
  void leave();

 private:
  friend class LiveObjectTable;

  // How the kernel would know an object: by the file of its context, and by a number in that file's table.
  // Programs can see and change both fields.
  struct Identity {
    const ibv_context* context = nullptr;
    uint32_t handle = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  template <class Abi>
  static Identity identity_in(const Abi& object);
  void enter(const void* object, ObjectKind kind, const Identity& identity, Context& owner);
  template <class Abi>
  friend Context* find_owner(const Abi* object);
  // Null: no object of this kind is entered under this pointer. Sets `identity` as it was at enter().
  static Context* find(const void* object, ObjectKind kind, Identity& identity);

  const void* object_ = nullptr;  // null: not entered
  Context* owner_ = nullptr;
  LiveObject* next_ = nullptr;
  Identity identity_;
  ObjectKind kind_ = ObjectKind::kContext;
};

// The kind of a C struct.
constexpr ObjectKind kind_of(const ibv_context*) {
  return ObjectKind::kContext;
}
constexpr ObjectKind kind_of(const ibv_pd*) {
  return ObjectKind::kPd;
}
constexpr ObjectKind kind_of(const ibv_td*) {
  return ObjectKind::kTd;
}
constexpr ObjectKind kind_of(const ibv_mr*) {
  return ObjectKind::kMr;
}
constexpr ObjectKind kind_of(const ibv_mw*) {
  return ObjectKind::kMw;
}
constexpr ObjectKind kind_of(const ibv_dm*) {
  return ObjectKind::kDm;
}
constexpr ObjectKind kind_of(const DmaHandle*) {
  return ObjectKind::kDmaHandle;
}
constexpr ObjectKind kind_of(const ibv_comp_channel*) {
  return ObjectKind::kCompChannel;
}
constexpr ObjectKind kind_of(const ibv_cq*) {
  return ObjectKind::kCq;
}
constexpr ObjectKind kind_of(const ibv_qp*) {
  return ObjectKind::kQp;
}
constexpr ObjectKind kind_of(const ibv_flow*) {
  return ObjectKind::kFlow;
}
constexpr ObjectKind kind_of(const ibv_wq*) {
  return ObjectKind::kWq;
}
constexpr ObjectKind kind_of(const ibv_rwq_ind_table*) {
  return ObjectKind::kRwqIndTable;
}
constexpr ObjectKind kind_of(const ibv_counters*) {
  return ObjectKind::kCounters;
}
constexpr ObjectKind kind_of(const CompletionCounter*) {
  return ObjectKind::kCompletionCounter;
}
constexpr ObjectKind kind_of(const ibv_srq*) {
  return ObjectKind::kSrq;
}
constexpr ObjectKind kind_of(const ibv_xrcd*) {
  return ObjectKind::kXrcd;
}
constexpr ObjectKind kind_of(const ibv_ah*) {
  return ObjectKind::kAh;
}

// A struct without one of the fields has null or 0 for it.
template <class Abi>
LiveObject::Identity LiveObject::identity_in(const Abi& object) {
  Identity identity;
  if constexpr (requires { object.context; }) identity.context = object.context;
  if constexpr (requires { object.handle; }) identity.handle = object.handle;
  if constexpr (requires { object.ind_tbl_handle; })
    identity.handle = static_cast<uint32_t>(object.ind_tbl_handle);
  return identity;
}

template <class Abi>
void LiveObject::enter(const Abi* object, Context& owner) {
  enter(object, kind_of(object), identity_in(*object), owner);
}

// The context that made this object. Null when there is no such object, when it is of another kind, or when
// its `context` or its handle is not what it was.
template <class Abi>
Context* find_owner(const Abi* object) {
  LiveObject::Identity identity;
  Context* const owner = LiveObject::find(object, kind_of(object), identity);
  return owner != nullptr && LiveObject::identity_in(*object) == identity ? owner : nullptr;
}

}  // namespace verbena::provider
