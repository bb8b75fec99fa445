// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibverbs/fake_provider.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/cancellation_off.h"
#include "libraries/libibverbs/device_handle.h"

namespace verbena::verbs {

std::span<provider::Provider* const> registered_providers() {
  static const std::array<provider::Provider*, 2> providers{&fake::FakeProvider::instance(),
                                                            &fake::FakeProvider::second()};
  return providers;
}

}  // namespace verbena::verbs

namespace verbena::fake {
namespace {

FakeCq& fake(ibv_cq* cq) {
  return *static_cast<FakeCq*>(cq);
}
FakeQp& fake(ibv_qp* qp) {
  return *static_cast<FakeQp*>(qp);
}
FakeSrq& fake(ibv_srq* srq) {
  return *static_cast<FakeSrq*>(srq);
}

// Registers a completely initialized new object as live.
template <class Object>
Object* live(Object* object) {
  object->live.enter(object, provider::Context::of(object->context));
  return object;
}

int poll_cq(ibv_cq* cq, int count, ibv_wc* wc) {
  auto& completions = fake(cq).completions;
  int given = 0;
  for (; given < count && !completions.empty(); ++given) {
    wc[given] = completions.front();
    completions.pop_front();
  }
  return given;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  fake(cq).solicited_only = solicited_only;
  return 0;
}

// Fails at a work request with more than `max_sge` entries, so that a list can fail in the middle.
template <class Wr, class Take>
int post(Wr* list, Wr** bad, uint32_t max_sge, Take take) {
  for (; list != nullptr; list = list->next) {
    if (list->num_sge > static_cast<int>(max_sge)) {
      *bad = list;
      return EINVAL;
    }
    take(*list);
  }
  return 0;
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  FakeQp& to = fake(qp);
  return post(wr, bad, to.init_attr.cap.max_send_sge, [&](const ibv_send_wr& one) {
    to.sent.push_back(one);
    ibv_wc wc{};
    wc.wr_id = one.wr_id;
    wc.qp_num = to.qp_num;
    fake(to.send_cq).completions.push_back(wc);
  });
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post(wr, bad, fake(qp).init_attr.cap.max_recv_sge,
              [&](const ibv_recv_wr& one) { fake(qp).received.push_back(one); });
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post(wr, bad, fake(srq).init_attr.attr.max_sge,
              [&](const ibv_recv_wr& one) { fake(srq).received.push_back(one); });
}

void make_pipe(UniqueFd& reader, UniqueFd& writer) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
  reader.reset(ends[0]);
  writer.reset(ends[1]);
}

template <class T>
int read_one(int fd, T& value) {
  const CancellationAllowed asleep;
  const ssize_t got = ::read(fd, &value, sizeof value);
  return got == static_cast<ssize_t>(sizeof value) ? 0 : got < 0 ? errno : EIO;
}

template <class T>
void write_one(int fd, const T& value) {
  if (::write(fd, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) std::abort();
}

}  // namespace

std::atomic<int> FakeContext::alive{0};

FakeContext::FakeContext() {
  ++alive;
  UniqueFd async_reader;
  make_pipe(async_reader, async_writer_);
  ibv_context& context = abi().context;
  context.async_fd = async_reader.release();
  context.num_comp_vectors = 1;
  context.ops.poll_cq = poll_cq;
  context.ops.req_notify_cq = req_notify_cq;
  context.ops.post_send = post_send;
  context.ops.post_recv = post_recv;
  context.ops.post_srq_recv = post_srq_recv;

  device_attr.orig_attr.max_qp = 1000;
  device_attr.orig_attr.max_cqe = 1 << 22;
  device_attr.orig_attr.phys_port_cnt = 1;
  device_attr.phys_port_cnt_ex = 1;
  device_attr.max_dm_size = 77;
  port_attr.state = IBV_PORT_ACTIVE;
  port_attr.max_mtu = port_attr.active_mtu = IBV_MTU_4096;
  port_attr.gid_tbl_len = static_cast<int>(gid_table_length);
  port_attr.pkey_tbl_len = 2;
  port_attr.active_width = 2;   // 4 lanes
  port_attr.active_speed = 32;  // EDR
  port_attr.phys_state = 5;
  port_attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  port_attr.flags = IBV_QPF_GRH_REQUIRED;
  port_attr.port_cap_flags2 = 0x1234;
  gids[0] = gid_entry(0, "fe80::1");
  gids[1] = gid_entry(1, "::ffff:10.0.0.1");
}

FakeContext::~FakeContext() {
  ::close(abi().context.async_fd);
  --alive;
}

int FakeContext::refused() {
  if (before_each_call) before_each_call();
  return refuse_with;
}

void FakeContext::raise_cq_event(ibv_cq* cq) {
  write_one(channel_writers_.at(cq->channel).get(), cq);
}

void FakeContext::raise_async_event(const ibv_async_event& event) {
  write_one(async_writer_.get(), event);
}

int FakeContext::query_device(ibv_device_attr_ex* attr, size_t attr_size) {
  if (const int code = refused()) return code;
  std::memcpy(attr, &device_attr, std::min(attr_size, sizeof device_attr));
  return 0;
}

int FakeContext::query_port(uint8_t port, ibv_port_attr* attr) {
  if (const int code = refused()) return code;
  if (port != 1) return EINVAL;
  *attr = port_attr;
  return 0;
}

int FakeContext::query_gid(uint8_t port, int index, ibv_gid* gid) {
  ibv_gid_entry entry{};
  const int code = query_gid_entry(port, static_cast<uint32_t>(index), &entry);
  if (code != 0 && code != ENODATA) return code;
  *gid = entry.gid;
  return 0;
}

int FakeContext::query_gid_entry(uint8_t port, uint32_t index, ibv_gid_entry* entry) {
  if (const int code = refused()) return code;
  if (port != 1 || index >= gid_table_length) return EINVAL;
  const auto found = gids.find(index);
  if (found == gids.end()) return ENODATA;
  *entry = found->second;
  return 0;
}

int FakeContext::query_pkey(uint8_t port, int index, __be16* pkey) {
  if (const int code = refused()) return code;
  if (port != 1 || index < 0 || static_cast<size_t>(index) >= pkeys.size()) return EINVAL;
  *pkey = pkeys[static_cast<size_t>(index)];
  return 0;
}

std::vector<ibv_gid_entry> FakeContext::gid_table() {
  std::vector<ibv_gid_entry> table;
  for (const auto& [index, entry] : gids) table.push_back(entry);
  return table;
}

Result<ibv_pd*> FakeContext::alloc_pd() {
  if (const int code = refused()) return fail(code);
  auto* pd = new FakePd{};
  pd->context = &abi().context;
  pd->handle = next_handle_++;
  return live(pd);
}

int FakeContext::dealloc_pd(ibv_pd* pd) {
  if (const int code = refused()) return code;
  delete static_cast<FakePd*>(pd);
  return 0;
}

Result<ibv_mr*> FakeContext::reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) {
  if (const int code = refused()) return fail(code);
  auto* mr = new FakeMr{};
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = addr;
  mr->length = length;
  mr->handle = next_handle_++;
  mr->lkey = 0x1000 + mr->handle;
  mr->rkey = 0x2000 + mr->handle;
  mr->iova = iova;
  mr->access = access;
  return live(mr);
}

int FakeContext::rereg_mr(ibv_mr*, int, ibv_pd*, void*, size_t, int) {
  return refused();
}

int FakeContext::dereg_mr(ibv_mr* mr) {
  if (const int code = refused()) return code;
  delete static_cast<FakeMr*>(mr);
  return 0;
}

Result<ibv_comp_channel*> FakeContext::create_comp_channel() {
  if (const int code = refused()) return fail(code);
  UniqueFd reader, writer;
  make_pipe(reader, writer);
  auto* channel = new FakeChannel{};
  channel->context = &abi().context;
  channel->fd = reader.release();
  channel_writers_[channel] = std::move(writer);
  return live(channel);
}

int FakeContext::destroy_comp_channel(ibv_comp_channel* channel) {
  if (const int code = refused()) return code;
  if (channel->refcnt > 0) return EBUSY;
  ::close(channel->fd);
  channel_writers_.erase(channel);
  delete static_cast<FakeChannel*>(channel);
  return 0;
}

Result<ibv_cq*> FakeContext::create_cq(int cqe, void* cq_context, ibv_comp_channel* channel,
                                       int comp_vector) {
  if (const int code = refused()) return fail(code);
  if (cqe <= 0 || comp_vector >= abi().context.num_comp_vectors) return fail(EINVAL);
  auto* cq = new FakeCq{};
  cq->context = &abi().context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->handle = next_handle_++;
  cq->cqe = cqe;
  if (channel != nullptr) ++channel->refcnt;
  return live(cq);
}

Result<ibv_cq_ex*> FakeContext::create_cq_ex(ibv_cq_init_attr_ex* attr) {
  if (const int code = refused()) return fail(code);
  extended_cq_attr = *attr;
  extended_cq.context = &abi().context;
  extended_cq_live.leave();
  extended_cq_live.enter(ibv_cq_ex_to_cq(&extended_cq), *this);
  return &extended_cq;
}

int FakeContext::modify_cq(ibv_cq*, ibv_modify_cq_attr* attr) {
  if (const int code = refused()) return code;
  moderation = attr->moderate;
  return 0;
}

int FakeContext::query_rt_values(ibv_values_ex* values) {
  if (const int code = refused()) return code;
  values->raw_clock = raw_clock;
  return 0;
}

int FakeContext::resize_cq(ibv_cq* cq, int cqe) {
  if (const int code = refused()) return code;
  cq->cqe = cqe;
  return 0;
}

int FakeContext::destroy_cq(ibv_cq* cq) {
  if (const int code = refused()) return code;
  if (cq->channel != nullptr) --cq->channel->refcnt;
  delete &fake(cq);
  return 0;
}

int FakeContext::get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  if (const int code = read_one(channel->fd, *cq)) return code;
  *cq_context = (*cq)->cq_context;
  return 0;
}

void FakeContext::ack_cq_events(ibv_cq* cq, unsigned count) {
  fake(cq).acked += count;
}

int FakeContext::get_async_event(ibv_async_event* event) {
  return read_one(abi().context.async_fd, *event);
}

void FakeContext::ack_async_event(ibv_async_event* event) {
  acked_events.push_back(*event);
}

Result<ibv_qp*> FakeContext::create_qp(ibv_qp_init_attr_ex* attr) {
  if (const int code = refused()) return fail(code);
  auto* qp = new FakeQp{};
  attr->cap.max_inline_data = std::max(attr->cap.max_inline_data, 256U);
  qp->context = &abi().context;
  qp->qp_context = attr->qp_context;
  qp->pd = attr->pd;
  qp->send_cq = attr->send_cq;
  qp->recv_cq = attr->recv_cq;
  qp->srq = attr->srq;
  qp->handle = next_handle_++;
  qp->qp_num = 0x100 + qp->handle;
  qp->state = IBV_QPS_RESET;
  qp->qp_type = attr->qp_type;
  qp->init_attr = *attr;
  return live(qp);
}

// Stores the attributes that the mask names, of those that tests read.
int FakeContext::modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  if (const int code = refused()) return code;
  if ((mask & IBV_QP_STATE) != 0) fake(qp).attr.qp_state = attr->qp_state;
  if ((mask & IBV_QP_QKEY) != 0) fake(qp).attr.qkey = attr->qkey;
  if ((mask & IBV_QP_DEST_QPN) != 0) fake(qp).attr.dest_qp_num = attr->dest_qp_num;
  return 0;
}

int FakeContext::query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init_attr) {
  if (const int code = refused()) return code;
  *attr = fake(qp).attr;
  *init_attr = {};
  init_attr->qp_context = qp->qp_context;
  init_attr->send_cq = qp->send_cq;
  init_attr->recv_cq = qp->recv_cq;
  init_attr->srq = qp->srq;
  init_attr->cap = fake(qp).init_attr.cap;
  init_attr->qp_type = qp->qp_type;
  return 0;
}

int FakeContext::destroy_qp(ibv_qp* qp) {
  if (const int code = refused()) return code;
  delete &fake(qp);
  return 0;
}

Result<ibv_srq*> FakeContext::create_srq(ibv_srq_init_attr_ex* attr) {
  if (const int code = refused()) return fail(code);
  auto* srq = new FakeSrq{};
  attr->attr.max_wr += 1;  // "at least as large as requested"
  srq->context = &abi().context;
  srq->srq_context = attr->srq_context;
  srq->pd = attr->pd;
  srq->handle = next_handle_++;
  srq->init_attr = *attr;
  return live(srq);
}

int FakeContext::modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  if (const int code = refused()) return code;
  if ((mask & IBV_SRQ_LIMIT) != 0) fake(srq).init_attr.attr.srq_limit = attr->srq_limit;
  return 0;
}

int FakeContext::query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  if (const int code = refused()) return code;
  *attr = fake(srq).init_attr.attr;
  return 0;
}

int FakeContext::destroy_srq(ibv_srq* srq) {
  if (const int code = refused()) return code;
  delete &fake(srq);
  return 0;
}

Result<ibv_ah*> FakeContext::create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (const int code = refused()) return fail(code);
  auto* ah = new FakeAh{};
  ah->context = pd->context;
  ah->pd = pd;
  ah->handle = next_handle_++;
  ah->attr = *attr;
  return live(ah);
}

int FakeContext::destroy_ah(ibv_ah* ah) {
  if (const int code = refused()) return code;
  delete static_cast<FakeAh*>(ah);
  return 0;
}

int FakeContext::attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  if (const int code = refused()) return code;
  fake(qp).groups.push_back(*gid);
  return 0;
}

FakeDevice::FakeDevice(const std::string& name, int index) {
  info_.name = name;
  info_.dev_name = "uverbs" + std::to_string(index);
  info_.dev_path = "/sys/class/infiniband_verbs/" + info_.dev_name;
  info_.ibdev_path = "/sys/class/infiniband/" + name;
  info_.guid = htobe64(0x0200'00ff'fe00'0000 + static_cast<uint64_t>(index));
  info_.index = index;
}

Result<std::unique_ptr<provider::Context>> FakeDevice::open() {
  if (refuse_with != 0) return fail(refuse_with);
  return std::make_unique<FakeContext>();
}

FakeProvider& FakeProvider::instance() {
  static FakeProvider& provider = *new FakeProvider({{"rxe_eth0", 0}, {"rxe_lo", 1}});
  return provider;
}

FakeProvider& FakeProvider::second() {
  static FakeProvider& provider = *new FakeProvider({});
  return provider;
}

void FakeProvider::reset_all() {
  instance().reset();
  second().reset();
}

void FakeProvider::reset() {
  list.clear();
  for (const auto& [name, index] : names_) list.push_back(std::make_shared<FakeDevice>(name, index));
  refuse_with = 0;
  before_each_call = nullptr;
  importable_fd = -1;
  refuse_import_with = EOPNOTSUPP;
  import_calls = 0;
}

Result<std::vector<std::shared_ptr<provider::Device>>> FakeProvider::devices() {
  if (before_each_call) before_each_call();
  if (refuse_with != 0) return fail(refuse_with);
  return std::vector<std::shared_ptr<provider::Device>>(list.begin(), list.end());
}

Result<provider::Provider::Imported> FakeProvider::import(int cmd_fd) {
  ++import_calls;
  if (cmd_fd != importable_fd) return fail(refuse_import_with);
  auto context = list.front()->open();
  if (!context) return tl::unexpected(context.error());
  return Imported{list.front(), std::move(*context)};
}

ibv_gid_entry gid_entry(uint32_t index, const std::string& address, uint32_t type) {
  ibv_gid_entry entry{};
  if (::inet_pton(AF_INET6, address.c_str(), entry.gid.raw) != 1) std::abort();
  entry.gid_index = index;
  entry.port_num = 1;
  entry.gid_type = type;
  entry.ndev_ifindex = 7;
  return entry;
}

}  // namespace verbena::fake
