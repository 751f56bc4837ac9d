// A malloc for `belljar_trap`, which is belljar linked with it: it kills whatever allocates in a
// process other than the one that main() began in. The child of a launch may not allocate: another
// thread could hold the lock of malloc at the moment of the clone, and init's heap is gone.
//
// Memory is taken from one arena and given back at exit only; a launch needs little.
// BELLJAR_TRAP_CHECK=1 makes a forked child allocate before main() starts, to see that the trap is
// set.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "launcher/sys/raw.hpp"

namespace {

using belljar::sys::raw;

constexpr std::size_t kArenaSize = std::size_t{256}
                                   << 20;  // Reserved, not used: pages come when touched.
constexpr std::size_t kHead = 16;          // The block's size, and alignment.

// Plain words: they are set before any constructor runs.
long home_process = 0;
std::byte* next_free = nullptr;
std::byte* arena_end = nullptr;

[[noreturn]] void spring(const char* what) noexcept {
  static const char kText[] = "belljar_trap: the child called ";
  raw(SYS_write, 2, kText, sizeof kText - 1);
  raw(SYS_write, 2, what, std::strlen(what));
  raw(SYS_write, 2, "\n", 1);
  for (;;) {
    raw(SYS_kill, raw(SYS_getpid), SIGABRT);
    raw(SYS_exit_group, 134);  // Pid 1 of a namespace ignores a signal that it sends to itself.
  }
}

void check(const char* what) noexcept {
  const long here = raw(SYS_getpid);
  if (home_process == 0) home_process = here;
  if (home_process != here) spring(what);
}

void* allocate(std::size_t size, std::size_t alignment, const char* what) noexcept {
  check(what);
  if (next_free == nullptr) {
    const long memory = raw(SYS_mmap, nullptr, kArenaSize, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory < 0) spring("mmap without success");
    next_free = reinterpret_cast<std::byte*>(memory);
    arena_end = next_free + kArenaSize;
  }
  auto at = reinterpret_cast<std::uintptr_t>(next_free) + kHead;
  at = (at + alignment - 1) / alignment * alignment;
  auto* block = reinterpret_cast<std::byte*>(at);
  if (size > static_cast<std::size_t>(arena_end - block)) {
    errno = ENOMEM;
    return nullptr;
  }
  std::memcpy(block - kHead, &size, sizeof size);
  next_free = block + (size + kHead - 1) / kHead * kHead;
  return block;
}

std::size_t size_of(const void* block) noexcept {
  std::size_t size = 0;
  std::memcpy(&size, static_cast<const std::byte*>(block) - kHead, sizeof size);
  return size;
}

__attribute__((constructor)) void check_the_trap() {
  if (std::getenv("BELLJAR_TRAP_CHECK") == nullptr) return;
  const long child = raw(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) {
    void* volatile block = std::malloc(1);
    std::free(block);
    raw(SYS_exit_group, 0);
  }
  int status = 0;
  raw(SYS_wait4, child, &status, 0, nullptr);
  raw(SYS_exit_group, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

}  // namespace

extern "C" {

void* malloc(std::size_t size) noexcept { return allocate(size, kHead, "malloc"); }

void free(void* block) noexcept {
  if (block != nullptr) check("free");
}

void* calloc(std::size_t count, std::size_t size) noexcept {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) return nullptr;
  return allocate(bytes, kHead, "calloc");  // Fresh from mmap, so zero.
}

void* realloc(void* block, std::size_t size) noexcept {
  void* moved = allocate(size, kHead, "realloc");
  if (block != nullptr && moved != nullptr) {
    const std::size_t old = size_of(block);
    std::memcpy(moved, block, old < size ? old : size);
  }
  return moved;
}

void* memalign(std::size_t alignment, std::size_t size) noexcept {
  return allocate(size, alignment < kHead ? kHead : alignment, "memalign");
}

void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return memalign(alignment, size);
}

int posix_memalign(void** out, std::size_t alignment, std::size_t size) noexcept {
  *out = memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}

std::size_t malloc_usable_size(void* block) noexcept {
  return block == nullptr ? 0 : size_of(block);
}

// Without these the linker would take glibc's malloc for them.
int mallopt(int, int) noexcept { return 1; }
int malloc_trim(std::size_t) noexcept { return 0; }

}  // extern "C"

// libstdc++'s operators call malloc, so they need no replacement.
