// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include <infiniband/verbs.h>

#include "libraries/libibverbs/provider/newer_objects.h"

namespace verbena::provider {

class Context;

// The table of live verbs objects: tells whether a pointer that a program passes points to a live object. The
// table plays the role that the kernel's table of handles has for rdma-core. An object that was destroyed or
// never existed is recognized without reading its memory, so a second destruction is an error and not a
// crash. Too slow for the data path. Thread-safe.

// The C types of verbs objects. An object's kind is the index of its type in this list.
template <class... Types>
struct TypeList {};
using ObjectTypes =
    TypeList<ibv_context, ibv_pd, ibv_td, ibv_mr, ibv_mw, ibv_dm, DmaHandle, ibv_comp_channel, ibv_cq, ibv_qp,
             ibv_flow, ibv_wq, ibv_rwq_ind_table, ibv_counters, CompletionCounter, ibv_srq, ibv_xrcd, ibv_ah>;
using ObjectKind = uint8_t;

template <class Abi, class... Types>
constexpr ObjectKind index_in(TypeList<Types...>) {
  ObjectKind index = 0;
  const bool is_there = ((std::is_same_v<Abi, Types> || (++index, false)) || ...);
  return is_there ? index : throw "no verbs object";
}
template <class Abi>
constexpr ObjectKind kind_of(const Abi*) {
  constexpr ObjectKind kKind = index_in<Abi>(ObjectTypes());
  return kKind;
}

// Returns the name of a kind's C type, such as "ibv_qp", for error messages.
const char* name_of(ObjectKind kind);

// The table entry of one object, in the table from enter() to leave(). Lies inside the object, so that
// enter() needs no memory and cannot fail.
class LiveObject {
 public:
  LiveObject() = default;
  LiveObject(const LiveObject&) = delete;
  LiveObject& operator=(const LiveObject&) = delete;
  ~LiveObject() { leave(); }

  // Enters `object`, made by `owner`, into the table. REQUIRES: no other object is entered under this pointer
  template <class Abi>
  void enter(const Abi* object, Context& owner);
  // Removes the entry: from now on, find_owner() does not find the object. Call before freeing the object.
  void leave();

 private:
  friend class LiveObjectTable;

  // The public fields by which rdma-core would name an object to the kernel: `context` and `handle`. Programs
  // can change both, so find_owner() compares them with their values at enter().
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
  // Returns the owner, and sets `identity` to the object's identity at enter(). Returns null if no object of
  // this kind is entered under this pointer.
  static Context* find(const void* object, ObjectKind kind, Identity& identity);

  const void* object_ = nullptr;  // null if not entered
  Context* owner_ = nullptr;
  LiveObject* next_ = nullptr;
  Identity identity_;
  ObjectKind kind_ = 0;
};

// Reads the identity fields; a struct without one of them has null or 0 for it.
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

// Returns the context that made this object. Returns null if there is no live object of this kind at the
// pointer, or if the object's `context` or handle has changed since enter().
template <class Abi>
Context* find_owner(const Abi* object) {
  LiveObject::Identity identity;
  Context* const owner = LiveObject::find(object, kind_of(object), identity);
  return owner != nullptr && LiveObject::identity_in(*object) == identity ? owner : nullptr;
}

}  // namespace verbena::provider
