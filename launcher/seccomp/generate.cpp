// seccomp_generate TABLE.json OUTPUT.cpp: compiles the built-in sets while Belljar is built,
// because a launch should get them for nothing, as text that reviewers can read.
#include <sha256.h>
#include <sys/types.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>

#include "launcher/seccomp/base.hpp"
#include "launcher/seccomp/compile.hpp"

namespace belljar::launcher {

namespace {

struct NamedSet {
  policy::SyscallBase base;
  const char* enumerator;
};
constexpr NamedSet kSets[] = {{policy::SyscallBase::kAgent1, "kAgent1"},
                              {policy::SyscallBase::kStrict1, "kStrict1"}};

constexpr const char* kHeader =
    "// Written by launcher/seccomp/generate.cpp: do not edit.\n"
    "#include \"launcher/seccomp/embedded.hpp\"\n\n"
    "namespace belljar::launcher {\n\n"
    "namespace {\n\n";

std::string array_text(const NamedSet& set, const SeccompProgram& program) {
  std::string text = "constexpr sock_filter " + std::string(set.enumerator) + "[] = {\n";
  for (const sock_filter& instruction : program.instructions) {
    std::array<char, 64> line{};
    (void)std::snprintf(line.data(), line.size(), "    {0x%02x, %u, %u, 0x%08x},\n",
                        unsigned{instruction.code}, unsigned{instruction.jt},
                        unsigned{instruction.jf}, instruction.k);
    text += line.data();
  }
  return text + "};\n\n";
}

std::string functions_text(const std::string& digest) {
  std::string text =
      "}  // namespace\n\n"
      "std::span<const sock_filter> embedded_filter(policy::SyscallBase base) {\n"
      "  switch (base) {\n"
      "    case policy::SyscallBase::kNone:\n      return {};\n";
  for (const NamedSet& set : kSets)
    text += "    case policy::SyscallBase::" + std::string(set.enumerator) + ":\n      return " +
            set.enumerator + ";\n";
  return text +
         "  }\n  return {};\n}\n\n"
         "std::string_view embedded_table_digest() {\n  return \"sha256:" +
         digest +
         "\";\n}\n\n"
         "}  // namespace belljar::launcher\n";
}

Result<std::string> table_digest(const char* path) {
  std::array<char, SHA256_DIGEST_STRING_LENGTH> digest{};
  if (SHA256File(path, digest.data()) == nullptr)
    return sys_failure(errno, "SHA256File: " + std::string(path));
  return std::string(digest.data());
}

Status write_file(const char* path, const std::string& text) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "we"), std::fclose);
  if (!file || std::fputs(text.c_str(), file.get()) < 0 || std::fflush(file.get()) != 0)
    return sys_failure(errno, "write " + std::string(path));
  return {};
}

Status generate(const char* table_path, const char* output_path) {
  std::string text = kHeader;
  for (const NamedSet& set : kSets)
    text += array_text(set, BELLJAR_TRY(compile_filter(base_verdicts(set.base))));
  text += functions_text(BELLJAR_TRY(table_digest(table_path)));
  return write_file(output_path, text);
}

}  // namespace

}  // namespace belljar::launcher

int main(int argc, char** argv) {
  if (argc != 3) {
    (void)std::fputs("usage: seccomp_generate TABLE.json OUTPUT.cpp\n", stderr);
    return 2;
  }
  const belljar::Status done = belljar::launcher::generate(argv[1], argv[2]);
  if (!done) (void)std::fprintf(stderr, "seccomp_generate: %s\n", done.error().what.c_str());
  return done ? 0 : 1;
}
