// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

namespace verbena {

// The base of all objects of this API: owns a C object of libibverbs or librdmacm, such as an ibv_qp.
//
// An object is move-only and destroys its C object. It also keeps the objects that it depends on. So a
// program may drop a context before the queue pairs that were made with the context, which is closed after
// the last of them. Creating an object allocates one small block of memory; nothing else here does.
//
// Like their C objects, objects may be used by several threads at once, unless a class says otherwise.
template <class C>
class object {
 public:
  // Takes over a C object that something else has made. The handle's deleter must destroy it.
  explicit object(std::shared_ptr<C> handle) : handle_(std::move(handle)) {}
  object(object&&) noexcept = default;
  object& operator=(object&&) noexcept = default;
  object(const object&) = delete;
  object& operator=(const object&) = delete;
  ~object() = default;

  // The C object, for everything that this API leaves out.
  C* get() const { return handle_.get(); }
  // Shares the ownership of the C object, for objects that need it for as long as they live.
  const std::shared_ptr<C>& handle() const { return handle_; }

 private:
  std::shared_ptr<C> handle_;
};

namespace detail {

// Owns a C object: `destroy` ends it, and then `parents` are released. REQUIRES: `made` is not nullptr
template <class C, class Destroy, class... Parents>
std::shared_ptr<C> own(C* made, Destroy destroy, Parents... parents) {
  return std::shared_ptr<C>(made, [destroy, ... kept = std::move(parents)](C* last) { destroy(last); });
}

}  // namespace detail
}  // namespace verbena
