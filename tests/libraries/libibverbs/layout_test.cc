// SPDX-License-Identifier: Apache-2.0
// The struct layouts that programs were compiled with (amd64). Checked at compile time.
#include <cstddef>

#include <gtest/gtest.h>
#include <infiniband/sa.h>
#include <infiniband/umad.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "libraries/libibverbs/opened_device.h"

#if defined(__x86_64__)
#define SIZE(type, size) static_assert(sizeof(type) == (size));
#define GROWS(type, size) static_assert(sizeof(type) >= (size));
#define MEMBER(type, member, offset) static_assert(offsetof(type, member) == (offset));
#define FROM_END(type, member, distance) static_assert(sizeof(type) - offsetof(type, member) == (distance));
#include "libraries/libibverbs/abi/layout.def"
#endif

namespace verbena {
namespace {

// Old programs find operations of contexts by their distance from the embedded ibv_context.
TEST(Layout, ExtendedOperationsLieBeforeTheContext) {
  EXPECT_EQ(offsetof(verbs_context, context) + sizeof(ibv_context), sizeof(verbs_context));
  EXPECT_EQ(offsetof(verbs_context, sz) + sizeof(size_t), offsetof(verbs_context, context));
}

class ContextLayout : public fake::OpenedDevice {};

// Programs ignore operations beyond this size.
TEST_F(ContextLayout, SizeDoesNotDependOnTheHeadersOfTheBuild) {
  const auto* context = reinterpret_cast<const verbs_context*>(reinterpret_cast<const std::byte*>(context_) -
                                                               offsetof(verbs_context, context));
  EXPECT_EQ(context->sz, sizeof(verbs_context) - offsetof(verbs_context, query_port));
}

}  // namespace
}  // namespace verbena
