"""Who is compared, and how each is told to do the same work."""

import json
import pathlib
import shutil

from lab import HERE, Subject, Unusable

BARE = "bare payload"
MINIMAL = "minimal_launcher"
MODERN = "belljar modern"
LEGACY = "belljar legacy"
BWRAP = "bwrap"
DROP_IN = "belljar as bwrap"  # The same arguments as BWRAP's.
UNSHARE = "unshare"

BELLJARS = (MODERN, LEGACY)
BWRAPS = (BWRAP, DROP_IN)
ALL = (BARE, MINIMAL, MODERN, LEGACY, DROP_IN, BWRAP, UNSHARE)

BELLJAR_ENVIRONMENT = {MODERN: {}, LEGACY: {"BELLJAR_BACK_END": "legacy"}}

BWRAP_VIEW = ["--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev", "--unshare-all"]

# Namespaces and a /proc, but no view of its own: not the same work, a second point of reference.
UNSHARE_ALL = ["--user", "--map-current-user", "--mount", "--pid", "--net", "--ipc", "--uts",
               "--cgroup", "--fork", "--mount-proc", "--kill-child"]


def tool(name):
    """An absolute path, so that no contender is charged for a search along PATH."""
    return shutil.which(name) or f"/usr/bin/{name}"


class Contenders:
    """Builds the commands of the contenders for one lab."""

    def __init__(self, lab, belljar, drop_in):
        self.lab = lab
        self.belljar = str(belljar)
        self.bwraps = {BWRAP: tool("bwrap"), DROP_IN: str(drop_in)}
        self.refused = {}  # Name -> why it cannot run here.

    def try_all(self):
        """One launch of each: what cannot run here at all is said once and then left out."""
        for name in ALL:
            try:
                self.lab.time(self.subject(name, [self.lab.payload]), 1)
            except Unusable as error:
                self.refused[name] = str(error)

    def usable(self, *names):
        return [name for name in names if name not in self.refused]

    def subject(self, name, payload, world=()):
        """The contender `name` with the view of launch.json, about to run `payload`."""
        launcher = {
            BARE: [],
            MINIMAL: [str(self.lab.programs / "minimal_launcher")],
            MODERN: self.belljar_run(HERE / "launch.json"),
            LEGACY: self.belljar_run(HERE / "launch.json"),
            **{name: self.bwrap(name, ["--ro-bind", "/", "/", *BWRAP_VIEW]) for name in BWRAPS},
            UNSHARE: [tool("unshare"), *UNSHARE_ALL],
        }[name]
        return Subject(name, [*launcher, *payload], BELLJAR_ENVIRONMENT.get(name, {}), world)

    def belljar_run(self, policy):
        return [self.belljar, "run", "--policy", str(policy), "--"]

    def bwrap(self, name, options):
        """As root, bwrap keeps every capability in the sandbox unless it is told not to."""
        drop = ["--cap-drop", "ALL"] if self.lab.privileged() else []
        return [self.bwraps[name], *options, *drop]

    def belljar_with_limits(self, name, limits):
        """The policy of launch.json with limits of all processes together."""
        policy = self.lab.scratch / f"limits-{'-'.join(limits)}.json"
        text = json.loads((HERE / "launch.json").read_text())
        policy.write_text(json.dumps(text | {"limits": text.get("limits", {}) | limits}))
        command = [*self.belljar_run(policy), self.lab.payload]
        return Subject(f"{name}, {' and '.join(limits)}", command, BELLJAR_ENVIRONMENT[name])

    def belljar_with_binds(self, name, sources):
        """An empty root with each of `sources` at /b/N, the payload and the usual small mounts."""
        policy = self.lab.scratch / f"binds-{len(sources)}.json"
        policy.write_text(json.dumps(bind_policy(sources, self.lab.payload)))
        command = [*self.belljar_run(policy), "/payload"]
        return Subject(f"{name}, {len(sources)} binds", command, BELLJAR_ENVIRONMENT[name])

    def bwrap_with_binds(self, name, sources):
        binds = [word for number, source in enumerate(sources)
                 for word in ("--ro-bind", str(source), f"/b/{number}")]
        links = [word for name in usr_links() for word in ("--symlink", f"usr/{name}", f"/{name}")]
        options = ["--ro-bind", "/usr", "/usr", *links, *BWRAP_VIEW,
                   "--ro-bind", self.lab.payload, "/payload", *binds]
        return Subject(f"{name}, {len(sources)} binds", [*self.bwrap(name, options), "/payload"])


def usr_links():
    """The top-level directories that are links into /usr on this host, without their slash."""
    names = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
    return [name for name in names if pathlib.Path("/", name).is_symlink()]


def bind_policy(sources, payload):
    mounts = {"/usr": {"type": "bind", "source": "/usr", "readonly": True}}
    mounts |= {f"/{name}": {"type": "symlink", "source": f"usr/{name}"} for name in usr_links()}
    mounts |= {"/tmp": {"type": "tmpfs"}, "/proc": {"type": "proc"}, "/dev": {"type": "dev"}}
    mounts["/payload"] = {"type": "bind", "source": payload, "readonly": True}
    for number, source in enumerate(sources):
        mounts[f"/b/{number}"] = {"type": "bind", "source": str(source), "readonly": True}
    return {
        "version": 1,
        "name": f"bench-binds-{len(sources)}",
        "filesystem": {"root": "empty", "mounts": mounts},
        "network": {"mode": "none"},
        "syscalls": {"base": "agent@1"},
    }
