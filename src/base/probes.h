// SPDX-License-Identifier: Apache-2.0
#pragma once

// Static probes (USDT, provider "verbena") for bpftrace, perf and systemtap; docs/watching.md lists them. A
// probe is a nop in the code and a note in the library's file (.note.stapsdt) that tells where the arguments
// are. Arguments that are in memory or in a register already, without a conversion, cost nothing. Built
// without the headers of systemtap-sdt-dev there are no probes, and arguments are not evaluated.
#if __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define VERBENA_PROBE(name, ...) STAP_PROBEV(verbena, name, __VA_ARGS__)
#else
namespace verbena {
template <class... Arguments>
char probe_arguments(const Arguments&...);
}  // namespace verbena
#define VERBENA_PROBE(name, ...) static_cast<void>(sizeof(::verbena::probe_arguments(__VA_ARGS__)))
#endif
