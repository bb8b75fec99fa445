// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>

#include <infiniband/verbs.h>

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
  kCompChannel,
  kCq,
  kQp,
  kFlow,
  kWq,
  kRwqIndTable,
  kCounters,
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

  void enter(const void* object, ObjectKind kind, uint32_t handle, Context& owner);

  const void* object_ = nullptr;  // null: not entered
  Context* owner_ = nullptr;
  LiveObject* next_ = nullptr;
  uint32_t handle_ = 0;
  ObjectKind kind_ = ObjectKind::kContext;
};

// The kind of a C struct, and the number by which the kernel would know it, which programs can see and spoil.
// A struct without one has 0.
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
constexpr ObjectKind kind_of(const ibv_srq*) {
  return ObjectKind::kSrq;
}
constexpr ObjectKind kind_of(const ibv_xrcd*) {
  return ObjectKind::kXrcd;
}
constexpr ObjectKind kind_of(const ibv_ah*) {
  return ObjectKind::kAh;
}

template <class Abi>
uint32_t handle_in(const Abi& object) {
  if constexpr (requires { object.handle; }) return object.handle;
  if constexpr (requires { object.ind_tbl_handle; }) return static_cast<uint32_t>(object.ind_tbl_handle);
  return 0;
}

template <class Abi>
void LiveObject::enter(const Abi* object, Context& owner) {
  enter(object, kind_of(object), handle_in(*object), owner);
}

// What the table knows of a pointer: whose object of this kind it is, or null. `handle` is set if there is
// one.
Context* find_live(const void* object, ObjectKind kind, uint32_t& handle);

// Whose object this is. Null when it is none, when it is of another kind, or its handle is not what it was.
template <class Abi>
Context* find_owner(const Abi* object) {
  uint32_t handle = 0;
  Context* owner = find_live(object, kind_of(object), handle);
  return owner != nullptr && handle_in(*object) == handle ? owner : nullptr;
}

}  // namespace verbena::provider
