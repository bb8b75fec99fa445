// SPDX-License-Identifier: Apache-2.0
// Without shared memory the allocator uses ordinary memory. Each test has a process of its own, which has no
// memfd yet.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "preload/malloc/preload_support.h"

namespace verbena::backing_testing {
namespace {

bool limit(__rlimit_resource resource, rlim_t value) {
  rlimit both{};
  if (::getrlimit(resource, &both) != 0) return false;
  both.rlim_cur = value;
  return ::setrlimit(resource, &both) == 0;
}

bool is_ordinary_and_works(size_t bytes) {
  const Block block = allocate(bytes);
  if (block == nullptr || is_shared(block.get())) return false;
  fill(block.get(), bytes, 1);
  return are(block.get(), bytes, 1);
}

TEST(Limits, OnFilesSizesAreNotExceeded) {
  EXPECT_TRUE(in_child([] {
    ::signal(SIGXFSZ, SIG_DFL);
    return limit(RLIMIT_FSIZE, kMebibyte) && is_ordinary_and_works(2 * kMebibyte);
  }));
}

TEST(Limits, OnDescriptorsAreNotExceeded) {
  EXPECT_TRUE(in_child([] {
    return limit(RLIMIT_NOFILE, 0) && is_ordinary_and_works(kMebibyte) && limit(RLIMIT_NOFILE, 100) &&
           is_shared(allocate(kMebibyte).get());
  }));
}

// A limit on private memory might leave no room for a child's copies.
TEST(Limits, OnPrivateMemoryAreForMemoryThatIsCounted) {
  EXPECT_TRUE(in_child([] { return limit(RLIMIT_DATA, 1 << 30) && is_ordinary_and_works(kMebibyte); }));
  EXPECT_TRUE(in_child([] { return limit(RLIMIT_AS, 8ul << 30) && is_ordinary_and_works(kMebibyte); }));
}

uint64_t addresses_in_use() {
  unsigned long pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%lu", &pages) != 1) std::abort();
  std::fclose(file);
  return pages * kPage;
}

TEST(Limits, OnAddressesAreThoseOfTheProgramAlone) {
  EXPECT_TRUE(in_child([] {
    if (!is_shared(allocate(kMebibyte).get())) return false;
    if (addresses_in_use() > (uint64_t{1} << 30)) return false;  // no address range is reserved
    if (!limit(RLIMIT_AS, addresses_in_use() + 16 * kMebibyte)) return false;
    const Block fits = allocate(4 * kMebibyte);
    if (fits == nullptr) return false;
    fill(fits.get(), 4 * kMebibyte, 1);
    errno = 0;
    return allocate(256 * kMebibyte) == nullptr && errno == ENOMEM;
  }));
}

TEST(Limits, LockedMemoryIsWhatTheProgramHas) {
  EXPECT_TRUE(in_child([] {
    const Block before = allocate(kMebibyte);
    if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return true;  // not permitted for this user
    const Block after = allocate(kMebibyte);
    fill(after.get(), kMebibyte, 1);
    return bytes_of_file() <= 4 * kMebibyte;
  }));
}

// Makes a system call fail, as a sandbox does.
bool refuse(uint32_t system_call) {
  sock_filter lines[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
                         {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, system_call},
                         {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
                         {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog program{std::size(lines), lines};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Limits, OnSystemCallsLeaveClearedBlocksZeros) {
  EXPECT_TRUE(in_child([] {
    constexpr size_t kTooLargeToBeKept = 64 * kMebibyte;
    if (!refuse(SYS_fallocate)) return false;
    fill(allocate(kTooLargeToBeKept).get(), kTooLargeToBeKept, 1);
    const Block clear(std::calloc(1, kTooLargeToBeKept));
    return is_shared(clear.get()) && are(clear.get(), kTooLargeToBeKept, 0);
  }));
}

TEST(Descriptors, TheFileIsOutOfTheWay) {
  EXPECT_TRUE(in_child([] {
    const int lowest = ::open("/dev/null", O_RDONLY);
    ::close(lowest);
    const Block block = allocate(kMebibyte);
    if (!is_shared(block.get())) return false;
    const int file = *file_of_blocks();
    return ::open("/dev/null", O_RDONLY) == lowest && file > 500 &&
           (::fcntl(file, F_GETFD) & FD_CLOEXEC) != 0;
  }));
}

TEST(Descriptors, TheFileCannotBeMadeShorter) {
  const Block block = allocate(kMebibyte);
  EXPECT_EQ(::ftruncate(*file_of_blocks(), 0), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(Descriptors, AProgramMayCloseWhatItDidNotOpen) {
  EXPECT_TRUE(in_child([] {
    const Block before = allocate(kMebibyte);
    fill(before.get(), kMebibyte, 1);
    const void* const kept = allocate(kMebibyte).get();
    if (!is_shared(kept)) return false;
    ::close_range(3, ~0U, 0);
    const Block after = allocate(kMebibyte);
    if (is_shared(after.get()) || is_shared(kept) || !is_ordinary_and_works(3 * kMebibyte)) return false;
    void* grown = std::realloc(std::malloc(kMebibyte), 9 * kMebibyte);
    fill(grown, 9 * kMebibyte, 1);
    std::free(grown);
    return are(before.get(), kMebibyte, 1);
  }));
}

// The program has replaced the descriptor by another file, which the allocator must not touch.
TEST(Descriptors, AFileThatGetsTheNumberIsLeftAlone) {
  EXPECT_TRUE(in_child([] {
    Block before = allocate(kMebibyte);
    const int number = *file_of_blocks();
    const int other = ::memfd_create("the program's", MFD_CLOEXEC);
    if (::ftruncate(other, 1 << 20) != 0 || ::write(other, "content", 7) != 7) return false;
    if (::dup2(other, number) != number) return false;
    if (!is_ordinary_and_works(2 * kMebibyte)) return false;
    before.reset();
    const bool child = in_child([&] { return ::fcntl(number, F_GETFD) >= 0; });
    char text[8] = {};
    struct stat found {};
    return child && ::pread(number, text, 7, 0) == 7 && std::string(text) == "content" &&
           ::fstat(other, &found) == 0 && found.st_size == 1 << 20 &&
           found.st_blocks * 512 <= static_cast<blkcnt_t>(kPage);
  }));
}

}  // namespace
}  // namespace verbena::backing_testing
