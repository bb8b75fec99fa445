// SPDX-License-Identifier: Apache-2.0
#include "control/status_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <unistd.h>

namespace verbena::control {
namespace {

constexpr size_t kWords = sizeof(QpStatus) / sizeof(uint64_t);
constexpr off_t kQpsOffset = offsetof(StatusPage, qps);
constexpr off_t kEnd = sizeof(StatusPage);

bool read_at(int fd, void* to, size_t bytes, off_t offset) {
  return ::pread(fd, to, bytes, offset) == static_cast<ssize_t>(bytes);
}

uint64_t word_at(const uint64_t (&words)[kWords], size_t byte_offset) {
  return words[byte_offset / 8];
}

void append_qp(const uint64_t (&words)[kWords], SlotStatus& slot) {
  if (word_at(words, offsetof(QpStatus, in_use)) == 0) return;
  QpNumbers& qp = slot.qps.emplace_back();
  qp.qpn = static_cast<uint32_t>(word_at(words, offsetof(QpStatus, qpn)));
  qp.type = static_cast<uint32_t>(word_at(words, offsetof(QpStatus, type)));
  qp.state = static_cast<uint32_t>(word_at(words, offsetof(QpStatus, state)));
  qp.remote_qpn = static_cast<uint32_t>(word_at(words, offsetof(QpStatus, remote_qpn)));
  qp.device_index = static_cast<uint32_t>(word_at(words, offsetof(QpStatus, device_index)));
  std::copy_n(&words[offsetof(QpStatus, counters) / 8], qp.counters.size(), qp.counters.begin());
}

}  // namespace

void read_status_page(int fd, SlotStatus& slot) {
  uint64_t magic = 0;
  if (!read_at(fd, &magic, sizeof magic, 0) || magic != StatusPage::kMagic) return;
  read_at(fd, slot.port.data(), sizeof slot.port, offsetof(StatusPage, port));

  // The file is sparse: look only where something was written.
  for (off_t at = kQpsOffset; at < kEnd;) {
    const off_t data = ::lseek(fd, at, SEEK_DATA);
    if (data < 0) return;
    const off_t hole = std::min(::lseek(fd, data, SEEK_HOLE), kEnd);
    // From the QP in which the data begins.
    off_t qp = kQpsOffset +
               (std::max(data, kQpsOffset) - kQpsOffset) / off_t{sizeof(QpStatus)} * off_t{sizeof(QpStatus)};
    for (qp = std::max(qp, at); qp < hole; qp += off_t{sizeof(QpStatus)}) {
      uint64_t words[kWords];
      if (!read_at(fd, words, sizeof words, qp)) return;
      append_qp(words, slot);
    }
    at = std::max(qp, hole);
  }
}

}  // namespace verbena::control
