// SPDX-License-Identifier: Apache-2.0
// Misuses of every verb and the error for each: one row per misuse. The errno values are those of the man
// pages, rdma-core and the kernel's uverbs. Posting, attributes of modify_qp, and flows have tables of their
// own: post_errors_test, queue_pair_states_test, raw_errors_test.
#include <climits>
#include <functional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/services.h"
#include "base/log.h"
#include "base/unique_fd.h"

namespace verbena::adapter::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Mw = std::unique_ptr<ibv_mw, Destroy<ibv_dealloc_mw>>;
using Dm = std::unique_ptr<ibv_dm, Destroy<ibv_free_dm>>;
using Td = std::unique_ptr<ibv_td, Destroy<ibv_dealloc_td>>;
using Wq = std::unique_ptr<ibv_wq, Destroy<ibv_destroy_wq>>;
using RwqTable = std::unique_ptr<ibv_rwq_ind_table, Destroy<ibv_destroy_rwq_ind_table>>;
using Counters = std::unique_ptr<ibv_counters, Destroy<ibv_destroy_counters>>;

constexpr uint32_t kUnknownMask = 1u << 30;
constexpr unsigned kBindable = kAllAccess | IBV_ACCESS_MW_BIND;

// Returns the errno of a verb that creates an object; 0 if it succeeded. A created object is destroyed.
template <auto destroy, class Object>
int error_of(Object* object) {
  if (object == nullptr) return errno;
  EXPECT_EQ(destroy(object), 0);
  return 0;
}

// One object of each kind, and a second context whose objects are wrong in the first.
struct World {
  World() {
    other_pd.reset(ibv_alloc_pd(context()));
    foreign_pd.reset(ibv_alloc_pd(foreign.get()));
    foreign_cq.reset(ibv_create_cq(foreign.get(), 4, nullptr, nullptr, 0));
    foreign_channel.reset(ibv_create_comp_channel(foreign.get()));
    channel.reset(ibv_create_comp_channel(context()));
    bindable.reset(ibv_reg_mr(pd(), bench.buffer.data(), 4096, kBindable));
    ibv_alloc_dm_attr attr{};
    attr.length = 4096;
    dm.reset(ibv_alloc_dm(context(), &attr));
    domain = bench.make_domain();
    ibv_query_device(context(), &device);
  }
  ibv_context* context() { return bench.context.get(); }
  ibv_pd* pd() { return bench.pd.get(); }
  ibv_cq* cq() { return bench.cq.get(); }

  Qp ud_qp() {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq();
    init.qp_type = IBV_QPT_UD;
    init.cap = {
        .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    return Qp(ibv_create_qp(pd(), &init));
  }
  int make_srq(const std::function<void(ibv_srq_init_attr_ex&)>& change) {
    ibv_srq_init_attr_ex attr{};
    attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    attr.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = pd();
    attr.xrcd = domain.get();
    attr.cq = cq();
    change(attr);
    return error_of<ibv_destroy_srq>(ibv_create_srq_ex(context(), &attr));
  }
  int make_xrcd(int fd, int flags, uint32_t mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS) {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = mask;
    attr.fd = fd;
    attr.oflags = flags;
    return error_of<ibv_close_xrcd>(ibv_open_xrcd(context(), &attr));
  }
  int make_cq_ex(const std::function<void(ibv_cq_init_attr_ex&)>& change) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    change(attr);
    ibv_cq_ex* made = ibv_create_cq_ex(context(), &attr);
    return error_of<ibv_destroy_cq>(made == nullptr ? nullptr : ibv_cq_ex_to_cq(made));
  }
  int make_qp_ex(const std::function<void(ibv_qp_init_attr_ex&)>& change) {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.send_cq = attr.recv_cq = cq();
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd();
    change(attr);
    return error_of<ibv_destroy_qp>(ibv_create_qp_ex(context(), &attr));
  }
  Wq make_wq(const std::function<void(ibv_wq_init_attr&)>& change = [](auto&) {}) {
    ibv_wq_init_attr attr{};
    attr.wq_type = IBV_WQT_RQ;
    attr.max_wr = 4;
    attr.max_sge = 1;
    attr.pd = pd();
    attr.cq = cq();
    change(attr);
    errno = 0;
    return Wq(ibv_create_wq(context(), &attr));
  }
  int modify_wq(const Wq& wq, ibv_wq_state to, uint32_t mask = IBV_WQ_ATTR_STATE) {
    ibv_wq_attr attr{};
    attr.attr_mask = mask;
    attr.wq_state = to;
    return ibv_modify_wq(wq.get(), &attr);
  }
  RwqTable make_table(std::vector<ibv_wq*> queues, uint32_t log_size, uint32_t mask = 0) {
    ibv_rwq_ind_table_init_attr attr{};
    attr.log_ind_tbl_size = log_size;
    attr.ind_tbl = queues.data();
    attr.comp_mask = mask;
    errno = 0;
    return RwqTable(ibv_create_rwq_ind_table(context(), &attr));
  }
  int make_parent(const std::function<void(ibv_parent_domain_init_attr&)>& change) {
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd();
    change(attr);
    return error_of<ibv_dealloc_pd>(ibv_alloc_parent_domain(context(), &attr));
  }
  int make_dm(size_t length, uint32_t alignment = 0, uint32_t mask = 0) {
    ibv_alloc_dm_attr attr{};
    attr.length = length;
    attr.log_align_req = alignment;
    attr.comp_mask = mask;
    return error_of<ibv_free_dm>(ibv_alloc_dm(context(), &attr));
  }
  int register_dm(uint64_t offset, size_t length,
                  unsigned access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE) {
    return error_of<ibv_dereg_mr>(ibv_reg_dm_mr(pd(), dm.get(), offset, length, access));
  }
  int reregister(int flags, ibv_pd* to, void* address, size_t length, int access) {
    Mr mr(ibv_reg_mr(pd(), bench.buffer.data(), 64, 0));
    errno = 0;
    return ibv_rereg_mr(mr.get(), flags, to, address, length, access) == 0 ? 0 : errno;
  }
  // Binds a new window, as modified by `change`, with a QP that is connected to itself.
  int bind(const std::function<void(ibv_mw_bind&)>& change, ibv_mw_type type = IBV_MW_TYPE_1,
           ibv_pd* of = nullptr) {
    Qp qp = bench.make_qp(IBV_QPT_RC);
    bench.connect(qp.get(), qp->qp_num);
    Mw mw(ibv_alloc_mw(of != nullptr ? of : pd(), type));
    ibv_mw_bind bind{};
    bind.bind_info = {bindable.get(), reinterpret_cast<uint64_t>(bindable->addr), 64, IBV_ACCESS_REMOTE_READ};
    change(bind);
    return ibv_bind_mw(qp.get(), mw.get(), &bind);
  }
  int open_target(const std::function<void(ibv_qp_open_attr&)>& change) {
    Qp target = bench.make_target(domain.get());
    ibv_qp_open_attr attr{};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = target->qp_num;
    attr.xrcd = domain.get();
    attr.qp_type = IBV_QPT_XRC_RECV;
    change(attr);
    return error_of<ibv_destroy_qp>(ibv_open_qp(context(), &attr));
  }
  int advise(const std::function<void(ibv_sge&)>& change, uint32_t flags = IBV_ADVISE_MR_FLAG_FLUSH,
             ibv_advise_mr_advice advice = IBV_ADVISE_MR_ADVICE_PREFETCH) {
    Mr paged(ibv_reg_mr(pd(), bench.buffer.data(), 4096, IBV_ACCESS_ON_DEMAND));
    ibv_sge sge{reinterpret_cast<uint64_t>(paged->addr), 64, paged->lkey};
    change(sge);
    return ibv_advise_mr(pd(), advice, flags, &sge, 1);
  }
  int attach(ibv_qp* qp, uint8_t first_byte) {
    ibv_gid gid{};
    gid.raw[0] = first_byte;
    gid.raw[15] = 1;
    return ibv_attach_mcast(qp, &gid, 0);
  }

  Bench bench;
  Context foreign = open_device();
  Pd other_pd, foreign_pd;
  Cq foreign_cq;
  Channel channel, foreign_channel;
  Mr bindable;
  Dm dm;
  Xrcd domain;
  ibv_device_attr device{};
};

struct Row {
  const char* verb;
  const char* misuse;
  int error;
  std::function<int(World&)> call;
};

// Runs a misuse with VERBENA_LOG=error, and expects a specific reason in the log, not a list of possible
// ones. Some checks are verbs.h's own, which logs nothing.
void check(const Row& row) {
  SCOPED_TRACE(std::string(row.verb) + ": " + row.misuse);
  World world;
  const LogLevel before = log_level();
  set_log_level(LogLevel::kError);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(row.call(world), row.error);
  set_log_level(before);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, Not(HasSubstr("an argument is null, of another device")));
  if (row.error == EINVAL && !said.empty()) {
    EXPECT_THAT(said, HasSubstr(" failed, EINVAL (Invalid argument): "));
  }
}

// ---- objects in use are not destroyed

const Row kBusy[] = {
    {"ibv_dealloc_pd", "memory is registered in it", EBUSY, [](World& w) { return ibv_dealloc_pd(w.pd()); }},
    {"ibv_dealloc_pd", "an address handle is of it", EBUSY,
     [](World& w) {
       ibv_ah_attr attr{};
       attr.is_global = 1;
       attr.port_num = 1;
       attr.grh.sgid_index = static_cast<uint8_t>(find_gid(w.context()));
       ibv_query_gid(w.context(), 1, attr.grh.sgid_index, &attr.grh.dgid);
       Ah ah(ibv_create_ah(w.other_pd.get(), &attr));
       return ibv_dealloc_pd(w.other_pd.get());
     }},
    {"ibv_dealloc_pd", "a window is of it", EBUSY,
     [](World& w) {
       Mw mw(ibv_alloc_mw(w.other_pd.get(), IBV_MW_TYPE_1));
       return ibv_dealloc_pd(w.other_pd.get());
     }},
    {"ibv_dealloc_pd", "a parent domain is made of it", EBUSY,
     [](World& w) {
       ibv_parent_domain_init_attr attr{};
       attr.pd = w.other_pd.get();
       Pd parent(ibv_alloc_parent_domain(w.context(), &attr));
       return ibv_dealloc_pd(w.other_pd.get());
     }},
    {"ibv_dealloc_pd", "a shared receive queue is of it", EBUSY,
     [](World& w) {
       ibv_srq_init_attr attr{};
       attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
       Srq srq(ibv_create_srq(w.other_pd.get(), &attr));
       return ibv_dealloc_pd(w.other_pd.get());
     }},
    {"ibv_dealloc_td", "a parent domain is made with it", EBUSY,
     [](World& w) {
       ibv_td_init_attr td_attr{};
       Td td(ibv_alloc_td(w.context(), &td_attr));
       ibv_parent_domain_init_attr attr{};
       attr.pd = w.pd();
       attr.td = td.get();
       Pd parent(ibv_alloc_parent_domain(w.context(), &attr));
       return ibv_dealloc_td(td.get());
     }},
    {"ibv_destroy_cq", "a queue pair completes there", EBUSY,
     [](World& w) {
       Qp qp = w.bench.make_qp(IBV_QPT_RC);
       return ibv_destroy_cq(w.cq());
     }},
    {"ibv_destroy_cq", "a work queue completes there", EBUSY,
     [](World& w) {
       Wq wq = w.make_wq();
       return ibv_destroy_cq(w.cq());
     }},
    {"ibv_destroy_cq", "a shared receive queue for XRC completes there", EBUSY,
     [](World& w) {
       Srq srq = w.bench.make_xrc_srq(w.domain.get(), w.cq());
       return ibv_destroy_cq(w.cq());
     }},
    {"ibv_destroy_comp_channel", "a queue is bound to it", EBUSY,
     [](World& w) {
       Cq cq(ibv_create_cq(w.context(), 4, nullptr, w.channel.get(), 0));
       return ibv_destroy_comp_channel(w.channel.get());
     }},
    {"ibv_destroy_srq", "a queue pair receives from it", EBUSY,
     [](World& w) {
       Srq srq = w.bench.make_srq();
       Qp qp = w.bench.make_qp(IBV_QPT_RC, srq.get());
       return ibv_destroy_srq(srq.get());
     }},
    {"ibv_close_xrcd", "a target is in it", EBUSY,
     [](World& w) {
       Qp target = w.bench.make_target(w.domain.get());
       return ibv_close_xrcd(w.domain.get());
     }},
    {"ibv_close_xrcd", "a shared receive queue is in it", EBUSY,
     [](World& w) {
       Srq srq = w.bench.make_xrc_srq(w.domain.get(), w.cq());
       return ibv_close_xrcd(w.domain.get());
     }},
    {"ibv_free_dm", "it is registered", EBUSY,
     [](World& w) {
       Mr mr(ibv_reg_dm_mr(w.pd(), w.dm.get(), 0, 64, IBV_ACCESS_ZERO_BASED));
       return ibv_free_dm(w.dm.get());
     }},
    {"ibv_destroy_wq", "it is in a table", EBUSY,
     [](World& w) {
       Wq wq = w.make_wq();
       RwqTable table = w.make_table({wq.get()}, 0);
       return ibv_destroy_wq(wq.get());
     }},
    {"ibv_destroy_qp", "it is attached to a group", EBUSY,
     [](World& w) {
       Qp qp = w.ud_qp();
       const ibv_gid gid{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 9}};
       EXPECT_EQ(ibv_attach_mcast(qp.get(), &gid, 0), 0);
       const int error = ibv_destroy_qp(qp.get());
       EXPECT_EQ(ibv_detach_mcast(qp.get(), &gid, 0), 0);
       return error;
     }},
};

TEST(ErrorReturns, OfDestroyingWhatIsInUse) {
  for (const Row& row : kBusy) check(row);
}

// ---- wrong creations fail

const Row kMade[] = {
    {"ibv_alloc_parent_domain", "of nothing", EINVAL,
     [](World& w) { return w.make_parent([](auto& a) { a.pd = nullptr; }); }},
    {"ibv_alloc_parent_domain", "of another context's", EINVAL,
     [](World& w) { return w.make_parent([&](auto& a) { a.pd = w.foreign_pd.get(); }); }},
    {"ibv_alloc_parent_domain", "with an unknown mask", EOPNOTSUPP,
     [](World& w) { return w.make_parent([](auto& a) { a.comp_mask = kUnknownMask; }); }},
    {"ibv_alloc_parent_domain", "with half an allocator", EINVAL,
     [](World& w) {
       return w.make_parent([](auto& a) { a.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS; });
     }},
    {"ibv_alloc_td", "with an unknown mask", EINVAL,
     [](World& w) {
       ibv_td_init_attr attr{.comp_mask = kUnknownMask};
       return error_of<ibv_dealloc_td>(ibv_alloc_td(w.context(), &attr));
     }},
    {"ibv_alloc_mw", "of no such type", EINVAL,
     [](World& w) { return error_of<ibv_dealloc_mw>(ibv_alloc_mw(w.pd(), static_cast<ibv_mw_type>(3))); }},
    {"ibv_alloc_dm", "of nothing", EINVAL, [](World& w) { return w.make_dm(0); }},
    {"ibv_alloc_dm", "more than there is", EINVAL, [](World& w) { return w.make_dm(SIZE_MAX / 2); }},
    {"ibv_alloc_dm", "aligned too much", EINVAL, [](World& w) { return w.make_dm(64, 40); }},
    {"ibv_alloc_dm", "with an unknown mask", EINVAL, [](World& w) { return w.make_dm(64, 0, kUnknownMask); }},
    {"ibv_reg_dm_mr", "beyond its end", EINVAL, [](World& w) { return w.register_dm(4000, 200); }},
    {"ibv_reg_dm_mr", "not zero-based", EINVAL, [](World& w) { return w.register_dm(0, 64, 0); }},
    {"ibv_reg_dm_mr", "remote write without local write", EINVAL,
     [](World& w) { return w.register_dm(0, 64, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE); }},
    {"ibv_reg_dm_mr", "in another context's domain", EINVAL,
     [](World& w) {
       return error_of<ibv_dereg_mr>(
           ibv_reg_dm_mr(w.foreign_pd.get(), w.dm.get(), 0, 64, IBV_ACCESS_ZERO_BASED));
     }},
    {"ibv_reg_dmabuf_mr", "of no descriptor", EBADF,
     [](World& w) { return error_of<ibv_dereg_mr>(ibv_reg_dmabuf_mr(w.pd(), 0, 4096, 0, -1, 0)); }},
    {"ibv_create_cq_ex", "with no entries", EINVAL,
     [](World& w) { return w.make_cq_ex([](auto& a) { a.cqe = 0; }); }},
    {"ibv_create_cq_ex", "with an unknown mask", EOPNOTSUPP,
     [](World& w) { return w.make_cq_ex([](auto& a) { a.comp_mask = kUnknownMask; }); }},
    {"ibv_create_cq_ex", "with an unknown field", EOPNOTSUPP,
     [](World& w) { return w.make_cq_ex([](auto& a) { a.wc_flags = 1ull << 40; }); }},
    {"ibv_create_cq_ex", "of a domain that is no parent's", EINVAL,
     [](World& w) {
       return w.make_cq_ex(
           [&](auto& a) { a.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, a.parent_domain = w.pd(); });
     }},
    {"ibv_create_srq_ex", "with an unknown mask", EOPNOTSUPP,
     [](World& w) { return w.make_srq([](auto& a) { a.comp_mask |= kUnknownMask; }); }},
    {"ibv_create_srq_ex", "of no such type", EOPNOTSUPP,
     [](World& w) { return w.make_srq([](auto& a) { a.srq_type = static_cast<ibv_srq_type>(3); }); }},
    {"ibv_create_srq_ex", "without a protection domain", EINVAL,
     [](World& w) { return w.make_srq([](auto& a) { a.comp_mask &= ~uint32_t{IBV_SRQ_INIT_ATTR_PD}; }); }},
    {"ibv_create_srq_ex", "for XRC without a domain", EINVAL,
     [](World& w) { return w.make_srq([](auto& a) { a.comp_mask &= ~uint32_t{IBV_SRQ_INIT_ATTR_XRCD}; }); }},
    {"ibv_create_srq_ex", "for XRC without a completion queue", EINVAL,
     [](World& w) { return w.make_srq([](auto& a) { a.comp_mask &= ~uint32_t{IBV_SRQ_INIT_ATTR_CQ}; }); }},
    {"ibv_create_srq_ex", "of another context's completion queue", EINVAL,
     [](World& w) { return w.make_srq([&](auto& a) { a.cq = w.foreign_cq.get(); }); }},
    {"ibv_create_srq_ex", "of no requests", EINVAL,
     [](World& w) { return w.make_srq([](auto& a) { a.attr.max_wr = 0; }); }},
    {"ibv_create_srq_ex", "of more requests than there may be", EINVAL,
     [](World& w) {
       return w.make_srq([&](auto& a) { a.attr.max_wr = static_cast<uint32_t>(w.device.max_srq_wr) + 1; });
     }},
    {"ibv_create_srq_ex", "of lists longer than there may be", EINVAL,
     [](World& w) {
       return w.make_srq([&](auto& a) { a.attr.max_sge = static_cast<uint32_t>(w.device.max_srq_sge) + 1; });
     }},
    {"ibv_create_srq_ex", "for tags without saying how many", EINVAL,
     [](World& w) { return w.make_srq([](auto& a) { a.srq_type = IBV_SRQT_TM; }); }},
    {"ibv_open_xrcd", "without a flag of what is given", EINVAL,
     [](World& w) { return w.make_xrcd(-1, O_CREAT, IBV_XRCD_INIT_ATTR_FD); }},
    {"ibv_open_xrcd", "with an unknown mask", EOPNOTSUPP,
     [](World& w) { return w.make_xrcd(-1, O_CREAT, 7u | kUnknownMask); }},
    {"ibv_open_xrcd", "of no file, and not to be made", EINVAL, [](World& w) { return w.make_xrcd(-1, 0); }},
    {"ibv_open_xrcd", "with other flags of open(2)", EINVAL,
     [](World& w) { return w.make_xrcd(-1, O_CREAT | O_APPEND); }},
    {"ibv_open_xrcd", "of a closed descriptor", EBADF,
     [](World& w) { return w.make_xrcd(1 << 20, O_CREAT); }},
    {"ibv_open_xrcd", "of a file without one, not to be made", EAGAIN,
     [](World& w) {
       const UniqueFd file(::open("/tmp", O_TMPFILE | O_RDWR, 0600));
       return w.make_xrcd(file.get(), 0);
     }},
    {"ibv_open_xrcd", "again, of a file that has one", EINVAL,
     [](World& w) {
       const UniqueFd file(::open("/tmp", O_TMPFILE | O_RDWR, 0600));
       Xrcd first = w.bench.make_domain(file.get());
       return w.make_xrcd(file.get(), O_CREAT | O_EXCL);
     }},
    {"ibv_open_qp", "of no such number", EINVAL,
     [](World& w) { return w.open_target([](auto& a) { a.qp_num ^= 1; }); }},
    {"ibv_open_qp", "without its number", EINVAL,
     [](World& w) { return w.open_target([](auto& a) { a.comp_mask &= ~uint32_t{IBV_QP_OPEN_ATTR_NUM}; }); }},
    {"ibv_open_qp", "of another type", EINVAL,
     [](World& w) { return w.open_target([](auto& a) { a.qp_type = IBV_QPT_RC; }); }},
    {"ibv_open_qp", "with an unknown mask", EOPNOTSUPP,
     [](World& w) { return w.open_target([](auto& a) { a.comp_mask |= kUnknownMask; }); }},
    {"ibv_create_qp_ex", "without a protection domain", EINVAL,
     [](World& w) { return w.make_qp_ex([](auto& a) { a.comp_mask = 0; }); }},
    {"ibv_create_qp_ex", "in another context's domain", EINVAL,
     [](World& w) { return w.make_qp_ex([&](auto& a) { a.pd = w.foreign_pd.get(); }); }},
    {"ibv_create_qp_ex", "with an unknown mask", EOPNOTSUPP,
     [](World& w) { return w.make_qp_ex([](auto& a) { a.comp_mask |= kUnknownMask; }); }},
    {"ibv_create_qp_ex", "a target without a domain", EINVAL,
     [](World& w) { return w.make_qp_ex([](auto& a) { a.qp_type = IBV_QPT_XRC_RECV; }); }},
    {"ibv_create_qp_ex", "with operations that the service does not have", EOPNOTSUPP,
     [](World& w) {
       return w.make_qp_ex([](auto& a) {
         a.qp_type = IBV_QPT_UD;
         a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
         a.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
       });
     }},
    {"ibv_create_wq", "for sending", EINVAL,
     [](World& w) {
       return w.make_wq([](auto& a) { a.wq_type = static_cast<ibv_wq_type>(1); }) == nullptr ? errno : 0;
     }},
    {"ibv_create_wq", "of no requests", EINVAL,
     [](World& w) { return w.make_wq([](auto& a) { a.max_wr = 0; }) == nullptr ? errno : 0; }},
    {"ibv_create_wq", "of another context's queue", EINVAL,
     [](World& w) { return w.make_wq([&](auto& a) { a.cq = w.foreign_cq.get(); }) == nullptr ? errno : 0; }},
    {"ibv_create_wq", "with an unknown mask", EOPNOTSUPP,
     [](World& w) { return w.make_wq([](auto& a) { a.comp_mask = kUnknownMask; }) == nullptr ? errno : 0; }},
    {"ibv_create_rwq_ind_table", "larger than there may be", EINVAL,
     [](World& w) {
       Wq wq = w.make_wq();
       return w.make_table({wq.get()}, 31) == nullptr ? errno : 0;
     }},
    {"ibv_create_rwq_ind_table", "with an unknown mask", EOPNOTSUPP,
     [](World& w) {
       Wq wq = w.make_wq();
       return w.make_table({wq.get()}, 0, kUnknownMask) == nullptr ? errno : 0;
     }},
    {"ibv_create_counters", "with an unknown mask", EOPNOTSUPP,
     [](World& w) {
       ibv_counters_init_attr attr{.comp_mask = kUnknownMask};
       return error_of<ibv_destroy_counters>(ibv_create_counters(w.context(), &attr));
     }},
    {"ibv_create_flow", "for a queue pair that has none", EINVAL,
     [](World& w) {
       Qp qp = w.bench.make_qp(IBV_QPT_RC);
       ibv_flow_attr attr{};
       attr.type = IBV_FLOW_ATTR_NORMAL;
       attr.size = sizeof attr;
       attr.port = 1;
       return error_of<ibv_destroy_flow>(ibv_create_flow(qp.get(), &attr));
     }},
    {"ibv_import_device", "of no descriptor", EBADF,
     [](World&) { return error_of<ibv_close_device>(ibv_import_device(-1)); }},
    {"ibv_import_pd", "of no such handle", ENOENT,
     [](World& w) {
       ibv_pd* pd = ibv_import_pd(w.context(), 0xfffffff);
       return pd == nullptr ? errno : 0;
     }},
    {"ibv_import_mr", "of no such handle", ENOENT,
     [](World& w) {
       ibv_mr* mr = ibv_import_mr(w.pd(), 0xfffffff);
       return mr == nullptr ? errno : 0;
     }},
    {"ibv_import_dm", "of no such handle", ENOENT,
     [](World& w) {
       ibv_dm* dm = ibv_import_dm(w.context(), 0xfffffff);
       return dm == nullptr ? errno : 0;
     }},
};

TEST(ErrorReturns, OfMakingWhatCannotBe) {
  for (const Row& row : kMade) check(row);
}

// ---- wrong changes and uses have no effect

const Row kUsed[] = {
    {"ibv_rereg_mr", "nothing", EINVAL, [](World& w) { return w.reregister(0, nullptr, nullptr, 0, 0); }},
    {"ibv_rereg_mr", "an unknown change", EINVAL,
     [](World& w) { return w.reregister(1 << 10, nullptr, nullptr, 0, 0); }},
    {"ibv_rereg_mr", "to no memory", EINVAL,
     [](World& w) { return w.reregister(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 64, 0); }},
    {"ibv_rereg_mr", "to no domain", EINVAL,
     [](World& w) { return w.reregister(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0); }},
    {"ibv_rereg_mr", "to another context's domain", EINVAL,
     [](World& w) { return w.reregister(IBV_REREG_MR_CHANGE_PD, w.foreign_pd.get(), nullptr, 0, 0); }},
    {"ibv_rereg_mr", "rights without saying so", EINVAL,
     [](World& w) {
       return w.reregister(IBV_REREG_MR_CHANGE_PD, w.pd(), nullptr, 0, IBV_ACCESS_LOCAL_WRITE);
     }},
    {"ibv_rereg_mr", "remote write without local write", EINVAL,
     [](World& w) {
       return w.reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE);
     }},
    {"ibv_advise_mr", "no such advice", EOPNOTSUPP,
     [](World& w) { return w.advise([](auto&) {}, 0, static_cast<ibv_advise_mr_advice>(3)); }},
    {"ibv_advise_mr", "an unknown flag", EINVAL,
     [](World& w) { return w.advise([](auto&) {}, kUnknownMask); }},
    {"ibv_advise_mr", "of no such key", ENOENT,
     [](World& w) { return w.advise([](auto& s) { s.lkey ^= 0x100; }); }},
    {"ibv_advise_mr", "beyond its end", EFAULT,
     [](World& w) { return w.advise([](auto& s) { s.length = 1 << 20; }); }},
    {"ibv_memcpy_to_dm", "beyond its end", EFAULT,
     [](World& w) { return ibv_memcpy_to_dm(w.dm.get(), 4092, w.bench.buffer.data(), 8); }},
    {"ibv_memcpy_from_dm", "beyond its end", EFAULT,
     [](World& w) { return ibv_memcpy_from_dm(w.bench.buffer.data(), w.dm.get(), 4092, 8); }},
    {"ibv_memcpy_to_dm", "half a word", EINVAL,
     [](World& w) { return ibv_memcpy_to_dm(w.dm.get(), 0, w.bench.buffer.data(), 2); }},
    {"ibv_bind_mw", "a window of type 2", EINVAL,
     [](World& w) { return w.bind([](auto&) {}, IBV_MW_TYPE_2); }},
    {"ibv_bind_mw", "zero-based", EINVAL,
     [](World& w) { return w.bind([](auto& b) { b.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED; }); }},
    {"ibv_bind_mw", "an address of no memory", EINVAL,
     [](World& w) { return w.bind([](auto& b) { b.bind_info.mr = nullptr; }); }},
    {"ibv_bind_mw", "a window of another domain", EPERM,
     [](World& w) { return w.bind([](auto&) {}, IBV_MW_TYPE_1, w.other_pd.get()); }},
    {"ibv_resize_cq", "to no entries", EINVAL, [](World& w) { return ibv_resize_cq(w.cq(), 0); }},
    {"ibv_resize_cq", "beyond what there may be", EINVAL,
     [](World& w) { return ibv_resize_cq(w.cq(), w.device.max_cqe + 1); }},
    {"ibv_modify_cq", "nothing", EINVAL,
     [](World& w) {
       ibv_modify_cq_attr attr{};
       return ibv_modify_cq(w.cq(), &attr);
     }},
    {"ibv_modify_cq", "what is not known", EOPNOTSUPP,
     [](World& w) {
       ibv_modify_cq_attr attr{};
       attr.attr_mask = kUnknownMask;
       return ibv_modify_cq(w.cq(), &attr);
     }},
    {"ibv_modify_srq", "what is not known", EINVAL,
     [](World& w) {
       Srq srq = w.bench.make_srq(4);
       ibv_srq_attr attr{};
       return ibv_modify_srq(srq.get(), &attr, 1 << 9);
     }},
    {"ibv_modify_srq", "to a limit above its size", EINVAL,
     [](World& w) {
       Srq srq = w.bench.make_srq(4);
       ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = 1000};
       return ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT);
     }},
    {"ibv_modify_srq", "to no requests", EINVAL,
     [](World& w) {
       Srq srq = w.bench.make_srq(4);
       ibv_srq_attr attr{};
       return ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR);
     }},
    {"ibv_get_srq_num", "of one that is not for XRC", EINVAL,
     [](World& w) {
       Srq srq = w.bench.make_srq(4);
       uint32_t number = 0;
       return ibv_get_srq_num(srq.get(), &number);
     }},
    {"ibv_post_srq_recv", "more than there is room for", ENOMEM,
     [](World& w) {
       Srq srq = w.bench.make_srq(2);
       for (int i = 0; i < 2; ++i) EXPECT_EQ(w.bench.post_receive(srq.get(), 1, w.bench.piece(0, 8)), 0);
       return w.bench.post_receive(srq.get(), 1, w.bench.piece(0, 8));
     }},
    {"ibv_post_srq_ops", "to one that matches no tags", EINVAL,
     [](World& w) {
       Srq srq = w.bench.make_srq(4);
       ibv_ops_wr request{};
       request.opcode = IBV_WR_TAG_DEL;
       ibv_ops_wr* bad = nullptr;
       return ibv_post_srq_ops(srq.get(), &request, &bad);
     }},
    {"ibv_modify_wq", "what is not known", EINVAL,
     [](World& w) { return w.modify_wq(w.make_wq(), IBV_WQS_RDY, kUnknownMask); }},
    {"ibv_modify_wq", "from RESET to ERR", EINVAL,
     [](World& w) { return w.modify_wq(w.make_wq(), IBV_WQS_ERR); }},
    {"ibv_post_wq_recv", "in RESET", EINVAL,
     [](World& w) {
       Wq wq = w.make_wq();
       ibv_recv_wr request{};
       ibv_recv_wr* bad = nullptr;
       return ibv_post_wq_recv(wq.get(), &request, &bad);
     }},
    {"ibv_modify_qp_rate_limit", "of a service without", EOPNOTSUPP,
     [](World& w) {
       Qp qp = w.bench.make_qp(IBV_QPT_RC);
       ibv_qp_rate_limit_attr attr{};
       return ibv_modify_qp_rate_limit(qp.get(), &attr);
     }},
    {"ibv_attach_mcast", "a reliable queue pair", EINVAL,
     [](World& w) {
       Qp qp = w.bench.make_qp(IBV_QPT_RC);
       return w.attach(qp.get(), 0xff);
     }},
    {"ibv_attach_mcast", "to no group's address", EINVAL,
     [](World& w) {
       Qp qp = w.ud_qp();
       return w.attach(qp.get(), 0xfd);
     }},
    {"ibv_detach_mcast", "from what it is not attached to", EINVAL,
     [](World& w) {
       Qp qp = w.ud_qp();
       const ibv_gid gid{{0xff}};
       return ibv_detach_mcast(qp.get(), &gid, 0);
     }},
    {"ibv_query_rt_values_ex", "what is not known", EINVAL,
     [](World& w) {
       ibv_values_ex values{};
       values.comp_mask = kUnknownMask;
       return ibv_query_rt_values_ex(w.context(), &values);
     }},
    {"ibv_query_port", "that is not there", EINVAL,
     [](World& w) {
       ibv_port_attr port{};
       return ibv_query_port(w.context(), 2, &port);
     }},
    {"ibv_query_gid_ex", "beyond the table", EINVAL,
     [](World& w) {
       ibv_gid_entry entry{};
       return ibv_query_gid_ex(w.context(), 1, 1 << 20, &entry, 0);
     }},
    {"ibv_query_gid_ex", "with unknown flags", EINVAL,
     [](World& w) {
       ibv_gid_entry entry{};
       return ibv_query_gid_ex(w.context(), 1, 0, &entry, 1);
     }},
};

TEST(ErrorReturns, OfUsingWhatThereIsWrongly) {
  for (const Row& row : kUsed) check(row);
}

// ---- the reported maxima can be created

TEST(ErrorReturns, OfMoreQueuePairsThanTheDeviceHas) {
  World w;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = w.cq();
  init.qp_type = IBV_QPT_UD;
  init.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  std::vector<Qp> all;
  int error = 0;
  while (error == 0 && all.size() <= 2 * static_cast<size_t>(w.device.max_qp)) {
    Qp qp(ibv_create_qp(w.pd(), &init));
    if (qp == nullptr) error = errno;
    if (qp != nullptr) all.push_back(std::move(qp));
  }
  EXPECT_EQ(error, ENOMEM);
  EXPECT_GE(all.size(), static_cast<size_t>(w.device.max_qp));
  all.pop_back();
  EXPECT_NE(Qp(ibv_create_qp(w.pd(), &init)), nullptr) << "one that was given back";
}

}  // namespace
}  // namespace verbena::adapter::testing
