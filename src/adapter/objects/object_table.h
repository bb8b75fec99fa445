// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "adapter/objects/object_limit.h"
#include "adapter/objects/open_device.h"
#include "base/intrusive_list.h"
#include "base/mutex_at_fork.h"
#include "libraries/libibverbs/provider/live_objects.h"
#include "libraries/libibverbs/provider/provider.h"

namespace verbena::adapter {

// The part of a verbs object that its ObjectTable works with.
struct TableEntry {
  explicit TableEntry(OpenDevice& device) : owner(device) {}

  OpenDevice& owner;
  ListHook owned;
  provider::LiveObject live;  // in the process's table of live objects
  ObjectLimit::Place place;   // counts the object if there is a limit
};

// An object as the application knows it: a C struct, followed by the adapter's own members. The adapter keeps
// the values that it uses in those, because programs can write the fields of the C struct. `Self` is the
// derived struct.
template <class Self, class AbiStruct>
struct VerbsObject : AbiStruct, TableEntry {
  using Abi = AbiStruct;

  explicit VerbsObject(OpenDevice& device) : AbiStruct{}, TableEntry(device) {
    this->context = device.context();
  }
  static Self& of(Abi* abi) { return *static_cast<Self*>(abi); }
};

// The objects of one kind that belong to one context. The table owns the objects; the application holds
// pointers to their C structs.
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
  // Destroys all objects, each after retire() if it has that, without the lock.
  ~ObjectTable() {
    while (Object* object = first()) {
      if constexpr (requires { object->retire(); }) object->retire();
      destroy(*object);
    }
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

  // Removes the object from the table, makes it invalid for the application's calls, and destroys it.
  void destroy(Object& object) {
    object.live.leave();
    const std::unique_ptr<Object> owned(&object);
    const std::lock_guard guard(mutex_);
    object.owned.unlink();
  }

  // Calls visit(object) for each object, with the table's lock held.
  template <class Visit>
  void for_each(Visit visit) {
    const std::lock_guard guard(mutex_);
    for (TableEntry& entry : objects_) visit(static_cast<Object&>(entry));
  }

  // Returns state(object) for the object with this handle, or a default-constructed result if there is none.
  // The table's lock is held while state() runs.
  template <class State>
  auto find_by_handle(uint32_t handle, State state) -> decltype(state(std::declval<Object&>())) {
    const std::lock_guard guard(mutex_);
    for (TableEntry& entry : objects_) {
      auto& object = static_cast<Object&>(entry);
      if (object.handle == handle) return state(object);
    }
    return {};
  }

 private:
  Object* first() {
    const std::lock_guard guard(mutex_);
    return objects_.empty() ? nullptr : &static_cast<Object&>(*objects_.begin());
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
  IntrusiveList<TableEntry, &TableEntry::owned> objects_;
};

}  // namespace verbena::adapter
