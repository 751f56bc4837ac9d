"""`./dev demo`: the main job on real input, and the same program refused what the policy refuses."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
NOBODY = 65534  # The uid that root's sandboxes have on the host.


def make_workspace() -> pathlib.Path:
    """A directory of the session's own; belljar never chowns anything by itself."""
    workspace = pathlib.Path(tempfile.mkdtemp(prefix="belljar-demo-", dir="/var/tmp"))
    for name in ("agent.py", "curious.py"):
        shutil.copy(HERE / name, workspace)
    if os.getuid() == 0:
        for path in (workspace, *workspace.iterdir()):
            os.chown(path, NOBODY, NOBODY)
    return workspace


def run(belljar: str, workspace: pathlib.Path, program: str) -> dict:
    """Runs it under builtin:agent@1 and returns the record, which the program cannot touch."""
    command = [belljar, "run", "--policy", "builtin:agent@1", "--workspace", str(workspace)]
    words = ["--record", "fd:3", "--", "python3", program]
    print(f"\n$ belljar run --policy builtin:agent@1 --workspace {workspace} -- python3 {program}", flush=True)
    read_end, write_end = os.pipe()
    # A shell gives the pipe the number 3; the program inherits 0, 1 and 2 alone.
    shell = f'exec "$@" 3>&{write_end}'
    finished = subprocess.run(["bash", "-c", shell, "demo", *command, *words], pass_fds=[write_end])
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    if not text:
        sys.exit(f"belljar wrote no record (exit {finished.returncode})")
    return json.loads(text)


def main() -> None:
    belljar = os.path.abspath(sys.argv[1])
    workspace = make_workspace()
    try:
        record = run(belljar, workspace, "agent.py")
        print("\nIts record, written by belljar:")
        print(json.dumps(record, indent=2))
        kept = json.loads((workspace / "report.json").read_text())
        print(f"\nIt kept report.json in its workspace: Python {kept['python']}, "
              f"{kept['processes']} processes in its view.")
        print("\nThe same agent, curious:")
        run(belljar, workspace, "curious.py")
    finally:
        shutil.rmtree(workspace)
    if record["cause"] != "exited" or record["exit_code"] != 0:
        sys.exit(1)
    print("\nNext: belljar run --help, belljar explain --policy builtin:agent@1, docs/architecture.md")


if __name__ == "__main__":
    main()
