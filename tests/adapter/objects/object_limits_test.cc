// SPDX-License-Identifier: Apache-2.0
// The maxima of ibv_query_device() are exact: at the reported number of objects, creating another fails.
#include <fstream>
#include <functional>
#include <vector>

#include <malloc.h>
#include <unistd.h>

#include "adapter/objects/limits.h"
#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/raw_endpoint.h"

namespace verbena::adapter::testing {
namespace {

// A context, and the objects that others are created from.
struct World {
  World() {
    pd.reset(ibv_alloc_pd(context.get()));
    cq.reset(ibv_create_cq(context.get(), 4, nullptr, nullptr, 0));
    ah_attr.is_global = 1;
    ah_attr.port_num = 1;
    ah_attr.grh.sgid_index = static_cast<uint8_t>(find_gid(context.get()));
    ibv_query_gid(context.get(), 1, ah_attr.grh.sgid_index, &ah_attr.grh.dgid);
    ibv_query_device_ex(context.get(), nullptr, &device);
  }

  ibv_qp* make_qp() const {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.qp_type = IBV_QPT_UD;
    init.cap = {
        .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    return ibv_create_qp(pd.get(), &init);
  }
  ibv_srq* make_srq() const {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
    return ibv_create_srq(pd.get(), &init);
  }
  ibv_wq* make_wq() const {
    ibv_wq_init_attr init{};
    init.wq_type = IBV_WQT_RQ;
    init.max_wr = init.max_sge = 1;
    init.pd = pd.get();
    init.cq = cq.get();
    return ibv_create_wq(context.get(), &init);
  }

  ibv_rwq_ind_table* make_rwq_table() {
    if (!wq) wq.reset(make_wq());
    ibv_wq* queue = wq.get();
    ibv_rwq_ind_table_init_attr init{.log_ind_tbl_size = 0, .ind_tbl = &queue, .comp_mask = 0};
    return ibv_create_rwq_ind_table(context.get(), &init);
  }

  Context context = open_device();
  Pd pd;
  Cq cq;
  Wq wq;
  ibv_ah_attr ah_attr{};
  ibv_device_attr_ex device{};
  alignas(64) std::byte memory[64]{};
};

// Creates an object and destroys it. Returns 0, or the errno of its creation.
template <auto destroy, class Object>
int make_and_destroy(Object* object) {
  if (object == nullptr) return errno;
  return destroy(object);
}

struct Kind {
  const char* what;
  ObjectLimit& limit;
  std::function<int64_t(const ibv_device_attr_ex&)> reported;
  std::function<int(World&)> make;
};

std::vector<Kind> kinds() {
  ObjectLimits& limits = object_limits();
  return {
      {"protection domains", limits.pds, [](const auto& d) { return d.orig_attr.max_pd; },
       [](World& w) { return make_and_destroy<ibv_dealloc_pd>(ibv_alloc_pd(w.context.get())); }},
      {"memory regions", limits.mrs, [](const auto& d) { return d.orig_attr.max_mr; },
       [](World& w) { return make_and_destroy<ibv_dereg_mr>(ibv_reg_mr(w.pd.get(), w.memory, 64, 0)); }},
      {"memory windows", limits.mws, [](const auto& d) { return d.orig_attr.max_mw; },
       [](World& w) { return make_and_destroy<ibv_dealloc_mw>(ibv_alloc_mw(w.pd.get(), IBV_MW_TYPE_1)); }},
      {"completion queues", limits.cqs, [](const auto& d) { return d.orig_attr.max_cq; },
       [](World& w) {
         return make_and_destroy<ibv_destroy_cq>(ibv_create_cq(w.context.get(), 1, nullptr, nullptr, 0));
       }},
      {"queue pairs", limits.qps, [](const auto& d) { return d.orig_attr.max_qp; },
       [](World& w) { return make_and_destroy<ibv_destroy_qp>(w.make_qp()); }},
      {"shared receive queues", limits.srqs, [](const auto& d) { return d.orig_attr.max_srq; },
       [](World& w) { return make_and_destroy<ibv_destroy_srq>(w.make_srq()); }},
      {"address handles", limits.ahs, [](const auto& d) { return d.orig_attr.max_ah; },
       [](World& w) { return make_and_destroy<ibv_destroy_ah>(ibv_create_ah(w.pd.get(), &w.ah_attr)); }},
      {"receive queues outside of QPs", limits.wqs, [](const auto& d) { return d.max_wq_type_rq; },
       [](World& w) { return make_and_destroy<ibv_destroy_wq>(w.make_wq()); }},
      {"tables of receive queues", limits.rwq_tables,
       [](const auto& d) { return d.rss_caps.max_rwq_indirection_tables; },
       [](World& w) { return make_and_destroy<ibv_destroy_rwq_ind_table>(w.make_rwq_table()); }},
  };
}

TEST(ObjectLimits, AreReportedAndHeld) {
  World world;
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.what);
    EXPECT_EQ(kind.reported(world.device), int64_t{kind.limit.most()});
    std::vector<ObjectLimit::Place> taken;
    for (auto place = kind.limit.take(); place; place = kind.limit.take()) taken.push_back(std::move(*place));
    EXPECT_EQ(kind.make(world), ENOMEM);
    EXPECT_EQ(kind.make(world), ENOMEM) << "a refusal takes no place";
    taken.pop_back();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(kind.make(world), 0) << "one that goes makes room for another";
  }
}

// All QPs at once: there are numbers and rings for as many as the device reports.
TEST(ObjectLimits, ThereIsRoomForAllQueuePairs) {
  World world;
  std::vector<Qp> qps;
  for (int i = 0; i < world.device.orig_attr.max_qp; ++i) {
    qps.emplace_back(world.make_qp());
    ASSERT_NE(qps.back(), nullptr) << i << " of " << world.device.orig_attr.max_qp << ": error " << errno;
  }
  EXPECT_EQ(world.make_qp(), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(ObjectLimit, GivesAsManyPlacesAsThereAre) {
  ObjectLimit limit(2);
  auto first = limit.take();
  {
    const auto second = limit.take();
    ASSERT_TRUE(first && second);
    EXPECT_EQ(limit.take().error().code, ENOMEM);
  }
  auto third = limit.take();
  ASSERT_TRUE(third);
  EXPECT_FALSE(limit.take());
  // A moved place still counts as taken.
  ObjectLimit::Place moved(std::move(*third));
  EXPECT_FALSE(limit.take());
  *first = ObjectLimit::Place();
  EXPECT_TRUE(limit.take());
}

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// No longer-lived memory of ours lies above the objects on the heap, so malloc can trim it.
TEST(ObjectLimits, DestroyedObjectsLeaveNoMemoryBehind) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer keeps what was freed";
#endif
  constexpr size_t kObjects = 50'000;
  ASSERT_EQ(::mallopt(M_TRIM_THRESHOLD, 128 * 1024), 1) << "as it is until a large block has been freed";
  World w;
  std::vector<ibv_cq*> queues(kObjects);
  const size_t before = resident_bytes();
  for (ibv_cq*& cq : queues) cq = ibv_create_cq(w.context.get(), 16, nullptr, nullptr, 0);
  const size_t most = resident_bytes();
  for (ibv_cq* cq : queues) ASSERT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_LT(resident_bytes(), before + (most - before) / 4);
}

}  // namespace
}  // namespace verbena::adapter::testing
