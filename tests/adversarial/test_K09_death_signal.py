"""K09 (measured: the signal is cleared by setresuid, and comes when the creating thread ends)"""

import ctypes
import subprocess
import threading

from adversarial.case import HostileLaunch, main
from harness import descendants, wait_for, wait_for_no_descendants

PR_SET_PDEATHSIG, SIGKILL = 1, 9


class K09(HostileLaunch):
    """The thread that started belljar ends, which must end nothing; belljar is killed at once, which must end all."""

    control_opens = {"the thread's death"}
    callers_of_control = ("root",)
    back_ends_of_control = ("modern",)

    def in_a_thread(self, function):
        """What `function` answers in a thread that has ended since."""
        answers = []
        thread = threading.Thread(target=lambda: answers.append(function()))
        thread.start()
        thread.join()
        return answers[0]

    def attempts(self):
        running = self.in_a_thread(lambda: self.start_sandbox("sleep", "60", status=True))
        init = running.wait_until_started()
        alive = {pid for pid, state, _ in descendants(running.process.pid) if state != "Z"}
        doors = {"the thread's death": "nothing" if init in alive and running.process.poll() is None else "open"}
        running.process.kill()
        running.process.wait()
        doors["the launcher's death"] = "open" if wait_for_no_descendants(2.0) else "all gone"
        running.stop()
        return doors

    def control_attempts(self):
        """A process that asks for the signal alone dies with the thread."""
        def start():
            ask = lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
            return subprocess.Popen(["sleep", "60"], preexec_fn=ask)
        started = self.in_a_thread(start)
        wait_for(lambda: started.poll() is not None, 10, "its end")
        return {"the thread's death": "open" if started.returncode == -SIGKILL else "nothing"}


if __name__ == "__main__":
    main()
