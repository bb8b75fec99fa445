// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "interop/peer/cases.h"

namespace verbena::interop {
namespace {

constexpr std::uint32_t kBegin = 8192, kLength = 4096;  // the bound part of the region
constexpr std::uint32_t kReceives = 32 << 10;
constexpr unsigned kReadWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

enum class Ending { None, LocalInvalidate, SendWithInvalidate, BindAgain, Unbind, Deallocate };

// The server binds a window and the client uses it. Then the server or the client ends it, and the client
// uses it again.
struct WindowCase {
  const char* name;
  ibv_mw_type type = IBV_MW_TYPE_2;
  unsigned rights = kReadWrite;
  unsigned region = kAllRights;
  std::uint32_t length = kLength;
  ibv_wr_opcode use = IBV_WR_RDMA_WRITE;
  int shift = 0;  // offset of the access from the window's beginning
  Ending ending = Ending::None;
  bool by_other_pair = false;  // the client uses another QP than the server's bind did
};

const WindowCase kCases[] = {
    {.name = "window 2, write", .ending = Ending::None},
    {.name = "window 2, read", .use = IBV_WR_RDMA_READ},
    {.name = "window 2, fetch and add", .use = IBV_WR_ATOMIC_FETCH_AND_ADD},
    {.name = "window 2, before its begin", .shift = -64},
    {.name = "window 2, after its end", .shift = kLength},
    {.name = "window 2, write without the right", .rights = IBV_ACCESS_REMOTE_READ},
    {.name = "window 2, read without the right", .rights = IBV_ACCESS_REMOTE_WRITE, .use = IBV_WR_RDMA_READ},
    {.name = "window 2, local invalidate", .ending = Ending::LocalInvalidate},
    {.name = "window 2, send with invalidate", .ending = Ending::SendWithInvalidate},
    {.name = "window 2, bound twice", .ending = Ending::BindAgain},
    {.name = "window 2, deallocated", .ending = Ending::Deallocate},
    {.name = "window 2, over another pair", .by_other_pair = true},
    {.name = "window 2, region that binds none", .region = kAllRights & ~unsigned{IBV_ACCESS_MW_BIND}},
    {.name = "window 2, more than the region", .length = kRegion},
    {.name = "window 2, more rights than the region", .region = IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_READ},
    {.name = "window 1, write", .type = IBV_MW_TYPE_1},
    {.name = "window 1, after its end", .type = IBV_MW_TYPE_1, .shift = kLength},
    {.name = "window 1, bound twice", .type = IBV_MW_TYPE_1, .ending = Ending::BindAgain},
    {.name = "window 1, unbound", .type = IBV_MW_TYPE_1, .ending = Ending::Unbind},
    {.name = "window 1, deallocated", .type = IBV_MW_TYPE_1, .ending = Ending::Deallocate},
    {.name = "window 1, over another pair", .type = IBV_MW_TYPE_1, .by_other_pair = true},
    {.name = "window 1, send with invalidate", .type = IBV_MW_TYPE_1, .ending = Ending::SendWithInvalidate},
};

// Binds a window and notes the result. Returns the key with which the window can be used.
std::uint32_t bind(Session& session, ibv_qp* pair, ibv_mw* window, const Region& region,
                   const WindowCase& how, std::uint32_t length) {
  const ibv_mw_bind_info info{.mr = region.registration.get(),
                              .addr = region.address() + kBegin,
                              .length = length,
                              .mw_access_flags = length ? how.rights : 0};
  std::uint32_t key = 0;
  int error = 0;
  if (how.type == IBV_MW_TYPE_1) {
    ibv_mw_bind request{.wr_id = 0, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
    error = ibv_bind_mw(pair, window, &request);
    key = window->rkey;
  } else {
    ibv_sge none{};
    ibv_send_wr wr = request(IBV_WR_BIND_MW, none);
    key = ibv_inc_rkey(window->rkey);
    wr.bind_mw = {.mw = window, .rkey = key, .bind_info = info};
    error = post(pair, wr);
    if (!error) window->rkey = key;
  }
  if (error)
    session.note("bind " + std::to_string(error));
  else
    session.note_completions(1);
  return key;
}

void end(Session& session, ibv_qp* pair, Window& window, const Region& region, const WindowCase& how) {
  ibv_sge none{};
  ibv_send_wr wr = request(IBV_WR_LOCAL_INV, none);
  switch (how.ending) {
    case Ending::LocalInvalidate:
      wr.invalidate_rkey = window->rkey;
      if (const int error = post(pair, wr))
        session.note("post " + std::to_string(error));
      else
        session.note_completions(1);
      break;
    case Ending::BindAgain:
      bind(session, pair, window.get(), region, how, kLength);
      break;
    case Ending::Unbind:
      bind(session, pair, window.get(), region, how, 0);
      break;
    case Ending::Deallocate: {
      ibv_mw* last = window.release();
      if (const int error = ibv_dealloc_mw(last)) session.note("dealloc " + std::to_string(error));
      break;
    }
    case Ending::SendWithInvalidate:
    case Ending::None:
      break;
  }
}

void use(Session& session, ibv_qp* pair, const WindowCase& how, const Remote& remote, std::uint32_t key,
         const Region& region) {
  const bool atomic = how.use == IBV_WR_ATOMIC_FETCH_AND_ADD;
  ibv_sge piece = region.piece(atomic ? 8 : 64, how.use == IBV_WR_RDMA_WRITE ? 0 : kReceives);
  ibv_send_wr wr = request(how.use, piece);
  const std::uint64_t address = remote.address + kBegin + static_cast<std::uint64_t>(how.shift);
  if (atomic)
    wr.wr.atomic = {.remote_addr = address, .compare_add = 5, .swap = 0, .rkey = key};
  else
    wr.wr.rdma = {.remote_addr = address, .rkey = key};
  if (const int error = post(pair, wr))
    session.note("post " + std::to_string(error));
  else
    session.note_completions(1);
}

void invalidate_from_afar(Session& session, ibv_qp* pair, std::uint32_t key) {
  ibv_sge none{};
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_INV, none);
  wr.invalidate_rkey = key;
  if (const int error = post(pair, wr))
    session.note("post " + std::to_string(error));
  else
    session.note_completions(1);
}

void run(Session& session, const WindowCase& how) {
  Region region{session.domain(), session.is_client() ? kAllRights : how.region};
  fill(region, session.is_client());
  const PairRules rules{.rights = kReadWrite};
  const Pair first = session.make_pair(rules);
  const Pair second = session.make_pair(rules);
  const Remote remote = session.connect(first.get(), region, rules);
  session.connect(second.get(), region, rules);
  if (session.is_client()) {
    const std::uint32_t key = static_cast<std::uint32_t>(session.peer().hear(1)[0]);
    ibv_qp* pair = how.by_other_pair ? second.get() : first.get();
    use(session, pair, how, remote, key, region);
    session.peer().meet();
    if (how.ending == Ending::SendWithInvalidate) invalidate_from_afar(session, pair, key);
    session.peer().meet();
    if (how.ending != Ending::None) use(session, pair, how, remote, key, region);
  } else {
    Window window{ibv_alloc_mw(session.domain(), how.type)};
    if (!window) throw std::runtime_error{"ibv_alloc_mw"};
    post_receive(first.get(), region.piece(64, kReceives));
    const std::uint32_t key = bind(session, first.get(), window.get(), region, how, how.length);
    session.peer().tell({key});
    session.peer().meet();
    end(session, first.get(), window, region, how);
    session.peer().meet();
    session.peer().meet();  // before the window is deallocated
    session.note_end(first.get(), 1, false);
    session.note(mark_of(region));
    return;
  }
  session.peer().meet();
  session.note(mark_of(region));
}

}  // namespace

std::vector<Case> window_cases() {
  std::vector<Case> cases;
  for (const WindowCase& how : kCases)
    cases.push_back({how.name, [&how](Session& session) { run(session, how); }});
  return cases;
}

}  // namespace verbena::interop
