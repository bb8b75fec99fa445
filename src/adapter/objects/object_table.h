// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "adapter/objects/object_limit.h"
#include "base/intrusive_list.h"
#include "base/mutex_at_fork.h"
#include "libraries/libibverbs/provider/provider.h"

namespace verbena::adapter {

// The objects of one kind that belong to one context. The table owns the objects; the application holds
// pointers to their C structs. An Object has a hook `owned`, an entry `live` in the process's table of live
// objects and, if the number of objects is limited, a `place`.
//
// Thread-safe. The lock is held while an object is linked, unlinked or visited. The lock is never held while
// an object is destroyed, because the destructor may call the application's allocator or the agent. In a
// child after fork() the lock is free, so the child can destroy inherited objects.
template <class Object>
class ObjectTable {
 public:
  ObjectTable() = default;  // without a limit
  explicit ObjectTable(ObjectLimit& limit) : limit_(&limit) {}
  ObjectTable(const ObjectTable&) = delete;
  ObjectTable& operator=(const ObjectTable&) = delete;
  ~ObjectTable() {
    destroy_all([](Object&) {});
  }

  // Constructs an object that counts against the limit, without adding the object to the table. Returns
  // ENOMEM if the limit is reached. REQUIRES: the table has a limit
  template <class... Args>
  Result<std::unique_ptr<Object>> make(Args&&... args) {
    auto place = limit_->take();
    if (!place) return tl::unexpected(place.error());
    auto object = std::make_unique<Object>(std::forward<Args>(args)...);
    object->place = std::move(*place);
    return object;
  }

  // Takes ownership of the object and makes the object valid for the application's calls. REQUIRES: the
  // object's C struct is filled in
  Object* add(std::unique_ptr<Object> object) {
    const auto* abi = abi_of(*object);
    object->live.enter(abi, provider::Context::of(abi->context));
    const std::lock_guard guard(mutex_);
    objects_.push_back(*object);
    return object.release();
  }

  // Removes the object from the table, makes it invalid for the application's calls, and returns it.
  std::unique_ptr<Object> take(Object& object) {
    object.live.leave();
    const std::lock_guard guard(mutex_);
    object.owned.unlink();
    return std::unique_ptr<Object>(&object);
  }

  void destroy(Object& object) { take(object); }

  // Destroys all objects. Calls before(object) before each object is destroyed, without the lock.
  template <class Before>
  void destroy_all(Before before) {
    while (Object* object = first()) {
      before(*object);
      destroy(*object);
    }
  }

  // Calls visit(object) for each object, with the table's lock held.
  template <class Visit>
  void for_each(Visit visit) {
    const std::lock_guard guard(mutex_);
    for (Object& object : objects_) visit(object);
  }

  // Returns state(object) for the object with this handle, or a default-constructed result if there is none.
  // The table's lock is held while state() runs.
  template <class State>
  auto find_by_handle(uint32_t handle, State state) -> decltype(state(std::declval<Object&>())) {
    const std::lock_guard guard(mutex_);
    for (Object& object : objects_) {
      if (object.handle == handle) return state(object);
    }
    return {};
  }

 private:
  Object* first() {
    const std::lock_guard guard(mutex_);
    return objects_.empty() ? nullptr : &*objects_.begin();
  }

  // Returns the C struct of an object.
  static const auto* abi_of(Object& object) {
    if constexpr (requires { object.abi(); }) {
      return object.abi();
    } else {
      return static_cast<const typename Object::Abi*>(&object);
    }
  }

  ObjectLimit* const limit_ = nullptr;
  MutexAtFork mutex_;
  IntrusiveList<Object, &Object::owned> objects_;
};

}  // namespace verbena::adapter
