// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "adapter/objects/object_limit.h"
#include "base/intrusive_list.h"
#include "base/mutex_at_fork.h"
#include "libraries/libibverbs/provider/live_objects.h"
#include "libraries/libibverbs/provider/provider.h"

namespace verbena::adapter {

// The objects of one kind that one context has. It owns them; the application holds pointers to their first
// part, the C struct. An Object has a hook `owned`, an entry `live` among the process's live objects and, if
// their number is limited, a `place`.
//
// Thread-safe. Its lock is held for no longer than it takes to link an object, and never while one is
// destroyed: that may ask the application's allocator, or the agent. A child of fork() does not find it
// taken, so it may destroy what it has inherited.
template <class Object>
class ObjectTable {
 public:
  ObjectTable() = default;  // of a kind of which there may be any number
  explicit ObjectTable(ObjectLimit& limit) : limit_(&limit) {}
  ObjectTable(const ObjectTable&) = delete;
  ObjectTable& operator=(const ObjectTable&) = delete;
  ~ObjectTable() {
    destroy_all([](Object&) {});
  }

  // An object with a place of its own. ENOMEM when there are as many as may be. REQUIRES: there is a limit
  template <class... Args>
  Result<std::unique_ptr<Object>> make(Args&&... args) {
    auto place = limit_->take();
    if (!place) return tl::unexpected(place.error());
    auto object = std::make_unique<Object>(std::forward<Args>(args)...);
    object->place = std::move(*place);
    return object;
  }

  // From now on the object is the context's, and the application may name it. REQUIRES: its C struct is
  // filled in
  Object* add(std::unique_ptr<Object> object) {
    const auto* abi = abi_of(*object);
    object->live.enter(abi, provider::Context::of(abi->context));
    const std::lock_guard guard(mutex_);
    objects_.push_back(*object);
    return object.release();
  }

  // From now on it is the caller's.
  std::unique_ptr<Object> take(Object& object) {
    object.live.leave();
    const std::lock_guard guard(mutex_);
    object.owned.unlink();
    return std::unique_ptr<Object>(&object);
  }

  void destroy(Object& object) { take(object); }

  // Destroys what is left, each after before(object).
  template <class Before>
  void destroy_all(Before before) {
    while (Object* object = first()) {
      before(*object);
      destroy(*object);
    }
  }

  template <class Visit>
  void for_each(Visit visit) {
    const std::lock_guard guard(mutex_);
    for (Object& object : objects_) visit(object);
  }

  // What `state` takes of the object with this handle; nothing when there is none.
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

  // An object's C struct.
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
