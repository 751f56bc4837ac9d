"""What the shipped compose files say: names that stay, options that hold, and nothing that gives the host away."""

import pathlib
import unittest

import yaml

CONTAINER = pathlib.Path(__file__).resolve().parents[2] / "container"
SIMULATOR, WORKER = "besser-wme-agent-simulator", "besser-wme-smartgen"
FIVE = {"CHOWN", "DAC_OVERRIDE", "SETUID", "SETGID", "KILL"}


class Compose(unittest.TestCase):
    def setUp(self):
        self.file = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
        self.services = self.file["services"]

    def test_services_and_containers_keep_their_names(self):
        self.assertEqual({name: service["container_name"] for name, service in self.services.items()},
                         {SIMULATOR: SIMULATOR, WORKER: WORKER})

    def test_each_has_the_five_capabilities_and_no_way_to_more(self):
        for name, service in self.services.items():
            with self.subTest(service=name):
                self.assertEqual((service["cap_drop"], set(service["cap_add"])), (["ALL"], FIVE))
                self.assertIn("no-new-privileges:true", service["security_opt"])
                self.assertIn("seccomp:./seccomp.json", service["security_opt"])
                self.assertNotIn("unconfined", " ".join(service["security_opt"]))
                self.assertNotIn("privileged", service)
                self.assertNotIn("env_file", service)
                for key in ("pids_limit", "mem_limit", "cpus", "healthcheck", "init"):
                    self.assertIn(key, service)

    def test_only_the_worker_publishes_a_port_and_only_to_this_host(self):
        self.assertNotIn("ports", self.services[SIMULATOR])
        self.assertEqual(self.services[WORKER]["ports"], ["127.0.0.1:9001:9000"])

    def test_each_has_a_network_of_its_own(self):
        networks = [service["networks"] for service in self.services.values()]
        self.assertEqual(networks, [["agent_simulator_network"], ["smartgen_network"]])

    def test_the_cover_of_the_hidden_proc_is_mounted_after_it(self):
        """Docker mounts in the order of the number of a path's components."""
        for service in self.services.values():
            (helper,) = [volume for volume in service["volumes"] if isinstance(volume, dict)]
            (cover,) = [entry.split(":")[0] for entry in service["tmpfs"] if "hide" in entry]
            self.assertGreater(cover.count("/"), helper["target"].count("/"))
            self.assertIn(f"ln -s /hide {cover}", (CONTAINER / "Dockerfile").read_text())
        self.assertIn("subset=pid", self.file["volumes"]["belljar-proc"]["driver_opts"]["o"])

    def test_the_legacy_file_has_a_price_above_each_open_option(self):
        lines = (CONTAINER / "compose.legacy.yaml").read_text().splitlines()
        opened = [number for number, line in enumerate(lines) if "=unconfined" in line]
        self.assertEqual(len(opened), 3)
        for number in opened:
            above = []
            while lines[number - 1].strip().startswith("#"):
                number -= 1
                above.append(lines[number])
            self.assertIn("Price:", " ".join(above))


if __name__ == "__main__":
    unittest.main()
