// SPDX-License-Identifier: Apache-2.0
#include "adapter/memory/ordered_copy.h"

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

namespace verbena::memory {

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

}  // namespace verbena::memory

#else

namespace verbena::memory {

bool copy_small(std::byte*, ConstBytes) {
  return false;
}

bool abandon_small_copy(ucontext_t&) {
  return false;
}

}  // namespace verbena::memory

#endif
