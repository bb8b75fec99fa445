/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#ifdef __cplusplus
#define VERBENA_C_FUNCTION extern "C" __attribute__((visibility("default")))
#else
#define VERBENA_C_FUNCTION __attribute__((visibility("default")))
#endif

/* VERBENA_SYMBOL_VERSION(function, "name@VERSION"): placed before the definition of `function` (C linkage),
 * also exports it as an older version of `name`. The default version comes from the library's map file. GCC's
 * attribute works with link-time optimization, too. Clang lacks the attribute, so there the assembler's
 * directive does the same. */
#if __has_attribute(symver)
#define VERBENA_SYMBOL_VERSION(function, symbol) VERBENA_C_FUNCTION __attribute__((symver(symbol)))
#else
#define VERBENA_SYMBOL_VERSION(function, symbol) \
  __asm__(".symver " #function ", " symbol);     \
  VERBENA_C_FUNCTION
#endif
