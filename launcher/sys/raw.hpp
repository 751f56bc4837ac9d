// System calls without libc: no errno, no thread-local storage, no allocation.
//
// The child of a launch and the sandbox's init run on these alone, because init unmaps libc's
// thread-local block together with everything else that came from the launcher.
#pragma once

#include <asm/unistd.h>

#include <cstddef>
#include <cstdint>

namespace belljar::sys {

#if defined(__x86_64__)

inline long raw6(long number, long a, long b, long c, long d, long e, long f) noexcept {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

/// Continues in `function(argument)` on another stack, for good. `stack_top` is 16-byte aligned.
[[noreturn]] inline void call_on_stack(void* stack_top, void (*function)(void*),
                                       void* argument) noexcept {
  __asm__ volatile(
      "mov %0, %%rsp\n\t"
      "xor %%ebp, %%ebp\n\t"
      "mov %2, %%rdi\n\t"
      "call *%1\n\t"
      "ud2"
      :
      : "r"(stack_top), "r"(function), "r"(argument)
      : "memory", "rdi");
  __builtin_unreachable();
}

/// clone(2) whose child runs `function(argument)` on `stack_top` and never returns. The caller gets
/// the child's pid or -errno. With CLONE_VM | CLONE_VFORK the caller sleeps until the child execs.
inline long clone_on_stack(unsigned long flags, void* stack_top, void (*function)(void*),
                           void* argument) noexcept {
  long result;
  register long r10 __asm__("r10") = 0;
  register long r8 __asm__("r8") = 0;
  register void (*entry)(void*) __asm__("r12") = function;
  register void* parameter __asm__("r13") = argument;
  __asm__ volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "mov %%r13, %%rdi\n\t"
      "call *%%r12\n\t"
      "ud2\n\t"
      "1:"
      : "=a"(result)
      : "a"(static_cast<long>(__NR_clone)), "D"(flags), "S"(stack_top), "d"(0L), "r"(r10), "r"(r8),
        "r"(entry), "r"(parameter)
      : "rcx", "r11", "memory");
  return result;
}

#elif defined(__aarch64__)

inline long raw6(long number, long a, long b, long c, long d, long e, long f) noexcept {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc #0"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
  return x0;
}

[[noreturn]] inline void call_on_stack(void* stack_top, void (*function)(void*),
                                       void* argument) noexcept {
  register void* x0 __asm__("x0") = argument;
  __asm__ volatile(
      "mov sp, %0\n\t"
      "mov x29, xzr\n\t"
      "blr %1\n\t"
      "brk #1"
      :
      : "r"(stack_top), "r"(function), "r"(x0)
      : "memory");
  __builtin_unreachable();
}

inline long clone_on_stack(unsigned long flags, void* stack_top, void (*function)(void*),
                           void* argument) noexcept {
  register long x8 __asm__("x8") = __NR_clone;
  register long x0 __asm__("x0") = static_cast<long>(flags);
  register void* x1 __asm__("x1") = stack_top;
  register long x2 __asm__("x2") = 0;
  register long x3 __asm__("x3") = 0;
  register long x4 __asm__("x4") = 0;
  register void (*x19)(void*) __asm__("x19") = function;
  register void* x20 __asm__("x20") = argument;
  __asm__ volatile(
      "svc #0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, xzr\n\t"
      "mov x0, x20\n\t"
      "blr x19\n\t"
      "brk #1\n\t"
      "1:"
      : "+r"(x0)
      : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x19), "r"(x20)
      : "memory");
  return x0;
}

#else
#error "belljar knows x86-64 and arm64; another architecture needs its system-call instruction here"
#endif

namespace detail {
inline long word(long value) noexcept { return value; }
inline long word(int value) noexcept { return value; }
inline long word(unsigned value) noexcept { return static_cast<long>(value); }
inline long word(unsigned long value) noexcept { return static_cast<long>(value); }
inline long word(std::nullptr_t) noexcept { return 0; }
inline long word(const void* value) noexcept { return reinterpret_cast<long>(value); }
}  // namespace detail

/// Calls the kernel: the result, or -errno. Arguments are integers or pointers, up to six.
template <class... Arguments>
inline long raw(long number, Arguments... arguments) noexcept {
  static_assert(sizeof...(arguments) <= 6);
  const long words[6 + 1] = {detail::word(arguments)..., 0};
  return raw6(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

}  // namespace belljar::sys
