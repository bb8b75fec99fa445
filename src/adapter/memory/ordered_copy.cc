// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/ordered_copy.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "adapter/memory/guarded.h"
#include "base/bulk_copy.h"

namespace verbena::memory {

namespace {

constexpr size_t kWord = sizeof(uint64_t);

// The bare instructions: ThreadSanitizer's atomics take a lock around the access, which a fault would leave
// locked.
template <class Word>
__attribute__((no_sanitize("thread"))) void store(std::byte* to, const std::byte* from) {
  Word value;
  std::memcpy(&value, from, sizeof value);
  __atomic_store_n(reinterpret_cast<Word*>(to), value, __ATOMIC_RELEASE);
}

// Ascending, each step as wide as its alignment allows: so a step is visible whole or not at all. Each
// release keeps earlier stores before it. On x86 this includes the string moves of memcpy(), which itself
// fences after streaming stores.
void copy_stepwise(std::byte* to, const std::byte* from, size_t bytes) {
  while (bytes > 0) {
    const size_t aligned = size_t{1} << std::countr_zero(reinterpret_cast<uintptr_t>(to) | kWord);
    const size_t step = std::min(aligned, std::bit_floor(bytes));
    switch (step) {
      case 8:
        store<uint64_t>(to, from);
        break;
      case 4:
        store<uint32_t>(to, from);
        break;
      case 2:
        store<uint16_t>(to, from);
        break;
      default:
        store<uint8_t>(to, from);
    }
    to += step;
    from += step;
    bytes -= step;
  }
}

void copy(std::byte* to, ConstBytes from) {
  if (from.empty()) return;
  const uintptr_t last = reinterpret_cast<uintptr_t>(to) + from.size() - 1;
  const size_t stepwise = std::min(from.size(), last % kWord + 1);  // bytes in the last word
  const size_t before = from.size() - stepwise;
  if (before > 0) copy_bulk(to, from.data(), before);
  copy_stepwise(to + before, from.data() + before, stepwise);
}

[[gnu::noinline]] bool copy_with_landing(std::byte* to, ConstBytes from) {
  return guarded([&] { copy(to, from); });
}

}  // namespace

bool copy_in_order_guarded(std::byte* to, ConstBytes from) {
  if (may_copy_small(from.size())) [[likely]]
    return copy_small(to, from);
  return copy_with_landing(to, from);
}

bool copy_pieces_in_order_guarded(std::byte* to, std::span<const ConstBytes> pieces) {
  return guarded([&] {
    std::byte* at = to;
    for (const ConstBytes piece : pieces) {
      copy(at, piece);
      at += piece.size();
    }
  });
}

bool scatter_guarded(std::span<const ConstBytes> pieces, const std::byte* from) {
  return guarded([&] {
    const std::byte* at = from;
    for (const ConstBytes piece : pieces) {
      copy_bulk(const_cast<std::byte*>(piece.data()), at, piece.size());
      at += piece.size();
    }
  });
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

extern "C" {
// REQUIRES: 1 <= bytes <= 64
[[gnu::visibility("hidden")]] bool verbena_small_copy(void* to, const void* from, size_t bytes);
[[gnu::visibility(
    "hidden")]] extern const char verbena_small_copy_end[];  // just behind it: from there it returns false
}

// Copies a head and a tail that overlap, of the largest size that fits both, so there is no loop. A single
// word is stored once: a thread that has seen it may have overwritten it since. Uses no stack, and only
// registers that a call may change, so that it can be abandoned anywhere.
asm(R"(
	.pushsection .text.verbena_small_copy, "ax", @progbits
	.p2align 4
	.globl verbena_small_copy
	.hidden verbena_small_copy
	.type verbena_small_copy, @function
verbena_small_copy:
	.cfi_startproc
	cmpq $16, %rdx
	ja 3f
	cmpl $8, %edx
	je 8f
	ja 2f
	cmpl $4, %edx
	je 7f
	ja 1f
	cmpl $2, %edx
	je 6f
	movzbl (%rsi), %eax
	jb 5f
	movzwl 1(%rsi), %ecx
	movb %al, (%rdi)
	movw %cx, 1(%rdi)
	jmp 9f
5:	movb %al, (%rdi)
	jmp 9f
6:	movzwl (%rsi), %eax
	movw %ax, (%rdi)
	jmp 9f
7:	movl (%rsi), %eax
	movl %eax, (%rdi)
	jmp 9f
8:	movq (%rsi), %rax
	movq %rax, (%rdi)
	jmp 9f
1:	movl (%rsi), %eax
	movl -4(%rsi,%rdx), %ecx
	movl %eax, (%rdi)
	movl %ecx, -4(%rdi,%rdx)
	jmp 9f
2:	movq (%rsi), %rax
	movq -8(%rsi,%rdx), %rcx
	movq %rax, (%rdi)
	movq %rcx, -8(%rdi,%rdx)
	jmp 9f
3:	movups (%rsi), %xmm0
	movups -16(%rsi,%rdx), %xmm1
	cmpl $32, %edx
	jbe 4f
	movups 16(%rsi), %xmm2
	movups -32(%rsi,%rdx), %xmm3
	movups %xmm0, (%rdi)
	movups %xmm2, 16(%rdi)
	movups %xmm3, -32(%rdi,%rdx)
	movups %xmm1, -16(%rdi,%rdx)
	jmp 9f
4:	movups %xmm0, (%rdi)
	movups %xmm1, -16(%rdi,%rdx)
9:	movl $1, %eax
	ret
	.globl verbena_small_copy_end
	.hidden verbena_small_copy_end
verbena_small_copy_end:
	xorl %eax, %eax
	ret
	.cfi_endproc
	.size verbena_small_copy, .-verbena_small_copy
	.popsection
)");

bool copy_small(std::byte* to, ConstBytes from) {
  return verbena_small_copy(to, from.data(), from.size());
}

bool abandon_small_copy(ucontext_t& interrupted) {
  greg_t& next = interrupted.uc_mcontext.gregs[REG_RIP];
  const auto begin = reinterpret_cast<greg_t>(&verbena_small_copy);
  const auto end = reinterpret_cast<greg_t>(verbena_small_copy_end);
  if (next < begin || next >= end) return false;
  next = end;
  return true;
}

#else

bool copy_small(std::byte*, ConstBytes) {
  return false;
}

bool abandon_small_copy(ucontext_t&) {
  return false;
}

#endif

}  // namespace verbena::memory
