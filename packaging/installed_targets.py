"""Of `meson introspect --targets` on standard input, the files that are installed: what a package has to build."""
import json
import os
import sys

build = os.path.abspath(sys.argv[1])
for target in json.load(sys.stdin):
    if target["installed"]:
        for name in target["filename"]:
            print(os.path.relpath(name, build))
