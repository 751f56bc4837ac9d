"""The environment starts empty: what passes is named, and deny beats pass."""

from harness import SandboxTest, environment, main

SECRET = "v3ry-s3cr3t"
SAY = "say({name: value for name, value in os.environ.items() if name != 'LC_CTYPE'})"


class Environment(SandboxTest):

    def see(self, env, options=(), **caller):
        run = self.inside(SAY, policy={"env": {"pass": None, **env}}, env=environment(**caller), options=options)
        self.check_exited(run)
        return run.json()

    def test_nothing_of_the_callers_passes_but_a_path_is_made(self):
        seen = self.see({}, API_TOKEN="secret", LD_PRELOAD="x", FOO="1")
        self.assertEqual(seen, {"PATH": "/usr/local/bin:/usr/bin:/bin"})

    def test_names_and_patterns_pass(self):
        seen = self.see({"pass": ["FOO", "BAR_*", "?Z"]}, FOO="1", FOOL="2", BAR_A="3", BAR="4", TZ="5", TTZ="6")
        self.assertEqual(seen, {"PATH": seen["PATH"], "FOO": "1", "BAR_A": "3", "TZ": "5"})

    def test_deny_beats_pass(self):
        seen = self.see({"pass": ["*"], "deny": ["*TOKEN*", "*KEY"]}, API_TOKEN="a", MY_KEY="b", KEYS="c")
        self.assertEqual({"API_TOKEN", "MY_KEY", "KEYS"} & set(seen), {"KEYS"})

    def test_set_beats_both(self):
        seen = self.see({"pass": ["FOO"], "deny": ["BAR"], "set": {"FOO": "mine", "BAR": "mine"}}, FOO="1", BAR="2")
        self.assertEqual((seen["FOO"], seen["BAR"]), ("mine", "mine"))

    def test_the_command_line_sets_and_passes(self):
        seen = self.see({}, options=["-e", "A=b=c", "-e", "FOO", "-e", "EMPTY="], FOO="1")
        self.assertEqual((seen["A"], seen["FOO"], seen["EMPTY"]), ("b=c", "1", ""))

    def test_a_variable_that_is_not_set_here_is_refused(self):
        run = self.sandbox("true", options=["-e", "NOT_SET"])
        self.check_refused(run, "-e NOT_SET", "is not set here")

    def test_values_are_data(self):
        value = "line\nbreak %s $(id) \x01 'quotes' \\"
        self.assertEqual(self.see({"pass": ["FOO"]}, FOO=value)["FOO"], value)

    def test_presets_pass_no_secrets(self):
        names = ("AWS_SECRET_ACCESS_KEY", "API_TOKEN", "DB_PASSWORD", "SSH_AUTH_SOCK", "LD_PRELOAD",
                 "LC_SECRET", "PYTHONPATH")
        secrets = dict.fromkeys(names, SECRET)
        for preset in ("builtin:agent@1", "builtin:dev@1", "builtin:strict@1"):
            run = self.sandbox("env", policy=preset, options=self.session_options(),
                               env=environment(**secrets))
            self.check_exited(run)
            self.assertNotIn(SECRET, run.out)

    def test_a_megabyte_of_environment_changes_nothing(self):
        big = {f"V{number}": "x" * 100_000 for number in range(10)}
        self.assertEqual(set(self.see({}, **big)), {"PATH"})
        self.assertEqual(len(self.see({"pass": ["V*"]}, **big)), 11)

    def test_belljars_own_variables_do_not_pass(self):
        self.assertEqual(set(self.see({}, BELLJAR_BACK_END="x")), {"PATH"})


if __name__ == "__main__":
    main()
