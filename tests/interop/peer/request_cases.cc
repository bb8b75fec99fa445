// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <stdexcept>
#include <string>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interop/peer/cases.h"

namespace verbena::interop {
namespace {

constexpr std::uint32_t kTarget = 4096;        // offset of remote operations
constexpr std::uint32_t kReceives = 32 << 10;  // offset of receives
constexpr std::uint32_t kImmediate = 0x12345678;
constexpr std::uint64_t kSwapped = 0xdeadbeefcafef00d;
constexpr int kUntilStopped = 300;  // milliseconds

// One request, followed (unless `alone`) by a SEND without data that shows whether the QP still works.
struct Asked {
  const char* name;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  std::uint32_t length = 64;
  std::uint32_t shift = 0;       // added to the remote address
  std::uint32_t key_flip = 0;    // XORed with the remote key
  unsigned region = kAllRights;  // access rights of the responder's region
  std::uint32_t room = 20000;    // length of a receive
  int receives = 2;
  bool alone = false;
  bool late_receives = false;   // posted when the request is already under way
  bool foreign_domain = false;  // the responder's region has a different protection domain from its QP
  bool wrong_local_key = false;
  bool wrong_receive_key = false;
  bool matching = true;  // the compared value equals the one in memory
  bool stops = false;    // the responder's process is stopped for one second when the request comes
  PairRules requester{};
  PairRules responder{};
};

constexpr unsigned kOnly(unsigned right) {
  return right | IBV_ACCESS_LOCAL_WRITE;
}
constexpr unsigned kNot(unsigned right) {
  return kAllRights & ~right;
}
constexpr PairRules rights(unsigned rights) {
  return {.rights = rights};
}
constexpr PairRules kUnreliable{.type = IBV_QPT_UC};
constexpr PairRules kNoRights{.rights = 0};
constexpr PairRules kImpatient{.rnr_retry = 1, .retry_count = 5};
constexpr PairRules kNobody{.retry_count = 1, .timeout = 10, .qpn_flip = 0x800000};

const Asked kAsked[] = {
    // Valid requests.
    {.name = "send"},
    {.name = "send, 0 bytes", .length = 0},
    {.name = "send, 1 byte", .length = 1},
    {.name = "send, 17001 bytes", .length = 17001},
    {.name = "send with immediate", .opcode = IBV_WR_SEND_WITH_IMM},
    {.name = "write", .opcode = IBV_WR_RDMA_WRITE},
    {.name = "write, 17003 bytes", .opcode = IBV_WR_RDMA_WRITE, .length = 17003},
    {.name = "write with immediate", .opcode = IBV_WR_RDMA_WRITE_WITH_IMM},
    {.name = "write with immediate, 0 bytes", .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .length = 0},
    {.name = "write with immediate, 17002 bytes", .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .length = 17002},
    {.name = "read", .opcode = IBV_WR_RDMA_READ},
    {.name = "read, 17005 bytes", .opcode = IBV_WR_RDMA_READ, .length = 17005},
    {.name = "fetch and add", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .length = 8},
    {.name = "compare and swap, equal", .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .length = 8},
    {.name = "compare and swap, unequal",
     .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
     .length = 8,
     .matching = false},
    {.name = "write, 0 bytes, bad key", .opcode = IBV_WR_RDMA_WRITE, .length = 0, .key_flip = 1},
    {.name = "read, 0 bytes, bad key", .opcode = IBV_WR_RDMA_READ, .length = 0, .key_flip = 1},
    // Keys, bounds and access rights of the memory.
    {.name = "write, bad key", .opcode = IBV_WR_RDMA_WRITE, .key_flip = 1},
    {.name = "write, unknown key", .opcode = IBV_WR_RDMA_WRITE, .key_flip = 0x55555500},
    {.name = "write with immediate, bad key", .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .key_flip = 1},
    {.name = "read, bad key", .opcode = IBV_WR_RDMA_READ, .key_flip = 1},
    {.name = "fetch and add, bad key", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .length = 8, .key_flip = 1},
    {.name = "compare and swap, bad key", .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .length = 8, .key_flip = 1},
    {.name = "write, out of bounds", .opcode = IBV_WR_RDMA_WRITE, .shift = kRegion},
    {.name = "write, across the end",
     .opcode = IBV_WR_RDMA_WRITE,
     .length = 17000,
     .shift = kRegion - kTarget - 9000},
    {.name = "read, out of bounds", .opcode = IBV_WR_RDMA_READ, .shift = kRegion},
    {.name = "read, across the end",
     .opcode = IBV_WR_RDMA_READ,
     .length = 17000,
     .shift = kRegion - kTarget - 9000},
    {.name = "fetch and add, out of bounds",
     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
     .length = 8,
     .shift = kRegion},
    {.name = "write, region without the right",
     .opcode = IBV_WR_RDMA_WRITE,
     .region = kNot(IBV_ACCESS_REMOTE_WRITE)},
    {.name = "read, region without the right",
     .opcode = IBV_WR_RDMA_READ,
     .region = kNot(IBV_ACCESS_REMOTE_READ)},
    {.name = "fetch and add, region without the right",
     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
     .length = 8,
     .region = kNot(IBV_ACCESS_REMOTE_ATOMIC)},
    {.name = "fetch and add, region only for it",
     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
     .length = 8,
     .region = kOnly(IBV_ACCESS_REMOTE_ATOMIC)},
    {.name = "write, region of another domain", .opcode = IBV_WR_RDMA_WRITE, .foreign_domain = true},
    {.name = "read, region of another domain", .opcode = IBV_WR_RDMA_READ, .foreign_domain = true},
    {.name = "fetch and add, unaligned", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .length = 8, .shift = 4},
    {.name = "compare and swap, unaligned", .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .length = 8, .shift = 4},
    // Access rights of the queue pair.
    {.name = "write, pair without rights", .opcode = IBV_WR_RDMA_WRITE, .responder = kNoRights},
    {.name = "write with immediate, pair without rights",
     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
     .responder = kNoRights},
    {.name = "read, pair without rights", .opcode = IBV_WR_RDMA_READ, .responder = kNoRights},
    {.name = "fetch and add, pair without rights",
     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
     .length = 8,
     .responder = kNoRights},
    {.name = "write, pair only for reads",
     .opcode = IBV_WR_RDMA_WRITE,
     .responder = rights(IBV_ACCESS_REMOTE_READ)},
    {.name = "read, pair that answers none", .opcode = IBV_WR_RDMA_READ, .responder = {.reads = 0}},
    // Lengths and local keys.
    {.name = "send, receive too short", .room = 16},
    {.name = "send, 17000 bytes, receive too short", .length = 17000, .room = 9000},
    {.name = "send, bad local key", .wrong_local_key = true},
    {.name = "write, bad local key", .opcode = IBV_WR_RDMA_WRITE, .wrong_local_key = true},
    {.name = "read, bad local key", .opcode = IBV_WR_RDMA_READ, .alone = true, .wrong_local_key = true},
    {.name = "send, receive with a bad local key", .wrong_receive_key = true},
    // No receive posted, no peer.
    {.name = "send, receiver not ready, no retries", .receives = 0, .requester = {.rnr_retry = 0}},
    {.name = "send, receiver not ready, 3 retries", .receives = 0, .requester = {.rnr_retry = 3}},
    {.name = "write with immediate, receiver not ready, 1 retry",
     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
     .receives = 0,
     .requester = {.rnr_retry = 1}},
    {.name = "send, receiver ready later", .late_receives = true},
    {.name = "write with immediate, receiver ready later",
     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
     .late_receives = true},
    {.name = "send, nobody answers", .requester = kNobody},
    {.name = "read, nobody answers", .opcode = IBV_WR_RDMA_READ, .requester = kNobody},
    // Adapters and the kernel answer without the process. The retries would last 0.4 seconds. Both ends have
    // the same rnr_retry, as in programs. Verbena's agent knows only the responder's, and may answer with an
    // RNR NAK if that is 7.
    {.name = "send, responder's process stopped",
     .stops = true,
     .requester = kImpatient,
     .responder = kImpatient},
    {.name = "write, 17003 bytes, responder's process stopped",
     .opcode = IBV_WR_RDMA_WRITE,
     .length = 17003,
     .stops = true,
     .requester = kImpatient,
     .responder = kImpatient},
    {.name = "read, 17005 bytes, responder's process stopped",
     .opcode = IBV_WR_RDMA_READ,
     .length = 17005,
     .stops = true,
     .requester = kImpatient,
     .responder = kImpatient},
    // Invalidation of keys that cannot be invalidated remotely.
    {.name = "send with invalidate, of a region", .opcode = IBV_WR_SEND_WITH_INV, .alone = true},
    {.name = "send with invalidate, bad key", .opcode = IBV_WR_SEND_WITH_INV, .key_flip = 1, .alone = true},
    {.name = "local invalidate, of a region", .opcode = IBV_WR_LOCAL_INV, .length = 0},
    {.name = "local invalidate, bad key", .opcode = IBV_WR_LOCAL_INV, .length = 0, .key_flip = 1},
    // UC: errors are not reported to the sender.
    {.name = "UC send", .requester = kUnreliable, .responder = kUnreliable},
    {.name = "UC send, 17001 bytes", .length = 17001, .requester = kUnreliable, .responder = kUnreliable},
    {.name = "UC send with immediate",
     .opcode = IBV_WR_SEND_WITH_IMM,
     .requester = kUnreliable,
     .responder = kUnreliable},
    {.name = "UC write", .opcode = IBV_WR_RDMA_WRITE, .requester = kUnreliable, .responder = kUnreliable},
    {.name = "UC write with immediate, 17002 bytes",
     .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
     .length = 17002,
     .requester = kUnreliable,
     .responder = kUnreliable},
    {.name = "UC write, bad key",
     .opcode = IBV_WR_RDMA_WRITE,
     .key_flip = 1,
     .requester = kUnreliable,
     .responder = kUnreliable},
    {.name = "UC send, receive too short", .room = 16, .requester = kUnreliable, .responder = kUnreliable},
};

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

bool takes_receive(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

void aim(ibv_send_wr& wr, const Asked& asked, const Remote& remote, const Region& region) {
  const std::uint64_t address = remote.address + kTarget + asked.shift;
  const std::uint32_t key = remote.rkey ^ asked.key_flip;
  if (is_atomic(asked.opcode)) {
    std::uint64_t held = 0;  // each end knows the initial contents of both regions
    for (int i = 0; i < 8; ++i) held |= std::uint64_t{static_cast<std::uint8_t>(kTarget + i)} << 8 * i;
    wr.wr.atomic = {.remote_addr = address,
                    .compare_add = asked.matching ? held : held + 1,
                    .swap = kSwapped,
                    .rkey = key};
  } else {
    wr.wr.rdma = {.remote_addr = address, .rkey = key};
  }
  if (asked.opcode == IBV_WR_SEND_WITH_INV)
    wr.invalidate_rkey = key;
  else if (asked.opcode == IBV_WR_LOCAL_INV)
    wr.invalidate_rkey = region.registration->rkey ^ asked.key_flip;
  else
    wr.imm_data = htobe32(kImmediate);
}

void post_receives(const Asked& asked, ibv_qp* pair, const Region& region) {
  for (int i = 0; i < asked.receives; ++i) {
    ibv_sge piece = region.piece(asked.room, kReceives);
    if (asked.wrong_receive_key) piece.lkey ^= 0x55555500;
    if (const int error = post_receive(pair, piece))
      throw std::runtime_error{"ibv_post_recv: " + std::to_string(error)};
  }
}

void ask(Session& session, const Asked& asked, ibv_qp* pair, const Remote& remote, const Region& region) {
  session.peer().meet();
  ibv_sge piece =
      region.piece(asked.length, asked.opcode == IBV_WR_RDMA_READ || is_atomic(asked.opcode) ? kReceives : 0);
  if (asked.wrong_local_key) piece.lkey ^= 0x55555500;
  if (asked.stops) session.completions(1, kUntilStopped);
  ibv_send_wr first = request(asked.opcode, piece);
  aim(first, asked, remote, region);
  ibv_sge nothing{};
  ibv_send_wr second = request(IBV_WR_SEND, nothing);
  if (asked.receives > 0 && !asked.alone) first.next = &second;
  const int error = post(pair, first);
  if (error) session.note("post " + std::to_string(error));
  if (asked.late_receives) session.peer().meet();
  const std::size_t expected = error ? 0 : first.next ? 2 : 1;
  const std::vector<ibv_wc> got = session.completions(expected);
  bool failed = got.size() < expected;
  for (const ibv_wc& completion : got) {
    session.note(name_of(completion.status));
    failed |= completion.status != IBV_WC_SUCCESS;
  }
  if (got.size() < expected) session.note(std::to_string(expected - got.size()) + " MISSING");
  session.peer().tell({failed});
  session.note_end(pair, 0, failed);
}

void stop_for_a_second() {
  const std::string later = "sleep 1; kill -CONT " + std::to_string(getpid());
  const char* const words[] = {"sh", "-c", later.c_str(), nullptr};
  pid_t child = 0;
  if (posix_spawnp(&child, "sh", nullptr, nullptr, const_cast<char* const*>(words), environ) != 0)
    throw std::runtime_error{"no shell"};
  raise(SIGSTOP);
  waitpid(child, nullptr, 0);
}

void answer(Session& session, const Asked& asked, ibv_qp* pair, const Region& region) {
  if (!asked.late_receives) post_receives(asked, pair, region);
  session.peer().meet();
  if (asked.stops) stop_for_a_second();
  if (asked.late_receives) {
    session.peer().meet();
    session.completions(1, 20);  // the time in which no receive is posted
    post_receives(asked, pair, region);
  }
  const bool failed = session.peer().hear(1)[0];
  // Over UC the last message may still be in flight when its send has completed.
  std::size_t outstanding = static_cast<std::size_t>(asked.receives);
  if (asked.responder.type == IBV_QPT_UC) {
    const std::size_t wanted = takes_receive(asked.opcode) ? 2 : 1;
    const std::vector<ibv_wc> got = session.completions(wanted, 500);
    for (const ibv_wc& completion : got)
      session.note(name_of(completion.status) + "/" + std::to_string(completion.byte_len));
    outstanding -= got.size();
  }
  session.note_end(pair, outstanding, failed);
}

void run(Session& session, const Asked& asked) {
  const PairRules& rules = session.is_client() ? asked.requester : asked.responder;
  const Domain other{ibv_alloc_pd(session.context())};
  Region region{asked.foreign_domain && !session.is_client() ? other.get() : session.domain(),
                session.is_client() ? kAllRights : asked.region};
  fill(region, session.is_client());
  const Pair pair = session.make_pair(rules);
  const Remote remote = session.connect(pair.get(), region, rules);
  if (session.is_client())
    ask(session, asked, pair.get(), remote, region);
  else
    answer(session, asked, pair.get(), region);
  session.note(mark_of(region));
}

}  // namespace

std::vector<Case> request_cases() {
  std::vector<Case> cases;
  for (const Asked& asked : kAsked)
    cases.push_back({asked.name, [&asked](Session& session) { run(session, asked); }});
  return cases;
}

}  // namespace verbena::interop
