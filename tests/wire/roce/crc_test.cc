// SPDX-License-Identifier: Apache-2.0
// Compares every CRC implementation that this machine can run with ISA-L.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <isa-l/crc.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/random.h"
#include "wire/roce/crc_kernels.h"
#include "wire/roce/icrc.h"

namespace verbena::roce {
namespace {

// ISA-L takes and returns the inverted (finished) form of the CRC.
uint32_t reference(uint32_t state, const std::byte* data, size_t size) {
  return ~crc32_gzip_refl(~state, reinterpret_cast<const unsigned char*>(data), size);
}

std::vector<std::byte> random_bytes(uint64_t seed, size_t size) {
  Random random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

class CrcKernel : public testing::TestWithParam<const crc::Kernel*> {
 protected:
  void SetUp() override {
    if (!kernel().usable()) GTEST_SKIP() << "this processor has no " << kernel().name;
  }
  static const crc::Kernel& kernel() { return *GetParam(); }
};

TEST_P(CrcKernel, AgreesWithIsaLAtEveryLength) {
  const auto data = random_bytes(1, 4400);
  for (size_t size = 0; size <= data.size() - 3; ++size) {
    const uint32_t state = static_cast<uint32_t>(size * 0x9e3779b9);
    const std::byte* const from = data.data() + size % 4;
    ASSERT_EQ(kernel().update(state, from, size), reference(state, from, size)) << size;
  }
  const auto large = random_bytes(2, 1 << 20);
  EXPECT_EQ(kernel().update(~0u, large.data(), large.size()), reference(~0u, large.data(), large.size()));
}

TEST_P(CrcKernel, CopiesEveryLengthAndNothingMore) {
  constexpr size_t kGuard = 80;
  const auto data = random_bytes(3, 4400);
  std::vector<std::byte> to(data.size() + 2 * kGuard);
  for (size_t size = 0; size <= data.size() - 3; ++size) {
    const std::byte* const from = data.data() + size % 3;
    std::byte* const start = to.data() + kGuard + size % 2;
    std::fill(to.begin(), to.end(), std::byte{0xee});
    ASSERT_EQ(kernel().copy(7, start, from, size), reference(7, from, size)) << size;
    ASSERT_EQ(std::memcmp(start, from, size), 0) << size;
    for (size_t i = 1; i <= kGuard - 1; ++i) {
      ASSERT_EQ(start[-static_cast<ptrdiff_t>(i)], std::byte{0xee}) << size;
      ASSERT_EQ(start[size + i - 1], std::byte{0xee}) << size;
    }
  }
}

TEST_P(CrcKernel, ContinuesFromAnySplit) {
  const auto data = random_bytes(4, 1500);
  const uint32_t whole = reference(~0u, data.data(), data.size());
  for (size_t split = 0; split <= data.size(); ++split) {
    const uint32_t first = kernel().update(~0u, data.data(), split);
    ASSERT_EQ(kernel().update(first, data.data() + split, data.size() - split), whole) << split;
  }
}

TEST_P(CrcKernel, MultipliesResidues) {
  Random random(5);
  for (int i = 0; i < 20000; ++i) {
    const auto a = static_cast<uint32_t>(random.next());
    const auto b = static_cast<uint32_t>(random.next());
    ASSERT_EQ(kernel().multiply(a, b), crc::multiply(a, b)) << a << " " << b;
  }
  for (const uint32_t a : {0u, 1u, crc::kOne, ~0u}) {
    for (const uint32_t b : {0u, 1u, crc::kOne, ~0u}) EXPECT_EQ(kernel().multiply(a, b), crc::multiply(a, b));
  }
}

// Reads and writes stay exactly inside the buffers: each lies next to an inaccessible page, once with its end
// and once with its start.
TEST_P(CrcKernel, StaysInsideItsBuffers) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t room = 2 * page;
  const auto map_between_holes = [&] {
    auto* base = static_cast<std::byte*>(
        mmap(nullptr, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(base + page, room, PROT_READ | PROT_WRITE), 0);
    return base;
  };
  std::byte* const from_map = map_between_holes();
  std::byte* const to_map = map_between_holes();
  for (size_t size = 0; size <= 1200; ++size) {
    for (const bool at_end : {false, true}) {
      std::byte* const from = from_map + page + (at_end ? room - size : 0);
      std::byte* const to = to_map + page + (at_end ? room - size : 0);
      ASSERT_EQ(kernel().update(~0u, from, size), reference(~0u, from, size));
      ASSERT_EQ(kernel().copy(~0u, to, from, size), reference(~0u, from, size));
    }
  }
  munmap(from_map, room + 2 * page);
  munmap(to_map, room + 2 * page);
}

#if !defined(__SANITIZE_THREAD__)  // the test races on purpose
// An application may write to memory while a peer reads it. The CRC always matches the bytes that were
// copied.
TEST_P(CrcKernel, CrcMatchesTheCopyThoughTheSourceChanges) {
  std::vector<std::byte> source(4096);
  std::vector<std::byte> to(source.size());
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint8_t value = 0; !stop.load(std::memory_order_relaxed); ++value) {
      std::memset(source.data(), value, source.size());
      asm volatile("" ::: "memory");
    }
  });
  Random random(6);
  int torn = 0;
  for (int i = 0; i < 20000; ++i) {
    const size_t size = 1 + random.below(i % 2 == 0 ? 100 : source.size());
    const uint32_t state = kernel().copy(~0u, to.data(), source.data() + source.size() - size, size);
    EXPECT_EQ(state, reference(~0u, to.data(), size)) << size;
    torn += to[0] != to[size - 1];
  }
  stop = true;
  writer.join();
  RecordProperty("copies_with_a_change_inside", torn);
}
#endif

// Turns a kernel's name such as "VPCLMULQDQ, 256 bits" into letters and digits only, as GoogleTest requires.
std::string test_name(const testing::TestParamInfo<const crc::Kernel*>& kernel) {
  std::string name = kernel.param->name;
  std::erase_if(name, [](unsigned char c) { return std::isalnum(c) == 0; });
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, CrcKernel, testing::ValuesIn(crc::kernels().begin(), crc::kernels().end()),
                         test_name);

TEST(Crc, KnownAnswer) {
  const std::string digits = "123456789";  // the check value in every catalogue of CRCs
  EXPECT_EQ(crc_final(crc_update(crc_init(), std::as_bytes(std::span(digits)))), 0xcbf43926u);
}

TEST(Crc, DispatchGivesTheSameFromTheFirstCallOn) {
  const auto data = random_bytes(7, 5000);
  std::vector<std::byte> to(data.size());
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(crc_update(crc_init(), data), reference(~0u, data.data(), data.size()));
    EXPECT_EQ(crc_copy(crc_init(), to.data(), data), reference(~0u, data.data(), data.size()));
    EXPECT_EQ(to, data);
    EXPECT_EQ(crc::fast_multiply(0x12345678, 0x9abcdef0), crc::multiply(0x12345678, 0x9abcdef0));
  }
}

TEST(CrcPolynomial, PowersOfX) {
  EXPECT_EQ(crc::x_to(0), crc::kOne);
  EXPECT_EQ(crc::x_to(32), crc::kPolynomial) << "x^32 is the polynomial's own remainder";
  for (const int64_t n : {1, 7, 8, 31, 33, 4096 * 8, 65535 * 8}) {
    EXPECT_EQ(crc::multiply(crc::x_to(n), crc::x_to(-n)), crc::kOne) << n;
    EXPECT_EQ(crc::times_x(crc::x_to(n - 1)), crc::x_to(n)) << n;
    EXPECT_EQ(crc::over_x(crc::x_to(n + 1)), crc::x_to(n)) << n;
  }
}

TEST(Crc, OfAWordIsThatOfItsBytes) {
  const auto data = random_bytes(11, 4 * 200);
  uint32_t state = crc_init();
  for (size_t i = 0; i < data.size(); i += 4) {
    uint32_t word;
    std::memcpy(&word, data.data() + i, sizeof word);
    const uint32_t expected = crc_update(state, ConstBytes(data).subspan(i, 4));
    ASSERT_EQ(crc_update_word(state, word), expected) << i;
    state = expected;
  }
}

TEST(Crc, OfZerosIsThatOfTheirBytes) {
  const std::vector<std::byte> zeros(300);
  for (uint32_t bytes = 0; bytes <= zeros.size(); ++bytes) {
    ASSERT_EQ(crc_of_zeros(0x12345678 + bytes, bytes),
              crc_update(0x12345678 + bytes, ConstBytes(zeros).first(bytes)));
  }
}

}  // namespace
}  // namespace verbena::roce
