// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <verbena/result.hpp>
#include <verbena/verbs/device.hpp>
#include <verbena/verbs/object.hpp>

// Protection domains, and memory that adapters read and write.
namespace verbena {

class address_handle;
class memory_window;
class qp;
class srq;
struct qp_options;
struct srq_options;
enum class transport : std::uint8_t;

// The rights of adapters to registered memory. Local reading is always allowed. remote_write and
// remote_atomic include local_write, as the specification demands (IBTA 10.6.3.1).
enum class access : unsigned {
  local_read = 0,
  local_write = IBV_ACCESS_LOCAL_WRITE,
  remote_read = IBV_ACCESS_REMOTE_READ,
  remote_write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
  remote_atomic = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
  bind_windows = IBV_ACCESS_MW_BIND,
  zero_based = IBV_ACCESS_ZERO_BASED,
  on_demand = IBV_ACCESS_ON_DEMAND,
  relaxed_ordering = IBV_ACCESS_RELAXED_ORDERING,
};
constexpr access operator|(access a, access b) {
  return static_cast<access>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr unsigned bits(access rights) {
  return static_cast<unsigned>(rights);
}

// A part of registered memory: its address, its length and its local key. Work requests take slices. The
// region that the slice is a part of must live until the requests have completed.
class slice {
 public:
  slice() = default;
  slice(std::span<std::byte> memory, std::uint32_t lkey) : memory_(memory), lkey_(lkey) {}

  std::byte* data() const { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }
  std::span<std::byte> bytes() const { return memory_; }
  std::uint32_t lkey() const { return lkey_; }
  ibv_sge get() const {
    return {reinterpret_cast<std::uintptr_t>(data()), static_cast<std::uint32_t>(size()), lkey_};
  }

  // Return a part of the slice. Throw exception with ERANGE if the part is not within the slice.
  slice first(std::size_t count) const {
    if (count > size()) throw_range();
    return {memory_.first(count), lkey_};
  }
  slice last(std::size_t count) const {
    if (count > size()) throw_range();
    return {memory_.last(count), lkey_};
  }
  slice part(std::size_t offset, std::size_t count = std::dynamic_extent) const {
    if (offset > size() || (count != std::dynamic_extent && count > size() - offset)) throw_range();
    return {memory_.subspan(offset, count), lkey_};
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] static void throw_range() {
    throw exception(error("take a part of a slice", ERANGE));
  }

  std::span<std::byte> memory_;
  std::uint32_t lkey_ = 0;
};

// Returns a slice of memory that is not registered. Only inlined requests take it: post() copies its bytes.
inline slice unregistered(const void* data, std::size_t size) {
  return {{static_cast<std::byte*>(const_cast<void*>(data)), size}, 0};
}

// Memory of the peer: its address there, its length in bytes and its remote key. Trivially copyable, so that
// the owner can send it to the peer. All fields are in the owner's byte order. first() and part() do not
// check that the part is within the memory.
struct remote_slice {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint32_t rkey = 0;
  std::uint32_t reserved = 0;

  remote_slice first(std::uint64_t count) const { return {address, count, rkey, 0}; }
  remote_slice part(std::uint64_t offset, std::uint64_t count) const {
    return {address + offset, count, rkey, 0};
  }
};
static_assert(std::is_trivially_copyable_v<remote_slice> && sizeof(remote_slice) == 24);

// Registered memory. Its destruction ends the registration, and frees the memory if pd::allocate() made it.
// REQUIRES: all requests that use the memory have completed before
class region : public object<ibv_mr> {
 public:
  using object::object;
  std::byte* data() const { return static_cast<std::byte*>(get()->addr); }
  std::size_t size() const { return get()->length; }
  std::span<std::byte> bytes() const { return {data(), size()}; }
  std::uint32_t lkey() const { return get()->lkey; }
  std::uint32_t rkey() const { return get()->rkey; }

  operator slice() const { return {bytes(), lkey()}; }
  slice first(std::size_t count) const { return slice(*this).first(count); }
  slice last(std::size_t count) const { return slice(*this).last(count); }
  slice part(std::size_t offset, std::size_t count = std::dynamic_extent) const {
    return slice(*this).part(offset, count);
  }
  // Returns address, length and remote key of this memory. Send them to the peer, which can then reach the
  // memory.
  remote_slice remote() const { return {reinterpret_cast<std::uintptr_t>(data()), size(), rkey(), 0}; }
  // Returns the memory as an array of T. REQUIRES: T is trivially copyable, and the memory is aligned for it
  template <class T>
  std::span<T> as() const {
    static_assert(std::is_trivially_copyable_v<T>);
    return {reinterpret_cast<T*>(data()), size() / sizeof(T)};
  }
};

// A protection domain: queue pairs reach only memory of their own domain.
class pd : public object<ibv_pd> {
 public:
  using object::object;

  // Registers memory of the program, which must exist longer than the region. If `owner` owns the memory, the
  // region keeps it.
  result<region> register_memory(std::span<std::byte> memory, access rights = access::local_write,
                                 std::shared_ptr<void> owner = nullptr) const {
    // In newer headers ibv_reg_mr() is a macro.
    ibv_mr* const made = ibv_reg_mr(get(), memory.data(), memory.size(), static_cast<int>(bits(rights)));
    if (made == nullptr) {
      const int code = errno;
      return error("register memory", code, {},
                   code == ENOMEM ? "the limit of locked memory may be too low (ulimit -l)" : nullptr);
    }
    return region(detail::own(made, ibv_dereg_mr, handle(), std::move(owner)));
  }
  // Allocates zeroed pages of memory and registers them. Fails with ENOMEM if there is no memory, or if the
  // limit of locked memory is reached.
  result<region> allocate(std::size_t size, access rights = access::local_write) const {
    void* const pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return error("allocate memory", errno);
    const std::shared_ptr<void> memory(pages, [size](void* last) { ::munmap(last, size); });
    return register_memory({static_cast<std::byte*>(pages), size}, rights, memory);
  }
  // Registers memory of a device, such as a GPU. `file`: its dma-buf descriptor. `address`: the address that
  // work requests use for the beginning of the region.
  result<region> register_dmabuf(int file, std::uint64_t offset, std::size_t size, std::uint64_t address,
                                 access rights) const {
    ibv_mr* const made =
        ibv_reg_dmabuf_mr(get(), offset, size, address, file, static_cast<int>(bits(rights)));
    if (made == nullptr) return error("register a dma-buf", errno);
    return region(detail::own(made, ibv_dereg_mr, handle()));
  }

  result<qp> make_qp(transport kind, const qp_options& options) const;
  result<srq> make_srq(const srq_options& options) const;
  result<memory_window> make_window(ibv_mw_type type = IBV_MW_TYPE_2) const;
  // Makes an address handle, by which datagrams (UD) reach the port with this address.
  result<address_handle> make_address(const ibv_gid& gid, std::uint8_t port = 1) const;
  result<address_handle> make_address(ibv_ah_attr attributes) const;
};

inline result<pd> context::make_pd() const {
  ibv_pd* const made = ibv_alloc_pd(get());
  if (made == nullptr) return failure("make a protection domain on", errno);
  return pd(detail::own(made, ibv_dealloc_pd, handle()));
}

// A memory window: a remote key for a part of a region. bind() gives the key to a part, and invalidate()
// takes it back. Both are faster than a registration.
class memory_window : public object<ibv_mw> {
 public:
  using object::object;
  std::uint32_t rkey() const { return get()->rkey; }
};

inline result<memory_window> pd::make_window(ibv_mw_type type) const {
  ibv_mw* const made = ibv_alloc_mw(get(), type);
  if (made == nullptr) return error("make a memory window", errno);
  return memory_window(detail::own(made, ibv_dealloc_mw, handle()));
}

}  // namespace verbena
