"""The examples of docs/api.md, run as they stand against a daemon."""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "daemon"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import main
from v1 import V1Test, as_shipped

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"<!-- example -->\n```sh\n(.*?)```", re.S)


class Examples(V1Test):

    @as_shipped
    def test_every_example_works_as_it_is_written(self):
        v1 = self.v1()
        session = v1.create(files={"notes.txt": "hello"}, env={"COLOUR": "blue"})["id"]
        examples = EXAMPLE.findall((ROOT / "docs/api.md").read_text())
        self.assertGreaterEqual(len(examples), 4)
        api = f'api() {{ curl -sS --fail-with-body --unix-socket {v1.socket_path} "$@" || exit 1; echo; }}\nset -e\n'
        said = ""
        for example in examples:
            # Its first command is exec's, so that the process that is written to is the second.
            done = subprocess.run(["bash", "-c", api + example], env={**os.environ, "SESSION": session},
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{example}\n{done.stdout}{done.stderr}{v1.daemon.log}")
            said += done.stdout
        for words in ('"stdout":"42\\n"', '"stdout":"helloblue\\n"', '"offset":10'):
            self.assertIn(words, said)


if __name__ == "__main__":
    main()
