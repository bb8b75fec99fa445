// SPDX-License-Identifier: Apache-2.0
#include "control/model/agent_status.h"

#include <cerrno>

#include <sys/syscall.h>
#include <unistd.h>

#include "wire/roce/qpn.h"

namespace verbena::control {

namespace {

using protocol::ObjectKind;

constexpr size_t kWords = sizeof(protocol::QpStatus) / sizeof(uint64_t);
constexpr size_t kQpBytes = sizeof(protocol::QpStatus);
constexpr size_t kQpsOffset = offsetof(protocol::StatusPage, qps);
constexpr size_t kEnd = protocol::kStatusBytesWithoutPaths;
constexpr uint32_t kQpsPerRead = 128;
constexpr uint32_t kQpsAtOnce = 2048;
constexpr size_t kWorkOfLook = 256;
constexpr size_t kWorkOfRun = 8;
constexpr size_t kWorkOfCall = 2;
static_assert(protocol::kQpNumbers == transport::kFirstMoreCounter);
constexpr size_t kMoreCounters = transport::kQpCounterCount - transport::kFirstMoreCounter;
static_assert(protocol::kPathNumbers == transport::kPathNumberCount);
static_assert(protocol::kQpsPerSlot == roce::Qpn::kPerSlot);
using QpWords = std::array<uint64_t, kWords>;

bool read_at(int fd, void* to, size_t bytes, size_t offset) {
  return ::pread(fd, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

uint64_t word_at(const QpWords& words, size_t byte_offset) {
  return words[byte_offset / 8];
}

// The route of a QP. Routes that a newer library reports and this code does not know use memory, too.
protocol::QpWay way_of(uint64_t word) {
  return word < protocol::kQpWays ? static_cast<protocol::QpWay>(word) : protocol::QpWay::kMemory;
}

QpNumbers numbers_of(const QpWords& words) {
  QpNumbers qp;
  qp.qpn = static_cast<uint32_t>(word_at(words, offsetof(protocol::QpStatus, qpn)));
  qp.type = static_cast<uint32_t>(word_at(words, offsetof(protocol::QpStatus, type)));
  qp.state = static_cast<uint32_t>(word_at(words, offsetof(protocol::QpStatus, state)));
  qp.remote_qpn = static_cast<uint32_t>(word_at(words, offsetof(protocol::QpStatus, remote_qpn)));
  qp.way = way_of(word_at(words, offsetof(protocol::QpStatus, way)));
  qp.device_index = static_cast<uint32_t>(word_at(words, offsetof(protocol::QpStatus, device_index)));
  std::copy_n(&words[offsetof(protocol::QpStatus, counters) / 8], protocol::kQpNumbers, qp.counters.begin());
  return qp;
}

bool is_wanted(const QpWords& words, QpChoice choice) {
  const bool in_use = word_at(words, offsetof(protocol::QpStatus, in_use)) != 0;
  return in_use || (choice == QpChoice::kAll && word_at(words, offsetof(protocol::QpStatus, qpn)) != 0);
}

// Rows of numbers that a page keeps apart from the words of its QPs, one row for each QP, read some at a
// time. Zeros where the file has none: an older agent made it, or an older library writes it.
template <class Row, size_t kOffset>
class Rows {
 public:
  explicit Rows(int fd) : fd_(fd) {}
  const Row& of(uint32_t place) {
    if (const uint32_t first = place - place % kQpsPerRead; first != first_) read(first);
    return rows_[place - first_];
  }

 private:
  void read(uint32_t first) {
    first_ = first;
    if (!read_at(fd_, rows_.data(), sizeof rows_, kOffset + first * sizeof(Row))) rows_ = {};
  }
  const int fd_;
  uint32_t first_ = UINT32_MAX;  // none
  std::array<Row, kQpsPerRead> rows_{};
};
using PathRow = decltype(QpNumbers::path);
static_assert(sizeof(PathRow) == sizeof(protocol::PathStatus));
using Paths = Rows<PathRow, offsetof(protocol::StatusPage, paths)>;
using MoreRow = std::array<uint64_t, protocol::kQpMoreNumbers>;
using MoreCounters = Rows<MoreRow, offsetof(protocol::StatusPage, more)>;

// Libraries that are too old to count octets have counts of the payload only, which are used instead.
void add_more(const MoreRow& row, QpNumbers& qp) {
  std::copy_n(row.begin(), kMoreCounters, qp.counters.begin() + transport::kFirstMoreCounter);
  if (row != MoreRow{}) return;
  qp.counters[transport::kSentOctets] = qp.counters[transport::kSentBytes];
  qp.counters[transport::kReceivedOctets] = qp.counters[transport::kReceivedBytes];
}

// Calls `visit` with the place and the words of each QP in [first, end). False: the file could not be read.
template <class Visit>
bool visit_qps(int fd, uint32_t first, uint32_t end, Visit visit) {
  std::array<QpWords, kQpsPerRead> qps;
  for (uint32_t at = first; at < end; at += kQpsPerRead) {
    const uint32_t count = std::min(kQpsPerRead, end - at);
    if (!read_at(fd, qps.data(), count * sizeof(QpWords), kQpsOffset + at * kQpBytes)) return false;
    for (uint32_t i = 0; i < count; ++i) visit(at + i, qps[i]);
  }
  return true;
}

bool is_begun(int fd) {
  uint64_t magic = 0;
  return read_at(fd, &magic, sizeof magic, 0) && magic == protocol::StatusPage::kMagic;
}

// cachestat(2), since Linux 6.5. The C library's headers may lack it. Its number is the same on all
// architectures of Linux but Alpha.
constexpr long kCachestat = 451;
struct CachestatRange {
  uint64_t offset;
  uint64_t bytes;
};
struct Cachestat {
  uint64_t in_memory;
  uint64_t others[4];
};

// Which parts of the file are in memory. cachestat() tells without any lock of the file. Where the kernel is
// older, or a filter refuses the call, lseek(2) tells, and waits for the file's lock. mincore(2) would need a
// mapping: mmap() waits for a lock that another process can hold for seconds, and this process's other
// threads then wait for mmap(), at their next page fault or allocation.
class Residency {
 public:
  explicit Residency(int fd) : fd_(fd), pages_((kEnd + page_bytes() - 1) / page_bytes(), kUnknown) {}
  bool has(uint32_t place) { return has_page(page_of(place)); }
  // The first place behind `first` for which has() differs, or `most` places behind it.
  uint32_t end_of_run(uint32_t first, uint32_t most) {
    size_t page = page_of(first) + 1;
    const bool is_there = has(first);
    const size_t end = std::min(pages_.size(), page_of(first + most) + 1);
    while (page < end && has_page(page) == is_there) ++page;
    const size_t place = (page * page_bytes() - kQpsOffset) / kQpBytes;
    return static_cast<uint32_t>(std::min<size_t>({place, protocol::kQpsPerSlot, first + most}));
  }
  // The number of calls for parts of a block, which only a page in many pieces needs.
  size_t calls_for_parts() const { return calls_for_parts_; }

 private:
  static constexpr unsigned char kUnknown = 2;
  static constexpr size_t kPagesPerLook = 64;
  // No QP lies across two pages.
  static_assert(kQpsOffset % kQpBytes == 0);
  static size_t page_of(uint32_t place) { return (kQpsOffset + place * kQpBytes) / page_bytes(); }
  static size_t page_bytes() {
    static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
  }
  bool has_page(size_t page) {
    if (pages_[page] == kUnknown) {
      const size_t first = page - page % kPagesPerLook;
      look(first, std::min(kPagesPerLook, pages_.size() - first));
    }
    return pages_[page] != 0;
  }
  void look(size_t first, size_t count) {
    const CachestatRange range{first * page_bytes(), count * page_bytes()};
    Cachestat found{};
    if (::syscall(kCachestat, fd_, &range, &found, 0) != 0) return look_for_data(first, first + count);
    const bool is_mixed = found.in_memory != 0 && found.in_memory < count;
    if (!is_mixed) return mark(first, count, found.in_memory != 0);
    calls_for_parts_ += 2;
    look(first, count / 2);
    look(first + count / 2, count - count / 2);
  }
  // The file may change meanwhile, so each turn ends at least a page behind its beginning.
  void look_for_data(size_t first, size_t end) {
    mark(first, end - first, false);
    while (first < end) {
      calls_for_parts_ += 2;
      const off_t data = ::lseek(fd_, static_cast<off_t>(first * page_bytes()), SEEK_DATA);
      if (data < 0 && errno == ENXIO) return;  // no more data
      const off_t hole = data < 0 ? -1 : ::lseek(fd_, data, SEEK_HOLE);
      if (hole < 0) return mark(first, end - first, true);
      first = std::clamp(static_cast<size_t>(data) / page_bytes(), first, end);
      const size_t behind =
          std::clamp(static_cast<size_t>(hole) / page_bytes(), std::min(first + 1, end), end);
      mark(first, behind - first, true);
      first = behind;
    }
  }
  void mark(size_t first, size_t count, bool is_there) {
    std::fill_n(pages_.begin() + static_cast<ptrdiff_t>(first), count, is_there ? 1 : 0);
  }

  const int fd_;
  std::vector<unsigned char> pages_;
  size_t calls_for_parts_ = 0;
};

uint64_t count_of_kind(const AgentStatus& status, const Link& link, ObjectKind kind) {
  uint64_t count = 0;
  for (const SlotStatus& slot : status.slots) {
    uint64_t listed = 0;
    for (const ObjectNumbers& object : slot.objects) {
      if (object.kind != kind) continue;
      ++listed;
      count += object.device_index == link.device_index ? 1 : 0;
    }
    const bool is_first = !slot.objects.empty() && slot.objects.front().device_index == link.device_index;
    const uint64_t all = slot.object_totals[static_cast<size_t>(kind)];
    const bool is_long = slot.objects.size() >= protocol::kObjectsPerSlot / 2;
    if (is_first && is_long && all > listed) count += all - listed;
  }
  return count;
}

}  // namespace

void read_status_page(int fd, SlotStatus& slot, QpChoice choice) {
  if (!is_begun(fd)) return;
  read_at(fd, slot.port.data(), sizeof slot.port, offsetof(protocol::StatusPage, port));
  Paths paths(fd);
  MoreCounters more(fd);
  visit_qps(fd, 0, protocol::kQpsPerSlot, [&](uint32_t place, const QpWords& words) {
    if (!is_wanted(words, choice)) return;
    slot.qps.push_back(numbers_of(words));
    slot.qps.back().path = paths.of(place);
    add_more(more.of(place), slot.qps.back());
  });
}

void read_objects(int fd, SlotStatus& slot) {
  struct Object {
    uint64_t kind;
    uint64_t device_index;
    std::array<uint64_t, protocol::kObjectValues> values;
  };
  static_assert(sizeof(Object) == sizeof(protocol::ObjectStatus));
  struct Counts {
    ObjectTotals of_kind;
    uint64_t places;
    uint64_t reserved;
  };
  static_assert(sizeof(Counts) == sizeof(protocol::ObjectCounts));
  Counts counts;
  if (!is_begun(fd) || !read_at(fd, &counts, sizeof counts, offsetof(protocol::StatusPage, object_counts)))
    return;
  for (QpNumbers& qp : slot.qps) {
    const size_t place = roce::Qpn(qp.qpn).index();
    const size_t offset = offsetof(protocol::StatusPage, details) + place * sizeof(protocol::QpDetails);
    if (!read_at(fd, qp.details.data(), sizeof qp.details, offset)) qp.details = {};
  }
  slot.object_totals = counts.of_kind;
  slot.lists_objects = counts.places != 0;
  const auto places = static_cast<uint32_t>(std::min<uint64_t>(counts.places, protocol::kObjectsPerSlot));
  constexpr uint32_t kObjectsPerRead = 512;
  std::vector<Object> some(kObjectsPerRead);
  for (uint32_t at = 0; at < places; at += kObjectsPerRead) {
    const uint32_t count = std::min(kObjectsPerRead, places - at);
    const size_t offset = offsetof(protocol::StatusPage, objects) + at * sizeof(Object);
    if (!read_at(fd, some.data(), count * sizeof(Object), offset)) return;
    for (uint32_t i = 0; i < count; ++i) {
      if (some[i].kind == 0 || some[i].kind >= static_cast<uint64_t>(ObjectKind::kCount)) continue;
      slot.objects.push_back({.kind = static_cast<ObjectKind>(some[i].kind),
                              .number = protocol::number_of(slot.index, at + i),
                              .device_index = static_cast<uint32_t>(some[i].device_index),
                              .values = some[i].values});
    }
  }
}

QpsRead read_some_qps(int fd, uint32_t first) {
  QpsRead read{.qps = {}, .places = {}, .next = protocol::kQpsPerSlot, .work = kWorkOfLook};
  if (!is_begun(fd)) return read;
  Residency residency(fd);
  MoreCounters more(fd);
  const auto take = [&](uint32_t place, const QpWords& words) {
    if (!is_wanted(words, QpChoice::kAll)) return;
    read.qps.push_back(numbers_of(words));
    add_more(more.of(place), read.qps.back());
    read.places.push_back(place);
  };
  for (uint32_t at = first; at < protocol::kQpsPerSlot;) {
    if (read.work + residency.calls_for_parts() * kWorkOfCall >= kWorkOfLook + kQpsAtOnce) {
      read.next = at;
      break;
    }
    const uint32_t end = residency.end_of_run(at, kQpsAtOnce);
    if (residency.has(at)) {
      if (!visit_qps(fd, at, end, take)) break;
      read.work += end - at + kWorkOfRun;
    }
    at = end;
  }
  read.work += residency.calls_for_parts() * kWorkOfCall;
  return read;
}

bool lists_objects(const AgentStatus& status, const SlotStatus& slot) {
  return std::ranges::any_of(status.slots, [&](const SlotStatus& other) {
    return other.lists_objects &&
           (other.index == slot.index || (slot.pid != 0 && other.pid == slot.pid && other.uid == slot.uid));
  });
}

bool is_of(const protocol::CmIdRecord& id, const Link& link) {
  return id.device_index == protocol::kNoDevice || id.device_index == link.device_index;
}

std::vector<uint32_t> qps_of_shared_receives(const AgentStatus& status, uint32_t srq) {
  std::vector<uint32_t> qps;
  for (const SlotStatus& slot : status.slots) {
    for (const QpNumbers& qp : slot.qps) {
      if (qp.details[protocol::kQpSharedReceives] == srq) qps.push_back(qp.qpn);
    }
  }
  return qps;
}

ResourceSummary summary_of(const AgentStatus& status, const Link& link) {
  ResourceSummary sum;
  sum.pd = count_of_kind(status, link, ObjectKind::kPd);
  sum.cq = count_of_kind(status, link, ObjectKind::kCq);
  sum.mr = count_of_kind(status, link, ObjectKind::kMr);
  sum.ctx = count_of_kind(status, link, ObjectKind::kContext);
  sum.srq = count_of_kind(status, link, ObjectKind::kSrq);
  for (const SlotStatus& slot : status.slots) {
    sum.qp +=
        static_cast<uint64_t>(std::ranges::count(slot.qps, link.device_index, &QpNumbers::device_index));
  }
  sum.cm_id = static_cast<uint64_t>(
      std::ranges::count_if(status.cm_ids, [&](const auto& id) { return is_of(id, link); }));
  return sum;
}

}  // namespace verbena::control
