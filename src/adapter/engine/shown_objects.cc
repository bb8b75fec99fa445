// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/shown_objects.h"

#include <mutex>
#include <new>

namespace verbena::engine {

using protocol::ObjectKind;

ShownObjects::Entry ShownObjects::add(ObjectKind kind, uint32_t device_index, const Values& values) {
  const uint32_t place = take_place();
  count_of(kind).fetch_add(1, std::memory_order_relaxed);
  if (place == kNoPlace) return Entry(*this, kind, place);
  protocol::ObjectStatus& object = page_.objects[place];
  object.device_index.store(device_index, std::memory_order_relaxed);
  for (size_t i = 0; i < values.size(); ++i) object.values[i].store(values[i], std::memory_order_relaxed);
  // Last, so that nobody reads the values of what was here before.
  object.kind.store(static_cast<uint64_t>(kind), std::memory_order_release);
  return Entry(*this, kind, place);
}

uint32_t ShownObjects::take_place() {
  const std::lock_guard guard(mutex_);
  if (!free_.empty()) {
    const uint32_t place = free_.back();
    free_.pop_back();
    return place;
  }
  if (unused_ == protocol::kObjectsPerSlot || !make_room()) return kNoPlace;
  page_.object_counts.places.store(unused_ + 1, std::memory_order_relaxed);
  return unused_++;
}

// Makes room for all places, so that giving one back cannot fail. False: no memory. It reserves everything
// before there are objects: a list that grows with them would lie above them on the heap and outlive them,
// and malloc gives no memory below a live block back to the kernel. Unused entries are never touched.
bool ShownObjects::make_room() {
  try {
    free_.reserve(protocol::kObjectsPerSlot);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void ShownObjects::remove(ObjectKind kind, uint32_t place) {
  count_of(kind).fetch_sub(1, std::memory_order_relaxed);
  if (place == kNoPlace) return;
  page_.objects[place].kind.store(0, std::memory_order_relaxed);
  const std::lock_guard guard(mutex_);
  free_.push_back(place);
}

}  // namespace verbena::engine
