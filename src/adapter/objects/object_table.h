// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "adapter/engine/shown_objects.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/open_device.h"
#include "base/intrusive_list.h"
#include "base/mutex_at_fork.h"
#include "libraries/libibverbs/provider/provider.h"

namespace verbena::adapter {

// Counts the users of an object: other objects that refer to it. While the count is not 0, destroying the
// object fails with EBUSY. The count can be shown in `rdma resource`. Thread-safe.
class UserCount {
 public:
  // Makes `rdma resource` show the count: from now on, each change of the count is added to the value of
  // `entry` that has the index `value`. REQUIRES: there are no users yet, and `entry` lives as long as the
  // UserCount
  void show_in(engine::ShownObjects::Entry& entry, size_t value) {
    entry_ = &entry;
    value_ = value;
  }

  uint32_t load() const { return count_.load(); }
  UserCount& operator++() { return *this += 1; }
  UserCount& operator--() { return *this += uint32_t(-1); }
  // noinline: otherwise GCC 12 takes the C struct of a Cq for the whole object, and warns of a store beyond
  // it.
  [[gnu::noinline]] UserCount& operator+=(uint32_t by) {
    count_ += by;
    if (entry_ != nullptr) entry_->add(value_, static_cast<int>(by));
    return *this;
  }

 private:
  std::atomic<uint32_t> count_{0};
  engine::ShownObjects::Entry* entry_ = nullptr;
  size_t value_ = 0;
};

// Counts users like UserCount, for an object that may be destroyed before its users when its context is
// closed. Each user keeps a Use until the user is destroyed. Thread-safe.
class Uses {
 public:
  using Use = std::shared_ptr<const void>;

  Use add() const { return token_; }
  long count() const { return token_.use_count() - 1; }

 private:
  const std::shared_ptr<const int> token_ = std::make_shared<int>();
};

// The part of a verbs object that its ObjectTable works with.
struct TableEntry {
  explicit TableEntry(OpenDevice& device) : owner(device) {}

  OpenDevice& owner;
  ListHook owned;
  provider::LiveObject live;  // in the process's table of live objects
  ObjectLimit::Place place;   // counts the object if there is a limit
};

// An object as the application knows it: a C struct, followed by the adapter's own members. The adapter keeps
// the values that it uses in its own members, because programs can write the fields of the C struct. `Self`
// is the derived struct.
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

  // Lists up to three objects for an error message. number(object) returns the object's number, or nullopt to
  // leave the object out; text(number) returns the object's text in the list.
  template <class Number, class Text>
  std::string list_some(Number number, Text text) {
    std::array<uint32_t, 3> first{};  // not a string: the table's lock is held
    size_t count = 0;
    for_each([&](Object& object) {
      const std::optional<uint32_t> found = number(object);
      if (found && count++ < first.size()) first[count - 1] = *found;
    });
    std::string names;
    for (size_t i = 0; i < std::min(count, first.size()); ++i) names += (i > 0 ? ", " : "") + text(first[i]);
    return count > first.size() ? names + ", ..." : names;
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
