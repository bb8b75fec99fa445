// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <type_traits>

#include <dlfcn.h>

namespace verbena {

// The next definition of an interposed function (dlsym(RTLD_NEXT)): the C library's, or another preloaded
// library's. find() looks the definition up at first use, which may be before any of our constructors ran.
// find() returns nullptr if there is no definition.
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
    // This C library lacks the function, so programs built for it do not need it.
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

// Begins the definition of a function that replaces the C library's function NAME. Also defines next_NAME,
// which calls the next definition. Without one, next_NAME sets errno to ENOSYS and returns -1 or nullptr.
//   INTERPOSE(int, chdir, (const char* path)) { ... return next_chdir(path); }
// The C++ name of the definition is shown_NAME, so that attributes in the C header do not apply to it. The
// attribute that matters is nonnull: programs do pass null.
#define INTERPOSE(result, name, parameters)                                                \
  extern "C" [[gnu::visibility("default")]] result shown_##name parameters __asm__(#name); \
  static constinit ::verbena::Next<result parameters> next_##name(#name);                  \
  [[gnu::constructor]] static void find_##name() {                                         \
    next_##name.find();                                                                    \
  }                                                                                        \
  result shown_##name parameters

}  // namespace verbena
