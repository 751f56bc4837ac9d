"""What `run --explain-denials` costs: a launch, and the calls that it looks at.

    denials.py BELLJAR [ROUNDS]

Interleaved rounds with and without the option, medians. Prints the rows of docs/performance.md."""

import statistics
import subprocess
import sys
import time

POLICY = ["--policy", "builtin:dev@1", "--set", "filesystem.workspace=null", "--set", "filesystem.home=none",
          "--set", "identity.uid=20000", "--set", "filesystem.toolchains=false", "--workdir", "/"]
LOOPS = """
import os, time
def per_call(paths):
    begin = time.perf_counter()
    for path in paths:
        try: os.stat(path)
        except OSError: pass
    return (time.perf_counter() - begin) / len(paths) * 1e6
print(per_call(['/usr/bin/env'] * 5000), per_call([f'/usr/nothing-{n}' for n in range(5000)]), per_call(['/etc/shadow/x'] * 5000))
"""


def run(belljar, options, *command):
    begin = time.perf_counter()
    done = subprocess.run([belljar, "run", *options, *POLICY, "--", *command], capture_output=True, text=True, check=True)
    return (time.perf_counter() - begin) * 1e3, done.stdout


def main():
    belljar, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15
    rows = {"a launch of true, ms": ([], []), "stat of one path, us": ([], []), "stat of ever new paths, us": ([], []),
            "stat of one that is missing, us": ([], [])}
    for _ in range(rounds):
        for column, options in enumerate(([], ["--explain-denials"])):
            rows["a launch of true, ms"][column].append(run(belljar, options, "/bin/true")[0])
            figures = run(belljar, options, "/usr/bin/python3", "-S", "-E", "-c", LOOPS)[1].split()
            for name, figure in zip(list(rows)[1:], figures):
                rows[name][column].append(float(figure))
    print("| | without | with |\n|---|---|---|")
    for name, columns in rows.items():
        print(f"| {name} | " + " | ".join(f"{statistics.median(column):.2f}" for column in columns) + " |")


if __name__ == "__main__":
    main()
