"""GET /sessions/{id}/files: what a client sees of a workspace, and what an agent cannot make it see."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import DaemonTest, as_shipped
from harness import callers, main

SECRET = "this-is-outside"


class Files(DaemonTest):

    @callers("five", "user")
    def test_regular_files_sorted_with_content_tmp_hidden_and_directories_incl_empty_ones(self):
        daemon = self.daemon()
        session = daemon.session(support_files={"b/two.py": "2", "b/one.py": "1", "a.txt": "text", "b/tmp/hidden": "", ".dot": "d"},
                                 workspace_paths=["empty/inner", "tmp/x"])
        answer = daemon.files(session).json()
        self.assertEqual(set(answer), {"files", "directories"})
        self.assertEqual([file["path"] for file in answer["files"]],
                         [".dot", "a.txt", "agent.py", "config.yaml", "b/one.py", "b/two.py"])
        self.assertEqual(answer["directories"], ["b", "empty", "empty/inner"])
        self.assertEqual(answer["files"][1]["content"], "text")

    @as_shipped
    def test_symlinked_file_and_dir_outside_are_not_returned_and_target_text_never_leaks(self):
        secret = self.make_file("secret", SECRET)
        daemon = self.daemon()
        session = daemon.session()
        relay = daemon.relay(session)
        relay.run(f"os.symlink('{secret}', 'link'); os.symlink('{self.dir}', 'dir'); os.symlink('/etc/passwd', 'tmp/l')\n"
                  "os.symlink('agent.py', 'own'); os.link('agent.py', 'hard'); open('real', 'w').write('x')\nanswer = 1")
        answer = daemon.files(session)
        files, directories = daemon.listed(session)
        self.assertNotIn(SECRET.encode(), answer.body)
        self.assertNotIn(b"root:", answer.body)
        self.assertTrue({"link", "dir", "own"}.isdisjoint(files))
        self.assertEqual(files["real"], "x")
        self.assertEqual(directories, [])

    @as_shipped
    def test_a_file_where_a_directory_has_to_be_is_a_clash_and_nothing_is_started(self):
        daemon = self.daemon()
        for files, paths in ((("a",), ["a"]), (("a",), ["a/b"]), (("a", "a/b"), []), (("tmp",), []), ((), ["agent.py"])):
            answer = daemon.create(support_files={path: "x" for path in files}, workspace_paths=paths)
            self.assertEqual((answer.status, answer.json()), (500, {"detail": "The session could not be started"}), (files, paths))
        self.assertEqual((daemon.health()["sessions"], daemon.workspaces()), (0, []))
        daemon.session(support_files={"a/b": "x"}, workspace_paths=["a", "tmp"])

    @as_shipped
    def test_a_key_of_the_request_is_not_shown_wherever_the_configuration_has_it(self):
        daemon = self.daemon()
        session = daemon.session(config=f"agent: {{name: a}}\nother: [\"x {SECRET} y\"]\n", env_vars={"OPENAI_API_KEY": SECRET})
        files, _ = daemon.listed(session)
        self.assertNotIn(SECRET, files["config.yaml"])
        self.assertIn("name: a", files["config.yaml"])

    @as_shipped
    def test_fifo_socket_and_device_are_skipped_without_blocking(self):
        daemon = self.daemon()
        session = daemon.session()
        made = daemon.relay(session).run("import socket\nos.mkfifo('fifo'); os.mkfifo('config.fifo')\n"
                                         "s = socket.socket(socket.AF_UNIX); s.bind('socket')\nanswer = sorted(os.listdir('.'))")
        self.assertIn("fifo", made)
        files, _ = daemon.listed(session)
        self.assertEqual(set(files), {"agent.py", "config.yaml"})

    @as_shipped
    def test_file_over_512_kib_becomes_a_marker_starting_file_too_large_to_display(self):
        daemon = self.daemon()
        session = daemon.session(support_files={"big": "b" * (524288 + 1), "fits": "f" * 524288})
        files, _ = daemon.listed(session)
        self.assertTrue(files["big"].startswith("[File too large to display"), files["big"][:100])
        self.assertIn("524289", files["big"])
        self.assertEqual(len(files["fits"]), 524288)

    @as_shipped
    def test_the_total_is_bounded_and_what_does_not_fit_is_marked(self):
        daemon = self.daemon()
        session = daemon.session(support_files={f"f{i:02}": "x" * 500000 for i in range(40)})
        answer = daemon.files(session)
        self.assertLess(len(answer.body), 20 << 20)
        files, _ = daemon.listed(session)
        self.assertEqual(len(files), 42)
        marked = [path for path, content in files.items() if content.startswith("[File too large")]
        self.assertTrue(0 < len(marked) < 40)

    @as_shipped
    def test_credentials_in_config_yaml_are_never_returned(self):
        daemon = self.daemon()
        session = daemon.session(config="nlp: {replicate: {api_key: r8-generated}}\nagent: {name: visible}\n",
                                 env_vars={"OPENAI_API_KEY": "sk-of-the-user", "HUGGINGFACEHUB_API_TOKEN": "hf-of-the-user"})
        text = daemon.relay(session).run("answer = open('config.yaml').read()")
        for secret in ("sk-of-the-user", "hf-of-the-user", "r8-generated"):
            self.assertIn(secret, text, "the agent has it")
            self.assertNotIn(secret.encode(), daemon.files(session).body)
        self.assertIn("visible", daemon.listed(session)[0]["config.yaml"])

    @as_shipped
    def test_names_and_contents_that_are_no_utf_8_are_shown_with_replacements(self):
        daemon = self.daemon()
        session = daemon.session()
        daemon.relay(session).run("open(b'name-\\xff', 'wb').write(b'caf\\xc3\\xa9 \\xff')\nopen('new\\nline', 'w').close()\nanswer = 1")
        files, _ = daemon.listed(session)
        self.assertEqual(files["name-\ufffd"], "café \ufffd")
        self.assertEqual(files["new\nline"], "")

    @as_shipped
    def test_invalid_id_is_400_and_an_unknown_one_404(self):
        daemon = self.daemon()
        self.assertEqual(daemon.files("nonsense").status, 400)
        self.assertEqual(daemon.files("0b5a7d52-3c1e-4f7a-9a55-0123456789ab").status, 404)


if __name__ == "__main__":
    main()
