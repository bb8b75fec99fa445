// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "libraries/libibverbs/provider/provider.h"

namespace verbena::fake {

class FakeContext;

// Objects of the ABI, extended with the fake provider's data.
struct FakePd : ibv_pd {
  provider::LiveObject live;
};
struct FakeChannel : ibv_comp_channel {
  provider::LiveObject live;
};
struct FakeCq : ibv_cq {
  provider::LiveObject live;
  std::deque<ibv_wc> completions;
  int solicited_only = -1;
  unsigned acked = 0;
};
struct FakeQp : ibv_qp {
  provider::LiveObject live;
  ibv_qp_init_attr_ex init_attr;
  ibv_qp_attr attr;
  std::deque<ibv_recv_wr> received;
  std::deque<ibv_send_wr> sent;
  std::vector<ibv_gid> groups;
};
struct FakeSrq : ibv_srq {
  provider::LiveObject live;
  ibv_srq_init_attr_ex init_attr;
  std::deque<ibv_recv_wr> received;
};
struct FakeAh : ibv_ah {
  provider::LiveObject live;
  ibv_ah_attr attr;
};
struct FakeMr : ibv_mr {
  provider::LiveObject live;
  uint64_t iova;
  unsigned access;
};

// A device that records its calls and does nothing else, except that it completes what is posted. Not
// thread-safe, except get_cq_event and get_async_event.
class FakeContext final : public provider::Context {
 public:
  FakeContext();
  ~FakeContext() override;
  static FakeContext& of(ibv_context* context) {
    return static_cast<FakeContext&>(provider::Context::of(context));
  }
  static std::atomic<int> alive;  // number of existing contexts

  // Set by tests: an errno that every call returns (except get_*_event), and a function to be called before
  // each.
  int refuse_with = 0;
  std::function<void()> before_each_call;

  ibv_device_attr_ex device_attr{};
  ibv_port_attr port_attr{};
  std::vector<__be16> pkeys{htobe16(0xffff), htobe16(0x8001)};
  uint32_t gid_table_length = 16;
  std::map<uint32_t, ibv_gid_entry> gids;

  void raise_cq_event(ibv_cq* cq);
  void raise_async_event(const ibv_async_event& event);
  std::vector<ibv_async_event> acked_events;

  // The only extended CQ, the attributes it was created with, and the last moderation.
  ibv_cq_ex extended_cq{};
  provider::LiveObject extended_cq_live;
  ibv_cq_init_attr_ex extended_cq_attr{};
  ibv_moderate_cq moderation{};
  timespec raw_clock{};

  int query_device(ibv_device_attr_ex* attr, size_t attr_size) override;
  int query_port(uint8_t port, ibv_port_attr* attr) override;
  int query_gid(uint8_t port, int index, ibv_gid* gid) override;
  int query_gid_entry(uint8_t port, uint32_t index, ibv_gid_entry* entry) override;
  int query_pkey(uint8_t port, int index, __be16* pkey) override;
  std::vector<ibv_gid_entry> gid_table() override;
  int query_rt_values(ibv_values_ex* values) override;
  Result<ibv_pd*> alloc_pd() override;
  int dealloc_pd(ibv_pd* pd) override;
  Result<ibv_mr*> reg_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) override;
  int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) override;
  int dereg_mr(ibv_mr* mr) override;
  Result<ibv_comp_channel*> create_comp_channel() override;
  int destroy_comp_channel(ibv_comp_channel* channel) override;
  Result<ibv_cq*> create_cq(int cqe, void* cq_context, ibv_comp_channel* channel, int comp_vector) override;
  Result<ibv_cq_ex*> create_cq_ex(ibv_cq_init_attr_ex* attr) override;
  int resize_cq(ibv_cq* cq, int cqe) override;
  int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) override;
  int destroy_cq(ibv_cq* cq) override;
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override;
  void ack_cq_events(ibv_cq* cq, unsigned count) override;
  int get_async_event(ibv_async_event* event) override;
  void ack_async_event(ibv_async_event* event) override;
  Result<ibv_qp*> create_qp(ibv_qp_init_attr_ex* attr) override;
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override;
  int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) override;
  int destroy_qp(ibv_qp* qp) override;
  Result<ibv_srq*> create_srq(ibv_srq_init_attr_ex* attr) override;
  int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) override;
  int query_srq(ibv_srq* srq, ibv_srq_attr* attr) override;
  int destroy_srq(ibv_srq* srq) override;
  Result<ibv_ah*> create_ah(ibv_pd* pd, ibv_ah_attr* attr) override;
  int destroy_ah(ibv_ah* ah) override;
  int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) override;

 private:
  int refused();  // calls before_each_call, then returns refuse_with

  UniqueFd async_writer_;
  std::map<ibv_comp_channel*, UniqueFd> channel_writers_;
  uint32_t next_handle_ = 1;
};

class FakeDevice final : public provider::Device {
 public:
  explicit FakeDevice(const std::string& name, int index);
  const provider::DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<provider::Context>> open() override;

  provider::DeviceInfo info_;
  int refuse_with = 0;
};

class FakeProvider final : public provider::Provider {
 public:
  // The two providers in registered_providers() of tests. Initially the first has the devices rxe_eth0 and
  // rxe_lo, the second none. reset() restores that.
  static FakeProvider& instance();
  static FakeProvider& second();
  static void reset_all();

  Result<std::vector<std::shared_ptr<provider::Device>>> devices() override;
  Result<Imported> import(int cmd_fd) override;

  void reset();
  std::vector<std::shared_ptr<FakeDevice>> list;
  int refuse_with = 0;
  std::function<void()> before_each_call;
  // The descriptor that import() accepts for the first device, and the error for all others.
  int importable_fd = -1;
  int refuse_import_with = EOPNOTSUPP;
  int import_calls = 0;

 private:
  explicit FakeProvider(std::vector<std::pair<std::string, int>> names) : names_(std::move(names)) {
    reset();
  }

  const std::vector<std::pair<std::string, int>> names_;  // names and indices of the initial devices
};

// Returns a GID table entry of port 1 for an address such as "::ffff:10.0.0.1" or "fe80::1".
ibv_gid_entry gid_entry(uint32_t index, const std::string& address, uint32_t type = IBV_GID_TYPE_ROCE_V2);

}  // namespace verbena::fake
