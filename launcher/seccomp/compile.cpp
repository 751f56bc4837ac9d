// libseccomp finds the number in a binary tree but cannot say "refuse these arguments, allow the
// rest" beside a default that refuses. So calls that depend on arguments get a marker as their
// verdict, and the linker below puts a jump to the call's own segment where the marker is returned:
//
//   architecture? x32?   →  tree of libseccomp  →  segment of ioctl | segment of socket | …
#include "launcher/seccomp/compile.hpp"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "launcher/sys/unique_fd.hpp"

namespace belljar::launcher {

namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

// A call's verdict on the way through libseccomp: no verdict of ours is a trace.
constexpr std::uint32_t marker_value(std::size_t segment) {
  return SECCOMP_RET_TRACE | static_cast<std::uint32_t>(segment);
}

// The segments, each once: chmod and fchmod share theirs.
class Segments {
 public:
  /// The index of `code`, which is added when there is no equal one.
  std::size_t add(std::vector<sock_filter> code) {
    const auto found = std::find_if(all_.begin(), all_.end(),
                                    [&](const auto& other) { return equal(code, other); });
    if (found != all_.end()) return static_cast<std::size_t>(found - all_.begin());
    all_.push_back(std::move(code));
    return all_.size() - 1;
  }

  [[nodiscard]] const std::vector<std::vector<sock_filter>>& all() const { return all_; }

 private:
  static bool equal(const std::vector<sock_filter>& a, const std::vector<sock_filter>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
  }

  std::vector<std::vector<sock_filter>> all_;
};

struct ContextDelete {
  void operator()(void* context) const { seccomp_release(context); }
};
using Context = std::unique_ptr<void, ContextDelete>;

Result<Context> make_context(std::uint32_t default_value) {
  Context context(seccomp_init(default_value));
  if (!context) return sys_failure(EINVAL, "seccomp_init: libseccomp refuses the default action");
  constexpr std::uint32_t kBinaryTree = 2;
  int error = seccomp_attr_set(context.get(), SCMP_FLTATR_CTL_OPTIMIZE, kBinaryTree);
  if (error == 0)
    error = seccomp_attr_set(context.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  if (error != 0)
    return sys_failure(-error, "seccomp_attr_set: binary tree, foreign architectures");
  return context;
}

// libseccomp refuses a rule that says what the default says.
Status add_rule(const Context& context, std::uint32_t default_value, int number,
                std::uint32_t value) {
  if (value == default_value) return {};
  const int error = seccomp_rule_add_exact_array(context.get(), value, number, 0, nullptr);
  if (error == 0) return {};
  return sys_failure(-error, "seccomp_rule_add: system call " + std::to_string(number));
}

// Through a file in memory: libseccomp 2.5 exports to descriptors only.
Result<std::vector<sock_filter>> export_program(const Context& context) {
  const sys::UniqueFd file(memfd_create("seccomp filter", MFD_CLOEXEC));
  if (!file.valid()) return sys_failure(errno, "memfd_create: the filter of libseccomp");
  const int error = seccomp_export_bpf(context.get(), file.get());
  if (error != 0) return sys_failure(-error, "seccomp_export_bpf");
  const off_t size = lseek(file.get(), 0, SEEK_END);
  std::vector<sock_filter> program(static_cast<std::size_t>(std::max<off_t>(size, 0)) /
                                   sizeof(sock_filter));
  const std::size_t bytes = program.size() * sizeof(sock_filter);
  const ssize_t count = pread(file.get(), program.data(), bytes, 0);
  if (program.empty() || count != static_cast<ssize_t>(bytes))
    return sys_failure(EIO, "pread: the filter of libseccomp");
  return program;
}

Result<std::vector<sock_filter>> make_tree(const Verdicts& verdicts, Segments& segments) {
  BELLJAR_CHECK(make_segment({{}, verdicts.default_action}));
  const std::uint32_t default_value = return_value(verdicts.default_action);
  const Context context = BELLJAR_TRY(make_context(default_value));
  for (const auto& [number, verdict] : verdicts.calls) {
    auto segment = make_segment(verdict);
    if (!segment) return fail(std::move(segment).error());
    const std::uint32_t value = verdict.clauses.empty()
                                    ? return_value(verdict.otherwise)
                                    : marker_value(segments.add(*std::move(segment)));
    BELLJAR_CHECK(add_rule(context, default_value, number, value));
  }
  return export_program(context);
}

// Comes before libseccomp's own checks, which kill on x32: programs probe for it with a call.
std::vector<sock_filter> make_entry() {
  constexpr std::uint32_t kArchOffset = offsetof(seccomp_data, arch);
  std::vector<sock_filter> entry = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, kArchOffset},
      {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, kArchitecture},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS},
  };
#ifdef __x86_64__
  constexpr std::uint32_t kX32Bit = 0x40000000;  // __X32_SYSCALL_BIT: same architecture, other ABI.
  entry.push_back({BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)});
  entry.push_back({BPF_JMP | BPF_JGE | BPF_K, 0, 1, kX32Bit});
  entry.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS});
#endif
  return entry;
}

// Conditional jumps stay inside their piece, so appending pieces leaves them right.
SeccompProgram link_pieces(std::vector<sock_filter> tree,
                           const std::vector<std::vector<sock_filter>>& segments) {
  SeccompProgram program{make_entry()};
  const std::size_t tree_start = program.instructions.size();
  const std::size_t tree_end = tree_start + tree.size();
  program.instructions.insert(program.instructions.end(), tree.begin(), tree.end());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::size_t start = program.instructions.size();
    for (std::size_t at = tree_start; at < tree_end; ++at) {
      sock_filter& instruction = program.instructions[at];
      if (instruction.code == (BPF_RET | BPF_K) && instruction.k == marker_value(i))
        instruction = {BPF_JMP | BPF_JA, 0, 0, static_cast<std::uint32_t>(start - at - 1)};
    }
    program.instructions.insert(program.instructions.end(), segments[i].begin(), segments[i].end());
  }
  return program;
}

tl::unexpected<Error> invalid(std::string what, std::string remedy) {
  return fail({ErrorKind::kInvalid, 0, std::move(what), {}, std::move(remedy)});
}

bool known_value(std::uint32_t value) {
  const std::uint32_t action = value & SECCOMP_RET_ACTION_FULL;
  return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG || action == SECCOMP_RET_ERRNO ||
         action == SECCOMP_RET_KILL_PROCESS;
}

// What is wrong with the instruction, `rest` others following it, or null.
const char* fault(const sock_filter& instruction, std::size_t rest) {
  switch (instruction.code) {
    case BPF_LD | BPF_W | BPF_ABS:
      if (instruction.k % 4 != 0 || instruction.k >= sizeof(seccomp_data)) return "load outside";
      return rest == 0 ? "last instruction does not return" : nullptr;
    case BPF_ALU | BPF_AND | BPF_K:
      return rest == 0 ? "last instruction does not return" : nullptr;
    case BPF_JMP | BPF_JA:
      return instruction.k >= rest ? "jump outside" : nullptr;
    case BPF_JMP | BPF_JEQ | BPF_K:
    case BPF_JMP | BPF_JGT | BPF_K:
    case BPF_JMP | BPF_JGE | BPF_K:
    case BPF_JMP | BPF_JSET | BPF_K:
      return std::max(instruction.jt, instruction.jf) >= rest ? "jump outside" : nullptr;
    case BPF_RET | BPF_K:
      return known_value(instruction.k) ? nullptr : "unknown verdict";
    default:
      return "unknown instruction";
  }
}

}  // namespace

Result<SeccompProgram> compile_filter(const Verdicts& verdicts) {
  Segments segments;
  std::vector<sock_filter> tree = BELLJAR_TRY(make_tree(verdicts, segments));
  SeccompProgram program = link_pieces(std::move(tree), segments.all());
  BELLJAR_CHECK(validate_filter(program.instructions));
  return program;
}

Status validate_filter(std::span<const sock_filter> program) {
  if (program.empty() || program.size() > BPF_MAXINSNS)
    return invalid("filter of " + std::to_string(program.size()) + " instructions: 1 to " +
                       std::to_string(BPF_MAXINSNS) + " are possible",
                   "use fewer rules or fewer alternatives in `when`");
  for (std::size_t i = 0; i < program.size(); ++i) {
    const char* wrong = fault(program[i], program.size() - i - 1);
    if (wrong != nullptr)
      return invalid("filter instruction " + std::to_string(i) + ": " + wrong, {});
  }
  return {};
}

}  // namespace belljar::launcher
