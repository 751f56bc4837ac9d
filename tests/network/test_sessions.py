"""Sessions with a private network: what the launch service's monitors serve."""

import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "service"))
from harness import callers, main
from network.hosts import PORT, PUBLIC, SECOND, PrivateNetworkTest, with_reach
from test_session_socket import Session


class Sessions(PrivateNetworkTest):

    def session(self):
        session = Session(self, self.policy(), ())
        session.event("started")
        return session

    @callers("root", "user")
    def test_every_command_of_a_session_has_its_network(self):
        session = self.session()
        code = with_reach(f"say([reach({PUBLIC!r}, {PORT}), reach({SECOND!r}, {PORT})])")
        for _ in range(2):
            record, out = session.run("/usr/bin/python3", "-c", "import sys; sys.path.insert(0, '/tools')\n"
                                      "from inside import *\n" + code)
            self.assertEqual((record["cause"], out), ("exited", '["internet", "ECONNREFUSED"]\n'))
        self.assertEqual(session.end().code, 0)

    @callers("root", "user")
    def test_a_session_whose_pasta_dies_is_over_and_says_why(self):
        session = self.session()
        os.kill(self.pastas()[0], signal.SIGKILL)
        record = session.event("over")["record"]
        self.assertEqual(record["cause"], "network_lost")
        self.assertIn("SIGKILL", record["network_error"])


if __name__ == "__main__":
    main()
