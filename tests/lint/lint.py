#!/usr/bin/env python3
"""Rules of the house that no compiler checks. One line a rule; closes with `N passed, N failed`."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What each room may include. Arrows only downwards.
ROOMS = {
    "policy": {"policy"},
    "launcher": {"policy", "launcher"},
    # Over the launch service's socket and no other way: the daemon links nothing of the launcher.
    "supervisor": {"policy", "supervisor"},
    "api": {"policy", "supervisor", "api"},
}

# All that the child may call of libc: none of it allocates, locks, or touches thread-local storage.
CHILD_MAY_CALL = {"memcpy", "memmove", "memset", "memcmp", "strlen", "strchr", "strncmp",
                  "__ehdr_start", "_end", "_GLOBAL_OFFSET_TABLE_"}

# Name service switch: in a static program it would load shared libraries, or crash without them.
NSS = re.compile(r" [TW] (getpw\w+|getgr(nam|gid|ent|ouplist)\w*|initgroups|gethostby\w+|getaddrinfo"
                 r"|getservby\w+|getprotoby\w+)$")


def sources(*folders: str) -> list[pathlib.Path]:
    """C++ files that git tracks, or will."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *folders], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in listed if name.endswith((".cpp", ".hpp")) and (ROOT / name).exists()]


def grep(pattern: str, files: list[pathlib.Path], allowed=lambda path: False) -> list[str]:
    found = []
    for path in files:
        if allowed(path):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(pattern, line.split("//")[0]):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    return found


def includes_point_downwards() -> list[str]:
    wrong = []
    for room, allowed in ROOMS.items():
        for path in sources(room):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = re.match(r'#include "([^"/]+)/', line)
                if match and match[1] not in allowed:
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {room} must not include {match[1]}")
    return wrong


def unit_tests_use_their_own_room() -> list[str]:
    wrong = []
    for room in ("policy", "launcher", "supervisor", "api"):
        for path in sources(f"tests/unit/{room}"):
            for line in path.read_text().splitlines():
                match = re.match(r'#include "([^"/]+)/', line)
                if match and match[1] in ROOMS and match[1] not in ROOMS[room]:
                    wrong.append(f"{path.relative_to(ROOT)}: includes {match[1]}")
    return wrong


def system_calls_have_one_home() -> list[str]:
    return grep(r"\bsyscall\s*\(", sources("policy", "launcher", "supervisor", "api"),
                lambda path: "launcher/sys" in str(path))


def the_child_calls_nothing_that_allocates() -> list[str]:
    library = ROOT / "build/launcher/libchild.a"
    if not library.exists():
        return [f"{library.relative_to(ROOT)} is not built"]
    listing = subprocess.run(["nm", "-u", library], capture_output=True, text=True, check=True).stdout
    called = {line.split()[-1] for line in listing.splitlines() if " U " in line}
    return [f"launcher/child/child.cpp calls {name}" for name in sorted(called - CHILD_MAY_CALL)]


def the_launcher_knows_no_name_service() -> list[str]:
    program = ROOT / "build/launcher/belljar"
    if not program.exists():
        return [f"{program.relative_to(ROOT)} is not built"]
    listing = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    return [f"belljar links {match[1]}" for match in map(NSS.search, listing.splitlines()) if match]


def the_launcher_is_static() -> list[str]:
    program = ROOT / "build/launcher/belljar"
    listing = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True).stdout
    return ["build/launcher/belljar asks for a dynamic loader"] if "INTERP" in listing else []


def no_braces_or_lambdas_beside_co_await() -> list[str]:
    """g++ 12 destroys temporaries of such statements twice."""
    wrong = []
    for path in sources("supervisor", "api", "tests/unit/supervisor", "tests/unit/api"):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        # A statement goes on over lines, up to its semicolon or to the block that it opens.
        for match in re.finditer(r"co_await\b[^;]*?(?:;|\)\s*\{\n|$)", text):
            statement = re.sub(r"\)\s*\{\n$", ")", match[0])
            if re.search(r"\{|\[[^]]*\]\s*[({]|BELLJAR_(TRY|CHECK)", statement):
                line = text.count("\n", 0, match.start()) + 1
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {' '.join(statement.split())}")
    # It also loses its way where one is awaited or not, or two are in one `if`: name the first.
    lost = r"(&&|\|\|)\s*!?\(*co_await|\bif \(!?co_await [^;{}]*\)\s+co_await"
    return wrong + grep(rf"BELLJAR_(TRY|CHECK)\(.*co_await|{lost}", sources("supervisor", "api"))


def only_bwrap_s_arguments_are_literal() -> list[str]:
    """What a literal plan relaxes is out of every policy's reach, and of the service's."""
    def of_bwrap(path):
        return path.parent.name == "bwrap" or path.name in ("plan.hpp", "plan.cpp")
    found = grep(r"DropIn\b|drop_in\s*=[^=]", sources("launcher", "supervisor", "api"), of_bwrap)
    return found + grep(r'#include "launcher/bwrap/', sources("launcher", "supervisor", "api"),
                        lambda path: path.parent.name in ("bwrap", "cli"))


def few_files_include_boost() -> list[str]:
    using = [str(path.relative_to(ROOT)) for path in sources("policy", "launcher", "supervisor", "api")
             if re.search(r"#include <boost/", path.read_text())]
    return using if len(using) > 8 else []


def formatting_is_the_house_s() -> list[str]:
    files = [str(path) for path in sources("policy", "launcher", "supervisor", "api", "tests")]
    result = subprocess.run(["clang-format", "--dry-run", "--Werror", *files], capture_output=True, text=True)
    return sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", result.stderr, re.M)))


def what_is_left_to_do_has_an_issue() -> list[str]:
    return grep(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))", sources("policy", "launcher", "supervisor", "api"))


RULES = [includes_point_downwards, unit_tests_use_their_own_room, system_calls_have_one_home,
         the_child_calls_nothing_that_allocates, the_launcher_knows_no_name_service,
         the_launcher_is_static, no_braces_or_lambdas_beside_co_await, only_bwrap_s_arguments_are_literal,
         few_files_include_boost,
         formatting_is_the_house_s, what_is_left_to_do_has_an_issue]


def main() -> int:
    failed = 0
    for rule in RULES:
        problems = rule()
        failed += bool(problems)
        print(f"{'FAILED' if problems else 'ok    '} {rule.__name__.replace('_', ' ')}")
        for problem in problems[:20]:
            print(f"         {problem}")
    print(f"{len(RULES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
