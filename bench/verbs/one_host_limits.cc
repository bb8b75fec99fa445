// SPDX-License-Identifier: Apache-2.0
// Measures the limits of this machine between two processes without any protocol; bench/verbs/one_host.py
// compares Verbena with them. Prints one line for each limit: name, value, unit. The value is the median of
// several measurements.
//
// Each process is pinned to a processor, except where the name says "unpinned": there the kernel chooses the
// processor of a woken process, as for programs that are not pinned.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMessageBytes = 1 << 20;
constexpr size_t kPieceBytes = 16 << 10;
// The ring has 512 KiB, which stays in the caches. One of 160 KiB or less is a third slower between
// processors that are far apart.
constexpr size_t kPieces = 32;

void require(bool good, const char* what) {
  if (good) return;
  fmt::print(stderr, "one_host_limits: {}: {}\n", what, std::strerror(errno));
  std::_Exit(1);
}

double nanoseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

// The processors of the two processes: two of those allowed, or any.
class Processors {
 public:
  Processors() { require(::sched_getaffinity(0, sizeof allowed_, &allowed_) == 0, "sched_getaffinity"); }

  // Uses the given processors, or the first two that are allowed.
  void choose(const std::vector<int>& wanted) {
    chosen_ = wanted;
    for (int i = 0; i < CPU_SETSIZE && chosen_.size() < 2; ++i) {
      if (CPU_ISSET(i, &allowed_)) chosen_.push_back(i);
    }
    errno = EINVAL;
    require(chosen_.size() == 2 && chosen_[0] != chosen_[1], "two processors are needed");
  }

  void pin(size_t side) const {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(chosen_[side], &set);
    require(::sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
  }

  void unpin() const {
    require(::sched_setaffinity(0, sizeof allowed_, &allowed_) == 0, "sched_setaffinity");
  }

 private:
  cpu_set_t allowed_;
  std::vector<int> chosen_;
};

Processors processors;

// A second process with a copy of our memory. It ends with this one.
class Partner {
 public:
  explicit Partner(const std::function<void()>& work) : parent_(::getpid()), pid_(::fork()) {
    require(pid_ >= 0, "fork");
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent_) std::_Exit(1);
    work();
    std::_Exit(0);
  }
  Partner(const Partner&) = delete;
  Partner& operator=(const Partner&) = delete;
  ~Partner() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }

 private:
  pid_t parent_;
  pid_t pid_;
};

// One T in memory that both processes map.
template <typename T>
class Shared {
 public:
  Shared() {
    const int fd = ::memfd_create("one_host_limits", MFD_CLOEXEC);
    require(fd >= 0 && ::ftruncate(fd, sizeof(T)) == 0, "memfd_create");
    void* at = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    require(at != MAP_FAILED, "mmap");
    ::close(fd);
    value_ = new (at) T;
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { ::munmap(value_, sizeof(T)); }

  T* operator->() const { return value_; }

 private:
  T* value_;
};

struct alignas(64) Flag {
  std::atomic<uint64_t> value = 0;

  void await(uint64_t wanted) const {
    while (value.load(std::memory_order_acquire) < wanted) continue;
  }
  void set(uint64_t to) { value.store(to, std::memory_order_release); }
};

// Private memory as malloc() returns it for buffers of this size: 4 KiB pages, all present.
class Buffer {
 public:
  explicit Buffer(uint8_t fill)
      : bytes_(static_cast<uint8_t*>(std::aligned_alloc(4096, kMessageBytes)), &std::free) {
    require(bytes_ != nullptr, "aligned_alloc");
    std::memset(bytes_.get(), fill, kMessageBytes);
  }
  uint8_t* data() const { return bytes_.get(); }

 private:
  std::unique_ptr<uint8_t, decltype(&std::free)> bytes_;
};

// Converts to GB/s, which is bytes per nanosecond.
double rate(size_t messages, double nanoseconds) {
  return static_cast<double>(messages) * static_cast<double>(kMessageBytes) / nanoseconds;
}

double flag_half_round_trip() {
  constexpr uint64_t kWarmUp = 10'000;
  constexpr uint64_t kCount = 200'000;
  struct Flags {
    Flag there;
    Flag back;
  };
  const Shared<Flags> flags;
  const Partner partner([&] {
    processors.pin(1);
    for (uint64_t i = 1; i <= kWarmUp + kCount; ++i) {
      flags->there.await(i);
      flags->back.set(i);
    }
  });
  Clock::time_point start;
  for (uint64_t i = 1; i <= kWarmUp + kCount; ++i) {
    if (i == kWarmUp + 1) start = Clock::now();
    flags->there.set(i);
    flags->back.await(i);
  }
  return nanoseconds_since(start) / kCount / 2;
}

// One processor copies into a ring while the other copies out of it.
double two_copy_ring() {
  constexpr size_t kWarmUp = 20;
  constexpr size_t kMessages = 1000;
  constexpr size_t kPiecesOfMessage = kMessageBytes / kPieceBytes;
  struct Ring {
    Flag filled;
    Flag emptied;
    alignas(4096) std::array<std::array<uint8_t, kPieceBytes>, kPieces> pieces;
  };
  const Shared<Ring> ring;
  const Buffer source(1), target(2);
  const Partner partner([&] {
    processors.pin(1);
    for (uint64_t i = 0; i < (kWarmUp + kMessages) * kPiecesOfMessage; ++i) {
      ring->filled.await(i + 1);
      std::memcpy(target.data() + i % kPiecesOfMessage * kPieceBytes, ring->pieces[i % kPieces].data(),
                  kPieceBytes);
      ring->emptied.set(i + 1);
    }
  });
  uint64_t piece = 0;
  const auto send = [&](size_t messages) {
    for (const uint64_t end = piece + messages * kPiecesOfMessage; piece < end; ++piece) {
      if (piece >= kPieces) ring->emptied.await(piece - kPieces + 1);
      std::memcpy(ring->pieces[piece % kPieces].data(),
                  source.data() + piece % kPiecesOfMessage * kPieceBytes, kPieceBytes);
      ring->filled.set(piece + 1);
    }
    ring->emptied.await(piece);
  };
  send(kWarmUp);
  const auto start = Clock::now();
  send(kMessages);
  return rate(kMessages, nanoseconds_since(start));
}

double memory_copy() {
  constexpr size_t kMessages = 1000;
  const Buffer source(1), target(2);
  const auto start = Clock::now();
  for (size_t i = 0; i < kMessages; ++i) {
    std::memcpy(target.data(), source.data(), kMessageBytes);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // keeps the compiler from removing copies
  }
  return rate(kMessages, nanoseconds_since(start));
}

using Transfer = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

// Returns the nanoseconds of a transfer to or from a sleeping process.
double process_vm(Transfer transfer, size_t bytes, size_t count) {
  const Shared<Flag> ready;
  const Buffer ours(1), theirs(2);
  const Partner partner([&] {
    processors.pin(1);
    std::memset(theirs.data(), 3, kMessageBytes);  // makes its pages private to the partner
    ready->set(1);
    while (true) ::pause();
  });
  ready->await(1);
  const iovec local{ours.data(), bytes}, remote{theirs.data(), bytes};
  const auto once = [&] {
    const ssize_t moved = transfer(partner.pid(), &local, 1, &remote, 1, 0);
    require(moved == static_cast<ssize_t>(bytes), "process_vm_readv, process_vm_writev");
  };
  for (size_t i = 0; i < count / 10; ++i) once();
  const auto start = Clock::now();
  for (size_t i = 0; i < count; ++i) once();
  return nanoseconds_since(start) / static_cast<double>(count);
}

double process_vm_latency(Transfer transfer) {
  return process_vm(transfer, 8, 20'000);
}
double process_vm_rate(Transfer transfer) {
  return rate(1, process_vm(transfer, kMessageBytes, 500));
}

class EventFd {
 public:
  EventFd() : fd_(::eventfd(0, EFD_CLOEXEC)) { require(fd_ >= 0, "eventfd"); }
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;
  ~EventFd() { ::close(fd_); }

  void signal() const { require(::eventfd_write(fd_, 1) == 0, "eventfd_write"); }
  void await() const {
    eventfd_t value;
    require(::eventfd_read(fd_, &value) == 0, "eventfd_read");
  }

 private:
  int fd_;
};

enum class Places : uint8_t { kAnywhere, kApart };

void work_for(std::chrono::nanoseconds time) {
  if (time.count() == 0) return;
  for (const Clock::time_point end = Clock::now() + time; Clock::now() < end;) continue;
}

// Returns microseconds, without `work`, which each process does between waking up and waking the other. A
// process without work sleeps again before the other runs, and the kernel often keeps both on one processor.
// Real programs do not behave like that.
double eventfd_half_round_trip(Places places, std::chrono::nanoseconds work = {}) {
  constexpr int kWarmUp = 200;
  constexpr int kCount = 3000;
  const EventFd there, back;
  const auto take_place = [places](size_t side) {
    places == Places::kApart ? processors.pin(side) : processors.unpin();
  };
  const Partner partner([&] {
    take_place(1);
    for (int i = 0; i < kWarmUp + kCount; ++i) {
      there.await();
      work_for(work);
      back.signal();
    }
  });
  take_place(0);
  Clock::time_point start;
  for (int i = 0; i < kWarmUp + kCount; ++i) {
    if (i == kWarmUp) start = Clock::now();
    there.signal();
    work_for(work);
    back.await();
  }
  return (nanoseconds_since(start) / kCount / 2 - static_cast<double>(work.count()) / 2) / 1000;
}

// Keeps the compiler from combining additions.
inline void add_for_real(uint64_t& sum) {
  asm volatile("" : "+r"(sum));
}

// Returns the number of independent additions that a processor executes per cycle. It is lower if the core's
// other hardware thread, which a virtual machine does not see, is busy with other work.
double additions_a_cycle(size_t side) {
  constexpr int kRounds = 500'000;
  processors.pin(side);
  uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;
  const auto increment = [](auto&... sums) { ((++sums, add_for_real(sums)), ...); };
  Clock::time_point start = Clock::now();
  for (int i = 0; i < kRounds; ++i) increment(a, a, a, a, a, a, a, a, a, a, a, a);
  const double one_by_one = nanoseconds_since(start);
  start = Clock::now();
  for (int i = 0; i < kRounds; ++i) increment(a, b, c, d, e, f, a, b, c, d, e, f);
  return one_by_one / nanoseconds_since(start);
}

// Returns the lower value of the two processors.
double additions_at_once() {
  return std::min(additions_a_cycle(0), additions_a_cycle(1));
}

struct Limit {
  const char* name;
  const char* unit;
  std::function<double()> measure;
};

const std::array kLimits = {
    Limit{"flag", "ns", flag_half_round_trip},
    Limit{"additions_at_once", "a-cycle", additions_at_once},
    Limit{"two_copy_ring", "GB/s", two_copy_ring},
    Limit{"memcpy", "GB/s", memory_copy},
    Limit{"process_vm_readv_8", "ns", [] { return process_vm_latency(::process_vm_readv); }},
    Limit{"process_vm_writev_8", "ns", [] { return process_vm_latency(::process_vm_writev); }},
    Limit{"process_vm_readv", "GB/s", [] { return process_vm_rate(::process_vm_readv); }},
    Limit{"process_vm_writev", "GB/s", [] { return process_vm_rate(::process_vm_writev); }},
    Limit{"eventfd", "us", [] { return eventfd_half_round_trip(Places::kApart); }},
    Limit{"eventfd_unpinned", "us", [] { return eventfd_half_round_trip(Places::kAnywhere); }},
    Limit{"eventfd_working", "us",
          [] { return eventfd_half_round_trip(Places::kAnywhere, std::chrono::microseconds(1)); }},
};

double median_of(const Limit& limit, int rounds) {
  std::vector<double> values;
  for (int i = 0; i < rounds; ++i) {
    processors.pin(0);
    values.push_back(limit.measure());
  }
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures the limits of two processes on one host. Prints name, value and unit of each.");
  int rounds = 7;
  std::vector<int> wanted_processors;
  std::vector<std::string> only;
  app.add_option("--rounds", rounds, "measurements of each limit")->check(CLI::PositiveNumber);
  app.add_option("--processors", wanted_processors, "the two to use; default: the first two")->expected(2);
  app.add_option("--only", only, "names of limits; default: all");
  CLI11_PARSE(app, argc, argv);
  processors.choose(wanted_processors);
  for (const Limit& limit : kLimits) {
    if (!only.empty() && std::find(only.begin(), only.end(), limit.name) == only.end()) continue;
    fmt::print("{} {:.4g} {}\n", limit.name, median_of(limit, rounds), limit.unit);
    std::fflush(stdout);
  }
}
