"""An agent of the kind that a user draws in a web editor: it reads, computes, and keeps a file."""
import json
import os
import pathlib
import platform

report = {
    "python": platform.python_version(),
    "uid": os.getuid(),
    "directory": os.getcwd(),
    "top": sorted(os.listdir("/")),
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
}
pathlib.Path("report.json").write_text(json.dumps(report))
for key, value in report.items():
    print(f"  {key:<10} {value}")
