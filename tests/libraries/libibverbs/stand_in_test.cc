// SPDX-License-Identifier: Apache-2.0
// The stand-ins for drivers' libraries answer "not my device", in the way of each function.
#include <cerrno>
#include <string>
#include <type_traits>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/efadv.h>
#include <infiniband/mlx5dv.h>

namespace {

enum class Kind { kBool, kCode, kMinusOne, kPointer, kVoid };

template <class Function>
struct ResultOf;
template <class R, class... Args>
struct ResultOf<R(Args...)> {
  using type = R;
};

// Whether a function with a result of `kind` may stand for one that is declared with this type.
template <class Function>
constexpr bool may_be(Kind kind) {
  using R = typename ResultOf<Function>::type;
  if (std::is_void_v<R>) return kind == Kind::kVoid;
  if (std::is_pointer_v<R>) return kind == Kind::kPointer;
  if (std::is_same_v<R, bool>) return kind == Kind::kBool;
  if (std::is_same_v<R, ssize_t>) return kind == Kind::kMinusOne;
  return std::is_same_v<R, int> && (kind == Kind::kCode || kind == Kind::kMinusOne);
}

#define STAND_IN_BOOL(name) static_assert(may_be<decltype(name)>(Kind::kBool), #name);
#define STAND_IN_CODE(name) static_assert(may_be<decltype(name)>(Kind::kCode), #name);
#define STAND_IN_MINUS_ONE(name) static_assert(may_be<decltype(name)>(Kind::kMinusOne), #name);
#define STAND_IN_POINTER(name) static_assert(may_be<decltype(name)>(Kind::kPointer), #name);
#define STAND_IN_VOID(name) static_assert(may_be<decltype(name)>(Kind::kVoid), #name);
#include "libraries/libibverbs/stand_in/efa.def"
#include "libraries/libibverbs/stand_in/mlx5.def"

class Library {
 public:
  explicit Library(const std::string& name)
      : handle_(dlopen((VERBENA_LIBRARIES "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  template <class Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

TEST(StandIn, Mlx5SupportsNoDevice) {
  const Library mlx5("libmlx5.so.1");
  ibv_device device{};
  auto* is_supported = mlx5.find<decltype(mlx5dv_is_supported)>("mlx5dv_is_supported");
  ASSERT_NE(is_supported, nullptr);
  EXPECT_FALSE(is_supported(&device));
}

TEST(StandIn, Mlx5RefusesEachInItsWay) {
  const Library mlx5("libmlx5.so.1");
  errno = 0;
  mlx5dv_context_attr attr{};
  EXPECT_EQ(mlx5.find<decltype(mlx5dv_open_device)>("mlx5dv_open_device")(nullptr, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  mlx5dv_context context{};
  EXPECT_EQ(mlx5.find<decltype(mlx5dv_query_device)>("mlx5dv_query_device")(nullptr, &context), EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(mlx5.find<decltype(mlx5dv_devx_get_event)>("mlx5dv_devx_get_event")(nullptr, nullptr, 0), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(mlx5.find<decltype(mlx5dv_vfio_get_events_fd)>("mlx5dv_vfio_get_events_fd")(nullptr), -1);
  mlx5.find<decltype(mlx5dv_pp_free)>("mlx5dv_pp_free")(nullptr);
}

TEST(StandIn, EfaRefusesEachInItsWay) {
  const Library efa("libefa.so.1");
  efadv_device_attr attr{};
  EXPECT_EQ(efa.find<decltype(efadv_query_device)>("efadv_query_device")(nullptr, &attr, sizeof attr),
            EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(efa.find<decltype(efadv_create_driver_qp)>("efadv_create_driver_qp")(nullptr, nullptr, 0),
            nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
