// SPDX-License-Identifier: Apache-2.0
#include "agent_client/status_reader.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include <unistd.h>

#include "roce/qpn.h"

namespace verbena::agent_client {
namespace {

constexpr size_t kWords = sizeof(protocol::QpStatus) / sizeof(uint64_t);
constexpr off_t kQpBytes = sizeof(protocol::QpStatus);
constexpr off_t kQpsOffset = offsetof(protocol::StatusPage, qps);
constexpr off_t kEnd = sizeof(protocol::StatusPage);
constexpr off_t kQpsPerRead = 128;
static_assert(protocol::kQpNumbers == transport::kQpCounterCount);
static_assert(protocol::kQpsPerSlot == roce::Qpn::kPerSlot);
using QpWords = std::array<uint64_t, kWords>;

bool read_at(int fd, void* to, size_t bytes, off_t offset) {
  return ::pread(fd, to, bytes, offset) == static_cast<ssize_t>(bytes);
}

uint64_t word_at(const QpWords& words, size_t byte_offset) {
  return words[byte_offset / 8];
}

void append_qp(const QpWords& words, QpChoice choice, SlotStatus& slot) {
  const bool in_use = word_at(words, offsetof(protocol::QpStatus, in_use)) != 0;
  if (!in_use && (choice == QpChoice::kInUse || word_at(words, offsetof(protocol::QpStatus, qpn)) == 0))
    return;
  QpNumbers& qp = slot.qps.emplace_back();
  qp.qpn = static_cast<uint32_t>(word_at(words, offsetof(protocol::QpStatus, qpn)));
  qp.type = static_cast<uint32_t>(word_at(words, offsetof(protocol::QpStatus, type)));
  qp.state = static_cast<uint32_t>(word_at(words, offsetof(protocol::QpStatus, state)));
  qp.remote_qpn = static_cast<uint32_t>(word_at(words, offsetof(protocol::QpStatus, remote_qpn)));
  qp.by_memory = word_at(words, offsetof(protocol::QpStatus, by_memory)) != 0;
  qp.device_index = static_cast<uint32_t>(word_at(words, offsetof(protocol::QpStatus, device_index)));
  std::copy_n(&words[offsetof(protocol::QpStatus, counters) / 8], qp.counters.size(), qp.counters.begin());
}

// The QPs in [begin, end). False: the file could not be read.
bool append_qps(int fd, off_t begin, off_t end, QpChoice choice, SlotStatus& slot) {
  std::array<QpWords, kQpsPerRead> qps;
  for (off_t at = begin; at < end; at += kQpsPerRead * kQpBytes) {
    const auto count = static_cast<size_t>(std::min(kQpsPerRead, (end - at) / kQpBytes));
    if (!read_at(fd, qps.data(), count * sizeof(QpWords), at)) return false;
    for (size_t i = 0; i < count; ++i) append_qp(qps[i], choice, slot);
  }
  return true;
}

}  // namespace

void read_status_page(int fd, SlotStatus& slot, QpChoice choice) {
  uint64_t magic = 0;
  if (!read_at(fd, &magic, sizeof magic, 0) || magic != protocol::StatusPage::kMagic) return;
  read_at(fd, slot.port.data(), sizeof slot.port, offsetof(protocol::StatusPage, port));

  // The file is sparse: look only where something was written, in whole QPs.
  const auto qp_at_or_before = [](off_t at) {
    return kQpsOffset + (std::max(at, kQpsOffset) - kQpsOffset) / kQpBytes * kQpBytes;
  };
  for (off_t at = kQpsOffset; at < kEnd;) {
    const off_t data = ::lseek(fd, at, SEEK_DATA);
    if (data < 0) return;
    const off_t hole = std::min(::lseek(fd, data, SEEK_HOLE), kEnd);
    if (hole <= data) return;
    const off_t begin = std::max(qp_at_or_before(data), at);
    const off_t end = qp_at_or_before(hole + kQpBytes - 1);
    if (!append_qps(fd, begin, std::min(end, kEnd), choice, slot)) return;
    at = std::max(end, at + kQpBytes);
  }
}

}  // namespace verbena::agent_client
