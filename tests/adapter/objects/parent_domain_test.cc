// SPDX-License-Identifier: Apache-2.0
// Parent domains, with allocators and thread domains (ibv_alloc_parent_domain(3), ibv_alloc_td(3)).
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include "adapter/objects/support/endpoint.h"

namespace verbena::adapter::testing {
namespace {

using Td = std::unique_ptr<ibv_td, Destroy<ibv_dealloc_td>>;

// An allocator that records its allocations.
struct Account {
  std::map<void*, uint64_t> taken;  // with their resource types
  int asked = 0;
  bool use_default = false;
  bool exhausted = false;
  ibv_pd* domain = nullptr;

  static void* allocate(ibv_pd* pd, void* context, size_t size, size_t alignment, uint64_t kind) {
    auto& account = *static_cast<Account*>(context);
    ++account.asked;
    account.domain = pd;
    if (account.use_default) return IBV_ALLOCATOR_USE_DEFAULT;
    if (account.exhausted) return nullptr;
    void* at = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    std::memset(at, 0, size);
    account.taken[at] = kind;
    return at;
  }
  static void release(ibv_pd*, void* context, void* at, uint64_t kind) {
    auto& account = *static_cast<Account*>(context);
    ASSERT_EQ(account.taken.count(at), 1u) << "freed what was never taken";
    EXPECT_EQ(account.taken[at], kind);
    account.taken.erase(at);
    std::free(at);
  }
};

class ParentDomain : public ::testing::Test {
 protected:
  void SetUp() override {
    context = open_device();
    pd.reset(ibv_alloc_pd(context.get()));
    cq.reset(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0));
  }

  ibv_parent_domain_init_attr attributes() {
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd.get();
    return attr;
  }
  ibv_parent_domain_init_attr with_allocators() {
    ibv_parent_domain_init_attr attr = attributes();
    attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = Account::allocate;
    attr.free = Account::release;
    attr.pd_context = &account;
    return attr;
  }
  Pd parent(ibv_parent_domain_init_attr attr) { return Pd(ibv_alloc_parent_domain(context.get(), &attr)); }
  Qp make_qp(ibv_pd* of) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.get();
    init.qp_type = IBV_QPT_RC;
    init.cap = {
        .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    return Qp(ibv_create_qp(of, &init));
  }

  Account account;
  Context context;
  Pd pd;
  Cq cq;
};

TEST_F(ParentDomain, ServesWhereADomainDoes) {
  Pd whole = parent(attributes());
  ASSERT_NE(whole, nullptr);
  std::byte memory[64];
  Mr mr(ibv_reg_mr(whole.get(), memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->pd, whole.get());
  Qp qp = make_qp(whole.get());
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp->pd, whole.get());
}

TEST_F(ParentDomain, HasTheRightsOfTheDomainItWasMadeOf) {
  Pair pair;
  ibv_parent_domain_init_attr attr{};
  attr.pd = pair.b.pd.get();
  Pd whole(ibv_alloc_parent_domain(pair.b.context.get(), &attr));
  ASSERT_NE(whole, nullptr);
  Mr mr(ibv_reg_mr(whole.get(), pair.b.buffer(), 4096, static_cast<int>(kAllAccess)));
  ASSERT_NE(mr, nullptr);
  ibv_send_wr request = remote_request(IBV_WR_RDMA_WRITE, 1, pair.b.address());
  request.wr.rdma.rkey = mr->rkey;
  const ibv_sge piece = pair.a.piece(0, 64);
  ASSERT_EQ(pair.a.post_send(request, {&piece, 1}), 0);
  EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
}

TEST_F(ParentDomain, HasTheHandleOfTheDomainItWasMadeOf) {
  Pd whole = parent(attributes());
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->handle, pd->handle);
  EXPECT_EQ(whole->context, pd->context);
}

TEST_F(ParentDomain, AddressHandlesOfEitherServeTheOther) {
  Pair pair({.type = IBV_QPT_UD});
  ibv_parent_domain_init_attr attr{};
  attr.pd = pair.a.pd.get();
  Pd whole(ibv_alloc_parent_domain(pair.a.context.get(), &attr));
  ibv_ah_attr way = rtr_attributes(pair.a, pair.b.address()).ah_attr;
  Ah ah(ibv_create_ah(whole.get(), &way));
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 256)), 0);
  std::swap(pair.a.ah, ah);
  const ibv_sge piece = pair.a.piece(0, 64);
  EXPECT_EQ(pair.a.post_send(send_request(1), {&piece, 1}), 0);
  EXPECT_EQ(pair.b.completion().byte_len, 104u);
  std::swap(pair.a.ah, ah);
}

TEST_F(ParentDomain, RingsComeFromItsAllocatorAndGoBackToIt) {
  Pd whole = parent(with_allocators());
  ASSERT_NE(whole, nullptr);
  {
    Qp qp = make_qp(whole.get());
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(account.taken.size(), 2u) << "a send and a receive queue";
    EXPECT_EQ(account.domain, whole.get());
  }
  EXPECT_TRUE(account.taken.empty());
  EXPECT_EQ(account.asked, 2);
}

TEST_F(ParentDomain, SharedReceiveAndCompletionQueuesUseItToo) {
  Pd whole = parent(with_allocators());
  ASSERT_NE(whole, nullptr);
  {
    ibv_srq_init_attr srq_init{};
    srq_init.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    std::unique_ptr<ibv_srq, Destroy<ibv_destroy_srq>> srq(ibv_create_srq(whole.get(), &srq_init));
    ASSERT_NE(srq, nullptr);
    EXPECT_EQ(account.taken.size(), 1u);
    ibv_srq_attr larger{};
    larger.max_wr = 1000;
    EXPECT_EQ(ibv_modify_srq(srq.get(), &larger, IBV_SRQ_MAX_WR), 0);
    EXPECT_EQ(account.taken.size(), 1u) << "the smaller one went back";
    EXPECT_EQ(account.asked, 2);

    ibv_cq_init_attr_ex cq_init{};
    cq_init.cqe = 16;
    cq_init.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    cq_init.parent_domain = whole.get();
    Cq of_domain(ibv_cq_ex_to_cq(ibv_create_cq_ex(context.get(), &cq_init)));
    ASSERT_NE(of_domain, nullptr);
    EXPECT_EQ(account.taken.size(), 2u);
    EXPECT_EQ(ibv_resize_cq(of_domain.get(), 1000), 0);
    EXPECT_EQ(account.taken.size(), 2u);
    EXPECT_EQ(account.asked, 4);
    EXPECT_EQ(ibv_dealloc_pd(whole.get()), EBUSY);
  }
  EXPECT_TRUE(account.taken.empty());
}

TEST_F(ParentDomain, AnAllocatorMayLeaveItToTheDefault) {
  account.use_default = true;
  Pd whole = parent(with_allocators());
  Qp qp = make_qp(whole.get());
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(account.asked, 2);
  EXPECT_TRUE(account.taken.empty());
}

TEST_F(ParentDomain, AnExhaustedAllocatorIsNoMemory) {
  account.exhausted = true;
  Pd whole = parent(with_allocators());
  EXPECT_EQ(make_qp(whole.get()), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(ParentDomain, DomainsAreBusyWhileAnythingIsMadeOfThem) {
  ibv_td_init_attr nothing{};
  Td td(ibv_alloc_td(context.get(), &nothing));
  ASSERT_NE(td, nullptr);
  ibv_parent_domain_init_attr attr = attributes();
  attr.td = td.get();
  Pd whole = parent(attr);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
  EXPECT_EQ(ibv_dealloc_td(td.get()), EBUSY);
  Qp qp = make_qp(whole.get());
  EXPECT_EQ(ibv_dealloc_pd(whole.get()), EBUSY);
}

TEST_F(ParentDomain, AThreadDomainsQueuePairsWorkWithoutLocks) {
  ibv_td_init_attr nothing{};
  Td td(ibv_alloc_td(context.get(), &nothing));
  ibv_parent_domain_init_attr attr = attributes();
  attr.td = td.get();
  Pd whole = parent(attr);
  Qp qp = make_qp(whole.get());
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr to_init = init_attributes({});
  ASSERT_EQ(ibv_modify_qp(qp.get(), &to_init, init_mask(IBV_QPT_RC)), 0);
  ibv_recv_wr receive{};
  receive.wr_id = 7;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(qp.get(), &receive, &bad), 0);
  ibv_qp_attr to_error{};
  to_error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(qp.get(), &to_error, IBV_QP_STATE), 0);
  ibv_wc wc{};
  ASSERT_EQ(ibv_poll_cq(cq.get(), 1, &wc), 1);
  EXPECT_EQ(wc.wr_id, 7u);
}

TEST_F(ParentDomain, IsRefusedWhenBadlyAsked) {
  Context other = open_device();
  Pd foreign(ibv_alloc_pd(other.get()));
  ibv_td_init_attr nothing{};
  Td foreign_td(ibv_alloc_td(other.get(), &nothing));
  struct Case {
    const char* what;
    std::function<void(ibv_parent_domain_init_attr&)> change;
    int error = EINVAL;
  };
  const Case cases[] = {
      {"of nothing", [](auto& a) { a.pd = nullptr; }},
      {"of another context's domain", [&](auto& a) { a.pd = foreign.get(); }},
      {"with another context's thread domain", [&](auto& a) { a.td = foreign_td.get(); }},
      {"unknown fields", [](auto& a) { a.comp_mask |= 1u << 7; }, EOPNOTSUPP},
      {"no allocator", [](auto& a) { a.alloc = nullptr; }},
      {"nothing to free with", [](auto& a) { a.free = nullptr; }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    ibv_parent_domain_init_attr attr = with_allocators();
    c.change(attr);
    errno = 0;
    EXPECT_EQ(parent(attr), nullptr);
    EXPECT_EQ(errno, c.error);
  }
  ibv_td_init_attr unknown{.comp_mask = 1};
  EXPECT_EQ(ibv_alloc_td(context.get(), &unknown), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

// Accepted, but without effect: only devices that need memory outside a confidential guest allocate any.
TEST_F(ParentDomain, MayAllowMemoryThatIsSharedWithTheHost) {
  ibv_parent_domain_init_attr attr = attributes();
  attr.comp_mask = 1 << 2;  // IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC
  const Pd domain = parent(attr);
  ASSERT_NE(domain, nullptr);
  EXPECT_NE(make_qp(domain.get()), nullptr);
}

TEST(ParentDomainLifetime, ClosingTheDeviceGivesTheMemoryBack) {
  Account account;
  {
    ibv_context* context = open_device().release();
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd;
    attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = Account::allocate;
    attr.free = Account::release;
    attr.pd_context = &account;
    ibv_pd* whole = ibv_alloc_parent_domain(context, &attr);
    ASSERT_NE(whole, nullptr);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    init.qp_type = IBV_QPT_RC;
    init.cap = {
        .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    ASSERT_NE(ibv_create_qp(whole, &init), nullptr);
    EXPECT_EQ(account.taken.size(), 2u);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  EXPECT_TRUE(account.taken.empty());
}

TEST_F(ParentDomain, GivesAnExtendedCompletionQueueItsRing) {
  Pd domain = parent(with_allocators());
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 10;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attr.parent_domain = domain.get();
  ibv_cq_ex* extended = ibv_create_cq_ex(context.get(), &attr);
  ASSERT_NE(extended, nullptr);
  EXPECT_EQ(account.taken.size(), 1u);
  EXPECT_EQ(ibv_dealloc_pd(domain.get()), EBUSY);
  EXPECT_EQ(ibv_resize_cq(ibv_cq_ex_to_cq(extended), 100), 0);
  EXPECT_EQ(account.asked, 2);
  EXPECT_EQ(account.taken.size(), 1u);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(extended)), 0);
  EXPECT_TRUE(account.taken.empty());
  account.exhausted = true;
  EXPECT_EQ(ibv_create_cq_ex(context.get(), &attr), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

}  // namespace
}  // namespace verbena::adapter::testing
