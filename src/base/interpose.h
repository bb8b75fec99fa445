// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <type_traits>

#include <dlfcn.h>

namespace verbena {

// The next definition of a function that we interpose: the C library's, or another preload's. Looked up at
// first use, which may be before any of our constructors ran.
template <class Function>
class NextDefinition {
 public:
  constexpr explicit NextDefinition(const char* name) : name_(name) {}

  Function* find() {
    Function* function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) {
      function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name_));
      function_.store(function, std::memory_order_relaxed);
    }
    return function;
  }

 protected:
  template <class Result, class... Arguments>
  Result call(Arguments... arguments) {
    Function* function = find();
    if (function != nullptr) return function(arguments...);
    // A C library without this function: programs that run on it cannot need it.
    errno = ENOSYS;
    if constexpr (std::is_pointer_v<Result>) {
      return nullptr;
    } else if constexpr (!std::is_void_v<Result>) {
      return -1;
    }
  }

 private:
  const char* const name_;
  std::atomic<Function*> function_{nullptr};
};

template <class Function>
class Next;

template <class Result, class... Arguments>
class Next<Result(Arguments...)> : public NextDefinition<Result(Arguments...)> {
 public:
  using NextDefinition<Result(Arguments...)>::NextDefinition;
  Result operator()(Arguments... arguments) { return this->template call<Result>(arguments...); }
};

template <class Result, class... Arguments>
class Next<Result(Arguments..., ...)> : public NextDefinition<Result(Arguments..., ...)> {
 public:
  using NextDefinition<Result(Arguments..., ...)>::NextDefinition;
  template <class... More>
  Result operator()(Arguments... arguments, More... more) {
    return this->template call<Result>(arguments..., more...);
  }
};

// INTERPOSE(int, chdir, (const char* path)) { ... }
//   defines the C library's function of that name, and next_chdir for the one behind it. The C++ name
//   differs, so that the header's attributes (above all nonnull: programs do pass null) do not apply to us.
#define INTERPOSE(result, name, parameters)                                                \
  extern "C" [[gnu::visibility("default")]] result shown_##name parameters __asm__(#name); \
  static constinit ::verbena::Next<result parameters> next_##name(#name);                  \
  [[gnu::constructor]] static void find_##name() {                                         \
    next_##name.find();                                                                    \
  }                                                                                        \
  result shown_##name parameters

}  // namespace verbena
