"""F05 (sandbox-runtime CVE-2025-66479, claude-code #81572)"""

import json

from adversarial.case import HostileLaunch, main


class F05(HostileLaunch):
    """A policy that is empty, cut short, of a wrong type or with an unknown word runs the command with less than asked."""

    control_opens = {"the whole policy"}

    def launch(self, name, text):
        path = self.make_file(f"{name}.json", text)
        run = self.belljar("run", "--policy", path, "--", "/usr/bin/true")
        return "open" if run.code == 0 else "refused"

    def attempts(self):
        whole = json.dumps(self.base_policy(), indent=1)
        broken = {"nothing": "", "null": "null", "a list": "[]", "a number": "7", "only white space": " \n",
                  "two": whole + whole, "with a comma": whole.replace("}", ",}", 1), "a NUL": whole + "\0",
                  "no version": json.dumps({**self.base_policy(), "version": None}),
                  "another version": json.dumps({**self.base_policy(), "version": 2}),
                  "a list of calls": json.dumps({**self.base_policy(), "syscalls": []}),
                  "a text for a mount": json.dumps({**self.base_policy(), "filesystem": "none"}),
                  "an unknown key": json.dumps({**self.base_policy(), "syscals": {"base": "agent@1"}})}
        doors = {name: self.launch("broken", text) for name, text in broken.items()}
        cut = [whole[:end] for end in range(0, len(whole) - 1, 97)]
        doors["cut short"] = "open" if "open" in {self.launch("cut", text) for text in cut} else "refused"
        doors["twice the same key"] = self.launch("twice", whole[:-1].rstrip() + ', "syscalls": {"base": "none"}}')
        # What allows nothing shows no file, so there is nothing to run.
        doors["that allows nothing"] = self.launch("empty", '{"version": 1}')
        return doors

    def control_attempts(self):
        return {"the whole policy": self.launch("whole", json.dumps(self.base_policy()))}


if __name__ == "__main__":
    main()
