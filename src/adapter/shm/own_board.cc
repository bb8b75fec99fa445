// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/own_board.h"

#include <mutex>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/sealed_file.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace verbena::engine {
namespace {

constexpr size_t kBytes = sizeof(shm::Board);
// FUTURE_WRITE (Linux 5.1): our own mapping, which is there before, goes on being writable; no other will be.
constexpr int kSeals = F_SEAL_FUTURE_WRITE;

}  // namespace

std::unique_ptr<OwnBoard> OwnBoard::make() {
  auto file = make_memory_file("verbena-board", kBytes);
  // Readable by all: this process may drop the privileges of the file's owner, and others of its new user
  // open the file in /proc.
  if (!file || ::fchmod(file->get(), 0444) != 0) return nullptr;
  void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  if (at == MAP_FAILED) return nullptr;
  auto* const board = static_cast<shm::Board*>(at);
  shm::format(*board);
  std::unique_ptr<OwnBoard> made(new OwnBoard(board, std::move(*file)));
  if (!seal_size(made->file(), kSeals)) return nullptr;
  const auto wanted = static_cast<ssize_t>(Cookie::kBytes);
  if (::getrandom(made->cookie_.bytes.data(), Cookie::kBytes, 0) != wanted) return nullptr;
  return made;
}

OwnBoard::OwnBoard(shm::Board* board, UniqueFd file)
    : board_(board), file_(std::move(file)), writer_(*board) {}

OwnBoard::~OwnBoard() {
  ::munmap(board_, kBytes);
}

void OwnBoard::publish(const memory::Opening& opening) {
  if (!is_abandoned()) writer_.publish(opening);
}

void OwnBoard::withdraw(uint32_t key) {
  if (!is_abandoned()) writer_.withdraw_key(key);
}

void OwnBoard::await_users() {
  if (!is_abandoned()) watch_.await();
}

uint64_t OwnBoard::users() {
  return is_abandoned() ? 0 : watch_.under_way();
}

bool OwnBoard::are_gone(uint64_t users) {
  return is_abandoned() || watch_.have_ended(users);
}

void OwnBoard::show(const transport::QueuePair& qp) {
  if (is_abandoned()) return;
  const roce::Qpn qpn = qp.config().qpn;
  if (!qp.takes_direct_access()) return hide(qpn);
  const transport::QpAttributes& attributes = qp.attributes();
  show(shm::BoardQp{.qpn = qpn.value(),
                    .pd = qp.config().pd,
                    .access = attributes.access,
                    .destination = attributes.destination.value(),
                    .receive_psn = attributes.receive_psn.value(),
                    .send_psn = attributes.send_psn.value(),
                    .takes_reads = attributes.max_dest_rd_atomic > 0});
}

void OwnBoard::show(const shm::BoardQp& qp) {
  const std::lock_guard guard(qps_lock_);
  writer_.publish(qp);
}

void OwnBoard::hide(roce::Qpn qpn) {
  if (is_abandoned()) return;
  const std::lock_guard guard(qps_lock_);
  writer_.withdraw_qp(qpn.value());
}

void OwnBoard::dismiss(const std::shared_ptr<AccessWatch::Visitor>& visitor, bool gone) {
  if (!is_abandoned()) watch_.end(visitor, gone);
}

}  // namespace verbena::engine
