// SPDX-License-Identifier: Apache-2.0
// Measures the CRC, alone and fused with the copy of a payload, and memcpy and ISA-L for comparison. Prints a
// table of ratios at the end: ratios depend less on the machine than rates.
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <isa-l/crc.h>

#include "base/format.h"
#include "base/random.h"
#include "wire/roce/crc_kernels.h"
#include "wire/roce/icrc.h"

namespace verbena::roce {
namespace {

// The payload of each path MTU, and of a super-packet.
constexpr int64_t kSizes[] = {64, 256, 512, 1024, 2048, 4096, 65536};

struct Buffers {
  explicit Buffers(size_t size) : from(size), to(size) {
    Random random(size);
    for (std::byte& byte : from) byte = static_cast<std::byte>(random.next());
  }
  std::vector<std::byte> from;
  std::vector<std::byte> to;
};

// Runs body(buffers, state) repeatedly; its result is the next call's state.
template <class Body>
void measure(benchmark::State& run, Body body) {
  Buffers buffers(static_cast<size_t>(run.range(0)));
  uint32_t state = crc_init();
  for (auto _ : run) {
    state = body(buffers, state);
    benchmark::DoNotOptimize(state);
    benchmark::ClobberMemory();
  }
  run.SetBytesProcessed(run.iterations() * run.range(0));
}

uint32_t isal_crc(uint32_t state, const std::vector<std::byte>& data) {
  return ~crc32_gzip_refl(~state, reinterpret_cast<const uint8_t*>(data.data()), data.size());
}

void register_all() {
  const auto add = [](const std::string& name, auto body) {
    auto* bench =
        benchmark::RegisterBenchmark(name.c_str(), [body](benchmark::State& s) { measure(s, body); });
    bench->MinTime(0.05);
    for (const int64_t size : kSizes) bench->Arg(size);
  };
  add("memcpy", [](Buffers& b, uint32_t state) {
    std::memcpy(b.to.data(), b.from.data(), b.from.size());
    return state;
  });
  add("isal", [](Buffers& b, uint32_t state) { return isal_crc(state, b.from); });
  add("memcpy_then_isal", [](Buffers& b, uint32_t state) {
    std::memcpy(b.to.data(), b.from.data(), b.from.size());
    return isal_crc(state, b.to);
  });
  add("crc", [](Buffers& b, uint32_t state) { return crc_update(state, b.from); });
  add("copy", [](Buffers& b, uint32_t state) { return crc_copy(state, b.to.data(), b.from); });
  for (const crc::Kernel* kernel : crc::kernels()) {
    if (!kernel->usable()) continue;
    add(verbena::format("crc_{}", kernel->name),
        [kernel](Buffers& b, uint32_t state) { return kernel->update(state, b.from.data(), b.from.size()); });
    add(verbena::format("copy_{}", kernel->name), [kernel](Buffers& b, uint32_t state) {
      return kernel->copy(state, b.to.data(), b.from.data(), b.from.size());
    });
  }
}

// Prints results as usual and keeps the times for the ratios.
class Reporter : public benchmark::ConsoleReporter {
 public:
  Reporter() : ConsoleReporter(OO_Tabular) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) times_[run.benchmark_name()] = run.GetAdjustedCPUTime();
  }

  void print_ratios() const {
    verbena::print("\n{:>8}  {:>10}  {:>10}  {:>12}  {:>22}   (rates; above 1 is faster)\n", "bytes",
                   "crc/isal", "copy/crc", "copy/memcpy", "copy/(memcpy + isal)");
    for (const int64_t size : kSizes) {
      verbena::print("{:>8}  {:>10.2f}  {:>10.2f}  {:>12.2f}  {:>22.2f}\n", size, ratio("crc", "isal", size),
                     ratio("copy", "crc", size), ratio("copy", "memcpy", size),
                     ratio("copy", "memcpy_then_isal", size));
    }
  }

 private:
  // Returns the speed of `a` relative to `b`; 0 if one was not run.
  double ratio(const char* a, const char* b, int64_t size) const {
    const auto mine = times_.find(name(a, size));
    const auto other = times_.find(name(b, size));
    return mine == times_.end() || other == times_.end() ? 0 : other->second / mine->second;
  }
  static std::string name(const char* bench, int64_t size) {
    return verbena::format("{}/{}/min_time:0.050", bench, size);
  }

  std::map<std::string, double> times_;
};

}  // namespace
}  // namespace verbena::roce

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  verbena::roce::register_all();
  verbena::roce::Reporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  reporter.print_ratios();
  return 0;
}
