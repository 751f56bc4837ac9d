"""pasta's life and death: what starts it, what it is told, and that nothing of it is ever left."""

import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import back_ends, callers, descendants, environment, main, once, wait_for
from network.hosts import PUBLIC, SECOND, PrivateNetworkTest, with_reach

PREFER = {"network": {"mode": "private", "enforce": "prefer"}}


def command_line(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


class Start(PrivateNetworkTest):

    @once
    def test_pasta_is_told_to_forward_nothing_either_way(self):
        run = self.start_inside("say('up'); sys.stdin.readline()", stdin=-1)
        run.wait_for_output("up")
        (pasta,) = self.pastas()
        words = [word.decode() for word in command_line(pasta)]
        for flag in ("-t", "-u", "-T", "-U"):
            self.assertEqual(words[words.index(flag) + 1], "none")
        self.assertIn("--no-map-gw", words)
        self.assertIn("-f", words)
        self.assertEqual([word for word in words if "port" in word or word == "--runas"], [])
        status = pathlib.Path(f"/proc/{pasta}/status").read_text()
        self.assertIn(f"Uid:\t{self.uid}\t{self.uid}", status)
        run.process.stdin.close()
        run.process.stdin = None
        self.check_exited(run.finish())

    @callers("root", "five", "user")
    def test_a_tun_device_that_the_session_cannot_open_is_a_refusal_that_names_the_remedy(self):
        self.host.run("chmod", "600", "/dev/net/tun")
        run = self.sandbox("true")
        self.check_refused(run, "EACCES", f"uid {self.uid} cannot open /dev/net/tun", "network.mode",
                           "remedy: chmod 666 /dev/net/tun")

    @once
    def test_no_tun_device_is_a_refusal_that_names_the_remedy(self):
        self.host.run("umount", "/dev/net/tun")
        self.host.run("mount", "-t", "tmpfs", "tmpfs", "/dev/net")
        self.check_refused(self.sandbox("true"), "ENOENT", "/dev/net/tun", "remedy:", "devices:")

    @once
    def test_no_pasta_is_a_refusal_that_names_the_package(self):
        run = self.sandbox("true", env=environment(BELLJAR_PASTA="/nonexistent/pasta"))
        self.check_refused(run, "/nonexistent/pasta", "ENOENT", "apt-get install passt")

    @once
    def test_a_host_without_a_way_out_is_a_refusal(self):
        self.host.run("ip", "route", "del", "default")
        self.check_refused(self.sandbox("true"), "no default route")

    def test_a_pasta_that_ends_at_once_is_a_refusal_with_its_words(self):
        run = self.sandbox("echo", "ran", env=self.stand_in("echo 'the moon is full' >&2; exit 3"))
        self.check_refused(run, "pasta exited with status 3", "the moon is full", "attach a network by pasta")
        self.assertNotIn("ran", run.out)

    @once
    def test_a_pasta_that_does_nothing_is_refused_at_its_deadline(self):
        run = self.sandbox("echo", "ran", env=self.stand_in("echo hanging >&2; exec sleep 100"))
        self.check_refused(run, "ETIMEDOUT", "no interface within", "hanging")
        self.assertNotIn("ran", run.out)

    @once
    def test_a_pasta_that_ignores_signals_is_ended_all_the_same(self):
        run = self.sandbox("true", env=self.stand_in("trap '' TERM INT HUP; while :; do sleep 0.1; done"))
        self.check_refused(run, "ETIMEDOUT")

    @once
    def test_an_interface_without_pasta_behind_it_is_not_enough(self):
        """A stand-in makes the interface and the route, and dies."""
        run = self.sandbox("true", env=self.stand_in("exec /bin/false"))
        self.check_refused(run, "pasta exited with status 1")

    @once
    def test_pasta_inherits_nothing_of_belljars(self):
        out = self.make_file("seen", owner=self.uid, mode=0o666)
        self.sandbox("true", env={**self.stand_in(f"ls -l /proc/self/fd > {out}; env >> {out}; exit 1"),
                                  "SECRET": "x"})
        seen = out.read_text()
        self.assertNotIn("SECRET", seen)
        self.assertEqual([line for line in seen.splitlines() if "socket:" in line], [], seen)


class Prefer(PrivateNetworkTest):

    def test_a_private_network_that_can_be_had_is_not_degraded(self):
        self.assertEqual(self.reach(PUBLIC, SECOND, policy=PREFER), {PUBLIC: "internet", SECOND: "ECONNREFUSED"})
        self.assertNotIn("network", [item["control"] for item in self.last.record["degraded"]])

    def test_one_that_cannot_be_had_becomes_the_hosts_and_is_said_to_be(self):
        self.host.run("chmod", "600", "/dev/net/tun")
        self.assertEqual(self.reach(SECOND, policy=PREFER), {SECOND: "host"})
        (said,) = [item["what"] for item in self.last.record["degraded"] if item["control"] == "network"]
        self.assertIn("the host's network in place of a private one", said)
        self.assertIn("chmod 666 /dev/net/tun", said)

    @once
    def test_any_other_failure_is_none_of_the_networks(self):
        run = self.sandbox("/nonexistent", policy=PREFER)
        self.check_refused(run, "/nonexistent", code=127)


class End(PrivateNetworkTest):

    def running(self, code="say('up'); time.sleep(60)", **more):
        run = self.start_inside(code, **more)
        run.wait_for_output("up")
        return run

    @staticmethod
    def alive():
        """What of this test's runs, but for the processes that hold its hosts."""
        return [one for one in descendants() if one[1] != "Z" and one[2] not in ("sleep", "unshare", "sh")]

    def family(self, run):
        """pid -> name of belljar's descendants."""
        return {pid: name for pid, _, name in descendants(run.process.pid)}

    def test_the_end_of_the_command_is_the_end_of_its_network(self):
        self.check_exited(self.inside("say(1)"))
        self.assertEqual(self.pastas(), [])

    @back_ends("modern")
    def test_what_pasta_leaves_ends_with_the_network_too(self):
        """The real one works through copies of itself, which outlive it by a moment."""
        leaves = "setsid tail -f /dev/null > /dev/null 2>&1 & (setsid tail -f /dev/null &) > /dev/null 2>&1; "
        for rest in ('exec /usr/bin/pasta "$@"', "sleep 0.2; exit 1"):
            run = self.sandbox("true", env=self.stand_in(leaves + rest))
            self.assertEqual(run.record["cause"], "exited" if "pasta" in rest else "setup", str(run))
            self.assertEqual([one for one in descendants() if one[2] == "tail" and one[1] != "Z"], [])

    @back_ends("modern")
    def test_a_pasta_that_is_killed_ends_the_command_and_the_record_says_so(self):
        run = self.running()
        os.kill(self.pastas()[0], signal.SIGKILL)
        done = run.finish()
        self.assertEqual((done.record["cause"], done.record["signal"]), ("network_lost", "SIGKILL"), str(done))
        self.assertIn("pasta was ended by SIGKILL", done.record["network_error"])
        self.assertIn("network was lost", done.err)

    @back_ends("modern")
    def test_a_guard_that_is_killed_takes_pasta_along_and_ends_the_command(self):
        run = self.running()
        pasta = self.pastas()[0]
        guard = int(pathlib.Path(f"/proc/{pasta}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(guard, signal.SIGKILL)
        done = run.finish()
        self.assertEqual(done.record["cause"], "network_lost", str(done))
        self.assertIn("guard", done.record["network_error"])
        wait_for(lambda: not self.pastas())

    def test_a_belljar_that_is_killed_leaves_neither_guard_nor_pasta(self):
        run = self.running()
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait()
        wait_for(lambda: not self.alive())

    @once
    def test_a_key_that_ends_the_command_does_not_end_its_network_first(self):
        run = self.running("import signal as s; s.signal(s.SIGINT, lambda *_: os._exit(7))\n"
                           "say('up')\ntime.sleep(60)", start_new_session=True)
        os.killpg(run.process.pid, signal.SIGINT)
        done = run.finish()
        self.check_exited(done, 7)

    @once
    def test_the_command_sees_nothing_of_pasta_or_its_guard(self):
        run = self.inside("say([open(f'/proc/{p}/comm').read().strip() for p in os.listdir('/proc') if p.isdigit()])")
        self.assertEqual([name for name in run.json() if name.startswith(("pasta", "passt"))], [])
        self.assertLessEqual(len(run.json()), 2)

    @once
    def test_nothing_is_left_when_anything_is_killed_at_any_moment(self):
        rounds = 200 if os.environ.get("BELLJAR_ALL") == "1" else 12
        for number in range(rounds):
            run = self.start_inside("time.sleep(60)")
            time.sleep((number * 7919 % 120) / 1000)  # Where in the launch it falls decides nothing.
            victims = [run.process.pid, *self.family(run)]
            victim = victims[number % len(victims)]
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                pass
            time.sleep(0.01)
            if run.process.poll() is None:
                run.process.kill()
            run.process.wait()
            run.stop()
            wait_for(lambda: not self.alive(), seconds=10, what=f"the end of everything in round {number}")


if __name__ == "__main__":
    main()
